// Command collisions prints how often goroutines share a shard, and how often they then wait for
// each other. The share is computed by the formula for balls in bins, and from the stack addresses
// of goroutines of this program, with the hash of the library. The waiting is simulated, with
// processors and locks.
//
//	go -C benchmarks run ./cmd/collisions
//	go -C benchmarks run ./cmd/collisions -procs 8,64 -shards 8,32,64,256 -held 10 -markdown
//
// The simulation leaves out the cost of moving a cache line and of waking a waiter. In the column
// "random" each operation has another home shard, as if many goroutines took turns on the
// processors.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Accepted ranges.
const (
	maxProcs   = 1024
	maxShards  = 1024
	minHeld    = 0.01
	maxHeld    = 99
	maxRepeats = 1_000_000

	goroutines = 10_000 // their stack addresses are sampled
)

// config holds the options of one run.
type config struct {
	procs, shards []int
	held          float64 // percent
	rounds        int
	operations    int
	markdown      bool
}

const (
	exitOK = iota
	exitFailed
	exitUsage
)

func main() { os.Exit(collisions(os.Args[1:], os.Stdout, os.Stderr)) }

// collisions runs the program and returns its exit code.
func collisions(args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "collisions: %v\nSee collisions -help.\n", err)
		return exitUsage
	}
	print(cfg, stdout)
	return exitOK
}

func parse(args []string, help io.Writer) (config, error) {
	cfg := config{procs: []int{2, 8, 16, 64, 128}, shards: []int{8, 32, 64, 128, 256, 512}}
	fs := flag.NewFlagSet("collisions", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are returned, and printed once
	fs.Func("procs", fmt.Sprintf("comma-separated `list` of numbers of processors (each from 1 to %d)", maxProcs),
		list(&cfg.procs, maxProcs))
	fs.Func("shards", fmt.Sprintf("comma-separated `list` of numbers of shards (each from 1 to %d)", maxShards),
		list(&cfg.shards, maxShards))
	fs.Float64Var(&cfg.held, "held", 50,
		fmt.Sprintf("`percent` of its time for which a processor holds a lock, if it never waits (from %v to %v)", minHeld, maxHeld))
	fs.IntVar(&cfg.rounds, "rounds", 2000,
		fmt.Sprintf("draw one of %d goroutines for each processor `n` times (from 1 to %d)", goroutines, maxRepeats))
	fs.IntVar(&cfg.operations, "operations", 20_000,
		fmt.Sprintf("simulate `n` operations of each processor (from 1 to %d)", maxRepeats))
	fs.BoolVar(&cfg.markdown, "markdown", false, "print the table as Markdown")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fs.SetOutput(help)
			fs.PrintDefaults()
		}
		return cfg, err
	}
	switch {
	case fs.NArg() > 0:
		return cfg, fmt.Errorf("unexpected argument %q; the program takes only options", fs.Arg(0))
	case !(cfg.held >= minHeld && cfg.held <= maxHeld): // true for a NaN
		return cfg, fmt.Errorf("invalid value %v for flag -held: it must be a number from %v to %v", cfg.held, minHeld, maxHeld)
	case cfg.rounds < 1 || cfg.rounds > maxRepeats:
		return cfg, fmt.Errorf("invalid value %d for flag -rounds: it must be a whole number from 1 to %d", cfg.rounds, maxRepeats)
	case cfg.operations < 1 || cfg.operations > maxRepeats:
		return cfg, fmt.Errorf("invalid value %d for flag -operations: it must be a whole number from 1 to %d", cfg.operations, maxRepeats)
	}
	return cfg, nil
}

// list returns a parser of comma-separated whole numbers from 1 to most.
func list(to *[]int, most int) func(string) error {
	return func(s string) error {
		*to = nil
		for word := range strings.SplitSeq(s, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(word))
			if err != nil || n < 1 || n > most {
				return fmt.Errorf("it must be a comma-separated list of whole numbers from 1 to %d", most)
			}
			*to = append(*to, n)
		}
		return nil
	}
}

// print writes a row for each combination of processors and shards.
func print(cfg config, w io.Writer) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"processors", "shards", "share a shard, formula %", "share a shard, stacks %",
		"add moves on %", "add waits %", "stop waits %", "throughput", "random: add waits %", "stop waits %", "throughput"})
	columns := make([]table.ColumnConfig, 11)
	for i := range columns {
		columns[i] = table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight}
	}
	t.SetColumnConfigs(columns)
	addresses := stacks(goroutines)
	for _, procs := range cfg.procs {
		for _, shards := range cfg.shards {
			home := simulate(scenario{procs, shards, cfg.held / 100, false, cfg.operations})
			random := simulate(scenario{procs, shards, cfg.held / 100, true, cfg.operations})
			t.AppendRow(table.Row{procs, shards,
				percent(collisionByFormula(procs, shards)), percent(collisionByStacks(addresses, procs, shards, cfg.rounds)),
				percent(home.movedOn), percent(home.addWaits), percent(home.stopWaits), fmt.Sprintf("%.1f", home.throughput),
				percent(random.addWaits), percent(random.stopWaits), fmt.Sprintf("%.1f", random.throughput)})
		}
	}
	if cfg.markdown {
		t.RenderMarkdown()
		return
	}
	t.Render()
}

func percent(share float64) string { return fmt.Sprintf("%.1f", 100*share) }
