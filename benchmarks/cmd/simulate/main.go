// Command simulate plays a trace of connections with idle timeouts on the timing wheel, once for
// each choice of tick, slots, levels and shards, and prints a table of the cost of each: memory,
// moves between levels, wake-ups and CPU time.
//
//	go -C benchmarks run ./cmd/simulate
//	go -C benchmarks run ./cmd/simulate -conns 10000000 -markdown
//	go -C benchmarks run ./cmd/simulate -choices 1ms/256/4,10ms/256/4/8
//
// Time is virtual (Manual mode), so figures other than CPU time are the same on every machine. The
// exit code is 1 if a due timer did not expire or another one did, and 2 for invalid options.
// Ctrl-C ends the program and prints the results so far.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/command"
	"github.com/timingwheel-go/timingwheel/benchmarks/simulation"
)

const (
	exitOK = iota
	exitFailed
	exitUsage
)

func main() { command.Main(simulate) }

// simulate runs the program and returns its exit code.
func simulate(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, ok, err := parse(args, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "simulate: %v\nSee simulate -help.\n", err)
		return exitUsage
	}
	if !ok { // printed the help text
		return exitOK
	}
	out, err := run(ctx, cfg, newDisplay(stderr))
	if err != nil {
		fmt.Fprintf(stderr, "simulate: %v\n", err)
		return exitFailed
	}
	out.print(stdout, cfg)
	if out.faults > 0 {
		return exitFailed
	}
	return exitOK
}

// outcome has the results of a run.
type outcome struct {
	results     []simulation.Result
	traceOnly   time.Duration // CPU time of the trace without a wheel
	interrupted string        // the part that was interrupted, or ""
	faults      int           // choices with a fault
}

// run plays the trace without a wheel and then on a wheel of each choice.
func run(ctx context.Context, cfg config, show display) (outcome, error) {
	var out outcome
	show.begin(len(cfg.choices) + 1)
	defer show.end()
	show.next("the trace without a wheel")
	took, err := simulation.TraceOnly(ctx, cfg.trace)
	if errors.Is(err, context.Canceled) {
		out.interrupted = "the trace without a wheel"
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.traceOnly = took
	for _, choice := range cfg.choices {
		show.next(choice.String())
		runtime.GC() // the garbage of the previous choice
		r, err := simulation.Run(ctx, cfg.trace, cfg.timeout, choice, show.update)
		if errors.Is(err, context.Canceled) {
			out.interrupted = choice.String()
			return out, nil
		}
		if err != nil {
			return out, fmt.Errorf("%v: %w", choice, err)
		}
		out.add(r)
	}
	return out, nil
}

// add appends a result. A trace that differs from the first result's is a fault.
func (o *outcome) add(r simulation.Result) {
	if len(o.results) > 0 && r.Counts.Sum != o.results[0].Counts.Sum {
		r.Verdict.Faults = append(r.Verdict.Faults, fmt.Sprintf("different trace: checksum %x, not %x", r.Counts.Sum, o.results[0].Counts.Sum))
	}
	if len(r.Verdict.Faults) > 0 {
		o.faults++
	}
	o.results = append(o.results, r)
}
