package main

import (
	"time"

	"github.com/timingwheel-go/timingwheel/examples/internal/processor"
)

// newPhase begins a phase.
func (r *runner) newPhase(name string, pace pace, total int) *phase {
	r.gc.since() // what came before is not of this phase
	return &phase{name: name, pace: pace, total: total, parallel: r.cfg.parallel(), started: time.Now(), cpu: processor.Time()}
}

// finish ends a phase.
func (r *runner) finish(ph *phase) {
	ph.took, ph.ended = time.Since(ph.started), true
	ph.cpu = processor.Time() - ph.cpu
	r.look(ph)
}

// look takes the figures that are not counted anywhere else: what the runtime forgets, and the
// highest.
func (r *runner) look(ph *phase) {
	ph.pauses.merge(r.gc.since())
	r.out.peak, r.out.peakSampled = max(r.out.peak, held()), true
}

// watched does a phase's work and shows how it goes. Nothing else looks at the phase meanwhile but
// through its atomic count.
func (r *runner) watched(ph *phase, work func()) {
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
			r.look(ph)
			r.show.update(ph, ph.line())
		case <-done:
			working = false
		}
	}
	r.finish(ph)
	r.show.end(ph, ph.line())
}
