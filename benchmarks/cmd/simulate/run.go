package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/simulation"
)

// outcome is what was measured.
type outcome struct {
	results []simulation.Result
	alone   time.Duration // processor time of the trace without a wheel
	cut     string        // what an interruption cut short; empty: nothing
	faults  int           // choices with a fault
}

// run plays the trace without a wheel, and then on a wheel of each choice.
func run(ctx context.Context, cfg config, show display) (outcome, error) {
	var out outcome
	show.begin(len(cfg.choices) + 1)
	defer show.end()
	show.next("the trace alone")
	alone, err := simulation.Alone(ctx, cfg.trace)
	if errors.Is(err, context.Canceled) {
		out.cut = "the trace alone"
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.alone = alone
	for _, choice := range cfg.choices {
		show.next(choice.String())
		runtime.GC() // what the choice before has left
		r, err := simulation.Run(ctx, cfg.trace, cfg.timeout, choice, show.update)
		if errors.Is(err, context.Canceled) {
			out.cut = choice.String()
			return out, nil
		}
		if err != nil {
			return out, fmt.Errorf("%v: %w", choice, err)
		}
		out.add(r)
	}
	return out, nil
}

// add appends a result. The trace must be the same as in the results before.
func (o *outcome) add(r simulation.Result) {
	if len(o.results) > 0 && r.Counts.Sum != o.results[0].Counts.Sum {
		r.Verdict.Faults = append(r.Verdict.Faults, fmt.Sprintf("another trace: checksum %x, not %x", r.Counts.Sum, o.results[0].Counts.Sum))
	}
	if len(r.Verdict.Faults) > 0 {
		o.faults++
	}
	o.results = append(o.results, r)
}
