package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
)

// pace is what a phase's speed depends on.
type pace uint8

const (
	busy    pace = iota // on how quick its operations are
	clocked             // its operations on the clock: timers expire when they are due
	idle                // there are no operations, time passes
)

// phase is one kind of operation, done very many times by several goroutines.
type phase struct {
	name     string
	pace     pace
	total    int
	done     atomic.Int64
	parallel int // how many operations run at a time
	started  time.Time
	ended    bool
	took     time.Duration // once it has ended
	cpu      time.Duration // of the process meanwhile; 0 where the system does not tell
	pauses   pauses        // meanwhile
	bytes    float64       // for each timer at the end; 0: not measured

	detail func() string // what else the display shows; may be nil
}

// chunk is how many operations are done between two looks at the context.
const chunk = 4096

// each has every worker do its items in chunks; sizes tells how many items a worker has. It returns
// early if ctx ends.
func (ph *phase) each(ctx context.Context, sizes []int, do func(worker, from, to int)) {
	var working sync.WaitGroup
	for w, size := range sizes {
		working.Go(func() {
			for from := 0; from < size && ctx.Err() == nil; from += chunk {
				to := min(from+chunk, size)
				do(w, from, to)
				ph.done.Add(int64(to - from))
			}
		})
	}
	working.Wait()
}

// elapsed is how long the phase takes or took.
func (ph *phase) elapsed() time.Duration {
	if ph.ended {
		return ph.took
	}
	return time.Since(ph.started)
}

// nanos is how long one operation takes, waiting for its turn included.
func (ph *phase) nanos() float64 {
	done := ph.done.Load()
	if done == 0 {
		return 0
	}
	return float64(ph.elapsed()) * float64(ph.parallel) / float64(done)
}

// cpuNanos is the time of processors that one operation took.
func (ph *phase) cpuNanos() float64 {
	if done := ph.done.Load(); done > 0 {
		return float64(ph.cpu) / float64(done)
	}
	return 0
}

// line is the phase as text. It fits into a terminal of 80 columns as a rule.
func (ph *phase) line() string {
	s := ph.name
	switch n := figures.Comma(int(ph.done.Load())); ph.pace {
	case busy:
		s += fmt.Sprintf(" %s  %.0f ns", n, ph.nanos())
	case clocked:
		s += fmt.Sprintf(" %s  %.2f M/s", n, ph.rate()/1e6)
	case idle:
		s += fmt.Sprintf(" %.1fs", ph.elapsed().Seconds())
	}
	if ph.detail != nil {
		s += "  " + ph.detail()
	}
	if ph.pauses.collections > 0 {
		s += fmt.Sprintf("  %d GC, pause up to %s", ph.pauses.collections, figures.Millis(ph.pauses.longest))
	}
	return s
}

// rate is how many operations are done in a second.
func (ph *phase) rate() float64 {
	if s := ph.elapsed().Seconds(); s > 0 {
		return float64(ph.done.Load()) / s
	}
	return 0
}
