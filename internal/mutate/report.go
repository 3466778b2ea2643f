package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// A result is a line of the file of results.
type result struct {
	verdict, key, position, by, diff string
}

func (r result) String() string {
	return strings.Join([]string{r.verdict, r.key, r.position, r.by, r.diff}, "\t")
}

// file returns the name of the file, which is the first word of the key.
func (r result) file() string {
	file, _, _ := strings.Cut(r.key, " ")
	return file
}

func readResults(name string) (map[string]result, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	results := map[string]result{}
	for line := range strings.Lines(string(data)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 5 {
			return nil, fmt.Errorf("%s: not a result: %q", name, line)
		}
		results[f[1]] = result{f[0], f[1], f[2], f[3], f[4]}
	}
	return results, nil
}

// reasons returns the reason of each key in a list with a tab between the two.
func reasons(list string) map[string]string {
	reasons := map[string]string{}
	for line := range strings.Lines(list) {
		if key, reason, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			reasons[key] = reason
		}
	}
	return reasons
}

// diff returns the first line of the source that m changes, before and after.
func (m mutant) diff(dir string) string {
	source, err := os.ReadFile(filepath.Join(dir, m.file))
	if err != nil {
		return err.Error()
	}
	begin := bytes.LastIndexByte(source[:m.start], '\n') + 1
	line := func(after []byte) string {
		text, _, _ := strings.Cut(string(source[begin:m.start])+string(after), "\n")
		return strings.ReplaceAll(strings.TrimSpace(text), "\t", " ")
	}
	return line(source[m.start:]) + " => " + line(append([]byte(m.replacement), source[m.end:]...))
}

// A count has the verdicts about the mutants that were built.
type count struct{ built, caught int }

func (c *count) add(r result) {
	if r.verdict == caught || r.verdict == survived {
		c.built++
	}
	if r.verdict == caught {
		c.caught++
	}
}

func (c count) String() string {
	if c.built == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d, %d%%", c.caught, c.built, 100*c.caught/c.built)
}

// A row counts all mutants, and those that were built in both commits.
type row struct{ all, bothOld, bothNew count }

func (r *row) add(now, before result) {
	r.all.add(now)
	var a, b count
	a.add(before)
	b.add(now)
	if a.built == 1 && b.built == 1 {
		r.bothOld.add(before)
		r.bothNew.add(now)
	}
}

func (r row) String() string { return fmt.Sprintf("%v\t%v\t%v", r.all, r.bothOld, r.bothNew) }

// report prints a line for each file, and the survivors. With the results of another commit it also
// counts the mutants that both have.
func report(w io.Writer, results []result, old string) error {
	before := map[string]result{}
	if old != "" {
		var err error
		if before, err = readResults(old); err != nil {
			return err
		}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "file\tcaught\tin both, old\tin both, new")
	var total row
	var survivors []result
	for i := 0; i < len(results); {
		var file row
		name := results[i].file()
		for ; i < len(results) && results[i].file() == name; i++ {
			file.add(results[i], before[results[i].key])
			total.add(results[i], before[results[i].key])
			if results[i].verdict == survived {
				survivors = append(survivors, results[i])
			}
		}
		fmt.Fprintf(table, "%s\t%v\n", name, file)
	}
	fmt.Fprintf(table, "all\t%v\n", total)
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range survivors {
		fmt.Fprintf(w, "\nsurvived: %s (%s)\n\t%s\n", r.key, r.position, r.diff)
		if v := before[r.key].verdict; v == caught {
			fmt.Fprintf(w, "\tthe other commit caught it: %s\n", before[r.key].by)
		}
	}
	return nil
}
