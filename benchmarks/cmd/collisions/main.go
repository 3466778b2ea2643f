// Command collisions tells how often goroutines meet on a shard: by the formula for balls in bins, by the stack
// addresses of goroutines of this program, hashed as the library does, and how often they then wait for each other, in
// a simulation of processors and locks.
//
//	go run ./benchmarks/cmd/collisions
//	go run ./benchmarks/cmd/collisions -procs 8,64 -shards 8,32,64,256 -held 10 -markdown
//
// It says nothing about what the transfer of a cache line or the waking of a waiter costs. In the column "random" each
// operation has another home shard, as with many goroutines that take turns on the processors.
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

	goroutines = 10_000 // whose stack addresses are looked at
)

// config is what one run is asked to do.
type config struct {
	procs, shards []int
	held          float64 // percent
	rounds        int
	operations    int
	markdown      bool
}

const (
	exitRight = iota
	exitWrong
	exitUsage
)

func main() { os.Exit(collisions(os.Args[1:], os.Stdout, os.Stderr)) }

// collisions is the program without its process: it returns the exit code.
func collisions(args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitRight
	case err != nil:
		fmt.Fprintf(stderr, "collisions: %v\nSee collisions -help.\n", err)
		return exitUsage
	}
	print(cfg, stdout)
	return exitRight
}

func parse(args []string, help io.Writer) (config, error) {
	cfg := config{procs: []int{2, 8, 16, 64, 128}, shards: []int{8, 32, 64, 128, 256, 512}}
	fs := flag.NewFlagSet("collisions", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are returned, and printed once
	fs.Func("procs", fmt.Sprintf("numbers of processors, a `list` by commas (each from 1 to %d)", maxProcs), list(&cfg.procs, maxProcs))
	fs.Func("shards", fmt.Sprintf("numbers of shards, a `list` by commas (each from 1 to %d)", maxShards), list(&cfg.shards, maxShards))
	fs.Float64Var(&cfg.held, "held", 50, fmt.Sprintf("`percent` of its time for which a processor that never waits holds a lock (from %v to %v)", minHeld, maxHeld))
	fs.IntVar(&cfg.rounds, "rounds", 2000, fmt.Sprintf("choose one of %d goroutines for each processor `n` times (from 1 to %d)", goroutines, maxRepeats))
	fs.IntVar(&cfg.operations, "operations", 20_000, fmt.Sprintf("simulate `n` operations of each processor (from 1 to %d)", maxRepeats))
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
		return cfg, fmt.Errorf("unexpected argument %q: only options are accepted", fs.Arg(0))
	case !(cfg.held >= minHeld && cfg.held <= maxHeld): // true for a NaN
		return cfg, fmt.Errorf("invalid value %v for flag -held: must be a number from %v to %v", cfg.held, minHeld, maxHeld)
	case cfg.rounds < 1 || cfg.rounds > maxRepeats:
		return cfg, fmt.Errorf("invalid value %d for flag -rounds: must be a whole number from 1 to %d", cfg.rounds, maxRepeats)
	case cfg.operations < 1 || cfg.operations > maxRepeats:
		return cfg, fmt.Errorf("invalid value %d for flag -operations: must be a whole number from 1 to %d", cfg.operations, maxRepeats)
	}
	return cfg, nil
}

// list parses whole numbers from 1 to most.
func list(to *[]int, most int) func(string) error {
	return func(s string) error {
		*to = nil
		for word := range strings.SplitSeq(s, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(word))
			if err != nil || n < 1 || n > most {
				return fmt.Errorf("must be whole numbers from 1 to %d, by commas", most)
			}
			*to = append(*to, n)
		}
		return nil
	}
}

// print writes a row for each number of processors and shards.
func print(cfg config, w io.Writer) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"processors", "shards", "meet, formula %", "meet, stacks %", "add moves on %", "add waits %", "stop waits %", "throughput",
		"random: add waits %", "stop waits %", "throughput"})
	columns := make([]table.ColumnConfig, 11)
	for i := range columns {
		columns[i] = table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight}
	}
	t.SetColumnConfigs(columns)
	addresses := stacks(goroutines)
	for _, procs := range cfg.procs {
		for _, shards := range cfg.shards {
			home := contend(contest{procs, shards, cfg.held / 100, false, cfg.operations})
			random := contend(contest{procs, shards, cfg.held / 100, true, cfg.operations})
			t.AppendRow(table.Row{procs, shards, percent(meetByFormula(procs, shards)), percent(meetByStacks(addresses, procs, shards, cfg.rounds)),
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
