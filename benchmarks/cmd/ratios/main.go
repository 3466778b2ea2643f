// Command ratios reads the output of "go test -bench" on standard input and prints each performance
// target beside the ratio that was measured:
//
//	go test -run '^$' -bench . -count 6 . | go run ./benchmarks/cmd/ratios
//
// With -markdown the tables are in Markdown, as they stand in docs/benchmarks.md.
//
// A benchmark's rival is the benchmark whose name differs from its own in one parameter only, such as
// impl=std for impl=wheel, so that both figures come from one run of one binary. A benchmark that ran
// several times counts with its median.
//
// Targets are reported and not enforced, since a loaded machine must not fail a build: the exit status
// is 0 whatever the verdicts, and 1 only where the input holds no result or cannot be parsed.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/machine"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
)

func main() {
	markdown := flag.Bool("markdown", false, "write the tables in Markdown")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "ratios: %q: benchmark results are read from standard input, and -markdown is the only option\n", flag.Arg(0))
		os.Exit(2)
	}
	if err := run(os.Stdin, os.Stdout, machine.Describe, renderer(*markdown)); err != nil {
		fmt.Fprintln(os.Stderr, "ratios:", err)
		os.Exit(1)
	}
}

// run reads benchmark results from in and writes the tables to out, under what describe says of the
// machine that measured them.
func run(in io.Reader, out io.Writer, describe func(cpu string) string, draw render) error {
	m, err := results.Read(in, "standard input")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, describe(m.Config["cpu"]))
	fmt.Fprintf(out, "%s\n\n", m.Runs())
	judged := judge(m, targets)
	writeTargets(out, judged, draw)
	writeOthers(out, otherPairs(m, judged), draw)
	return nil
}
