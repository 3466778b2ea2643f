package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
	"github.com/timingwheel-go/timingwheel/examples/internal/processor"
)

// pace is what determines the speed of a phase.
type pace uint8

const (
	busy    pace = iota // the time of its operations
	clocked             // the clock: timers expire when they are due
	idle                // a wait without operations
)

// phase is one kind of operation, repeated by several goroutines.
type phase struct {
	name     string
	pace     pace
	total    int
	done     atomic.Int64
	parallel int // number of parallel operations
	started  time.Time
	ended    bool
	took     time.Duration // after its end
	cpu      time.Duration // CPU time of the process; 0: unknown
	pauses   pauses
	bytes    float64 // for each timer at the end; 0: not measured

	detail func() string // further text for the display; may be nil
}

// chunk is the number of operations between two checks of the context.
const chunk = 4096

// each calls do for all items of each worker, in chunks. sizes has the number of items of each
// worker. each returns early if ctx is done.
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

// elapsed returns the time of the phase until now or until its end.
func (ph *phase) elapsed() time.Duration {
	if ph.ended {
		return ph.took
	}
	return time.Since(ph.started)
}

// nanos returns the time of one operation in ns, including the wait for a processor.
func (ph *phase) nanos() float64 {
	done := ph.done.Load()
	if done == 0 {
		return 0
	}
	return float64(ph.elapsed()) * float64(ph.parallel) / float64(done)
}

// cpuNanos returns the CPU time of one operation in ns.
func (ph *phase) cpuNanos() float64 {
	if done := ph.done.Load(); done > 0 {
		return float64(ph.cpu) / float64(done)
	}
	return 0
}

// line returns a line of text about the phase. It usually fits in 80 columns.
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

// rate returns the number of operations per second.
func (ph *phase) rate() float64 {
	if s := ph.elapsed().Seconds(); s > 0 {
		return float64(ph.done.Load()) / s
	}
	return 0
}

// newPhase begins a phase.
func (r *runner) newPhase(name string, pace pace, total int) *phase {
	r.gc.since() // pauses before this phase do not count
	return &phase{name: name, pace: pace, total: total, parallel: r.cfg.parallel(), started: time.Now(), cpu: processor.Time()}
}

// finish ends a phase.
func (r *runner) finish(ph *phase) {
	ph.took, ph.ended = time.Since(ph.started), true
	ph.cpu = processor.Time() - ph.cpu
	r.sample(ph)
}

// sample reads figures that the runtime forgets, and the largest memory.
func (r *runner) sample(ph *phase) {
	ph.pauses.merge(r.gc.since())
	r.out.peak = max(r.out.peak, memoryHeld())
}

// runPhase runs the work of a phase and shows its progress. During the work other goroutines only
// read the atomic counter of the phase.
func (r *runner) runPhase(ph *phase, work func()) {
	if r.ctx.Err() != nil {
		return
	}
	r.show.begin(ph)
	done := make(chan struct{})
	go func() {
		defer close(done)
		work()
	}()
	tick := time.NewTicker(r.show.every())
	defer tick.Stop()
	for working := true; working; {
		select {
		case <-tick.C:
			r.sample(ph)
			r.show.update(ph, ph.line())
		case <-done:
			working = false
		}
	}
	r.finish(ph)
	r.show.end(ph, ph.line())
}
