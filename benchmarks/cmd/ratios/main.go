// Command ratios reads the output of "go test -bench" on standard input and prints each performance
// target with the measured ratio:
//
//	go test -run '^$' -bench . -count 6 . | go -C benchmarks run ./cmd/ratios
//
// With -markdown the tables are in Markdown, as in docs/benchmarks.md.
//
// The baseline of a benchmark differs from it in one parameter, such as impl=std for impl=wheel, so
// both figures come from one run of one binary. The figure of a benchmark that ran several times is
// the median.
//
// Targets are reported and not enforced, because a loaded machine must not fail a build. The exit
// status is 0 for all verdicts, and 1 if the input has no result or cannot be parsed.
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
	markdown := flag.Bool("markdown", false, "print the tables in Markdown")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "ratios: unexpected argument %q: benchmark results are read from standard input, and -markdown is the only option\n", flag.Arg(0))
		os.Exit(2)
	}
	if err := run(os.Stdin, os.Stdout, machine.Describe, renderer(*markdown)); err != nil {
		fmt.Fprintln(os.Stderr, "ratios:", err)
		os.Exit(1)
	}
}

// run reads benchmark results from in and writes the tables to out. A line from describe, which
// names the machine, precedes them.
func run(in io.Reader, out io.Writer, describe func(cpu string) string, draw render) error {
	m, err := results.Read(in, "standard input")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, describe(m.Config["cpu"]))
	fmt.Fprintf(out, "%s\n\n", m.Runs())
	rows := evaluate(m, targets)
	writeTargets(out, rows, draw)
	writeOthers(out, otherPairs(m, rows), draw)
	return nil
}
