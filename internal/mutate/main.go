// Command mutate measures how well the tests hold the engine: it makes small changes in production
// files, one at a time, and counts those that no test catches.
//
//	go run ./internal/mutate [flags] [files]
//	go run ./internal/mutate -n 6 -o new.txt claim.go wheel.go
//	go run ./internal/mutate -n 6 -o new.txt -old old.txt
//
// Without files, the command changes the files of the root package and of the internal packages
// that it imports. The results are appended to a file. A mutant that has a result there is not
// tested again, so the command may be interrupted. With the results of an older commit, the command
// compares the mutants that both have.
//
// The file equivalent.txt lists mutants that change nothing a test could see, with the reason.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed equivalent.txt
var equivalents string

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, args []string) error {
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	dir := flags.String("C", ".", "the `folder` of the module under test")
	n := flags.Int("n", 20, "mutants for each file")
	seed := flags.Int("seed", 1, "seed of the choice of mutants")
	out := flags.String("o", "mutants.txt", "the `file` of results, to which the command appends")
	old := flags.String("old", "", "the `file` of results of another commit, for comparison")
	timeout := flags.Duration("timeout", time.Minute, "for each run of a test binary")
	list := flags.Bool("list", false, "only list the chosen mutants")
	if err := flags.Parse(args); err != nil {
		return err
	}
	module, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}
	chosen, err := choose(module, flags.Args(), *n, *seed)
	if err != nil {
		return err
	}
	if *list {
		for _, m := range chosen {
			fmt.Fprintf(w, "%s\t%s:%d\t%s\n", m.key, m.file, m.line, m.diff(module))
		}
		return nil
	}
	scratch, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	t := &tester{dir: module, timeout: *timeout, scratch: scratch}
	results, err := t.all(chosen, *out)
	if err != nil {
		return err
	}
	return report(w, results, *old)
}

// choose returns the sample of mutants of the files.
func choose(module string, files []string, n, seed int) ([]mutant, error) {
	if len(files) == 0 {
		var err error
		if files, err = production(module); err != nil {
			return nil, err
		}
	}
	var chosen []mutant
	for _, file := range files {
		all, err := enumerate(module, file)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, sample(all, n, seed)...)
	}
	return chosen, nil
}

// production returns the files of the root package and of the packages that it imports from its own
// module.
func production(module string) ([]string, error) {
	format := `{{if and .Module .Module.Main}}{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{end}}`
	command := exec.Command("go", "list", "-deps", "-f", format, ".")
	command.Dir = module
	output, err := command.Output()
	if err != nil {
		return nil, err
	}
	var files []string
	for _, path := range strings.Fields(string(output)) {
		file, err := filepath.Rel(module, path)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// all tries the mutants that have no result in the file out, and appends their results. It returns
// the results of all.
func (t *tester) all(mutants []mutant, out string) ([]result, error) {
	known, err := readResults(out)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	file, err := os.OpenFile(out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reasons := reasons(equivalents)
	var results []result
	for _, m := range mutants {
		r, ok := known[m.key]
		if !ok {
			r = result{key: m.key, position: fmt.Sprint(m.file, ":", m.line), diff: m.diff(t.dir)}
			if reason, ok := reasons[m.key]; ok {
				r.verdict, r.by = equivalent, reason
			} else if r.verdict, r.by, err = t.try(m); err != nil {
				return nil, err
			}
			if _, err := fmt.Fprintln(file, r); err != nil {
				return nil, err
			}
		}
		results = append(results, r)
	}
	return results, file.Close()
}
