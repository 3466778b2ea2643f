// Command cost repeats each operation of a wheel and prints the time of one. It can also run under
// an instruction counter, because every operation is a function of its own:
//
//	go -C benchmarks build -o ../cost ./cmd/cost && ./cost -pending 1000000
//	GODEBUG=asyncpreemptoff=1 GOMAXPROCS=1 GOGC=off valgrind --tool=callgrind --cache-sim=yes \
//		--LL=2097152,16,64 --callgrind-out-file=cost.out ./cost -pending 1000000
//	callgrind_annotate --inclusive=yes cost.out | grep 'main\.op'
//
// Compare runs to find the cost of work on other goroutines: -only fire with -only flush, which
// runs the same timers without moving them, and either of them with two values of -ops. Instruction
// counts do not depend on the load of the machine; times do.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/timingwheel-go/timingwheel"
)

// Accepted ranges.
const (
	maxPending = 100_000_000
	maxOps     = 100_000_000
	maxShards  = 1024
)

// config holds the options of one run.
type config struct {
	pending, ops, shards int
	only                 string
}

const (
	exitOK = iota
	exitFailed
	exitUsage
)

func main() { os.Exit(cost(os.Args[1:], os.Stdout, os.Stderr)) }

// cost runs the program and returns its exit code.
func cost(args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "cost: %v\nSee cost -help.\n", err)
		return exitUsage
	}
	if err := run(cfg, stdout); err != nil {
		fmt.Fprintf(stderr, "cost: %v\n", err)
		return exitFailed
	}
	return exitOK
}

func parse(args []string, help io.Writer) (config, error) {
	var c config
	fs := flag.NewFlagSet("cost", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are returned, and printed once
	fs.IntVar(&c.pending, "pending", 1_000_000, fmt.Sprintf("keep `n` timers pending (from 1 to %d)", maxPending))
	fs.IntVar(&c.ops, "ops", 200_000, fmt.Sprintf("repeat each operation `n` times (from 1 to %d)", maxOps))
	fs.IntVar(&c.shards, "shards", 8, fmt.Sprintf("use `n` shards (from 1 to %d)", maxShards))
	fs.StringVar(&c.only, "only", "", fmt.Sprintf("do this `operation` only, after adding the pending timers (one of %v)", names()))
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fs.SetOutput(help)
			fs.PrintDefaults()
		}
		return c, err
	}
	if fs.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q; the program takes only options", fs.Arg(0))
	}
	if c.only != "" && !slices.Contains(names(), c.only) {
		return c, fmt.Errorf("invalid value %q for flag -only: it must be one of %v", c.only, names())
	}
	return c, errors.Join(within("pending", c.pending, maxPending), within("ops", c.ops, maxOps), within("shards", c.shards, maxShards))
}

func within(name string, v, most int) error {
	if v < 1 || v > most {
		return fmt.Errorf("invalid value %d for flag -%s: it must be a whole number from 1 to %d", v, name, most)
	}
	return nil
}

// run adds the population, repeats each operation and prints the time of one.
func run(cfg config, w io.Writer) error {
	tw, err := timingwheel.New(timingwheel.Options{Shards: cfg.shards})
	if err != nil {
		return err
	}
	defer tw.Stop()
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.AppendHeader(table.Row{"operation", "times", "ns each"})
	row := func(name string, n int, d time.Duration) {
		each := "-"
		if d > 0 {
			each = fmt.Sprintf("%.1f", float64(d)/float64(n))
		}
		t.AppendRow(table.Row{name, n, each})
	}
	p := newPopulation(tw, cfg.pending)
	row("add", cfg.pending, repeat(cfg.pending, p.add))
	for _, op := range operations {
		if cfg.only == "" || cfg.only == op.name {
			row(op.name, cfg.ops, repeat(cfg.ops, func() { op.do(p) }))
		}
	}
	for _, s := range scenarios {
		if cfg.only != "" && cfg.only != s.name {
			continue
		}
		took, err := s.do(cfg.shards, cfg.ops)
		if err != nil {
			return err
		}
		row(s.name, cfg.ops, took)
	}
	t.Render()
	return nil
}

// repeat returns the time of n calls.
func repeat(n int, op func()) time.Duration {
	start := time.Now()
	for range n {
		op()
	}
	return time.Since(start)
}
