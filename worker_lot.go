package timingwheel

import (
	"math/rand/v2"
	"time"
)

// takeLot reports whether there is a lot to be run.
func (w *worker[T]) takeLot() bool {
	s := w.s
	s.recallIdleLots()
	if w.lot == nil {
		w.lot, s.spareLot = s.spareLot, nil
	}
	if w.lot == nil {
		w.lot = new(lot)
	}
	n := s.fillLot(w.lot, s.lotSize)
	if n == 0 {
		return false
	}
	w.unmoved += n
	w.planSample(n)
	s.running++
	w.busy, w.holding = true, true
	return true
}

// planSample chooses which claim of the lot tells its lateness, if one does: the first of a worker, and later
// any, as those that come late in a lot are later.
func (w *worker[T]) planSample(n int) {
	s := w.s
	first := w.unread == 0
	w.sampleAt, w.sampledAt = -1, -1
	if !w.reads(n) {
		return
	}
	w.sampleAt = 0
	if !first {
		w.sampleAt = rand.IntN(n)
	}
	w.sampleDue = s.nodes.must(s.chunks.entries(w.lot.b.head)[w.sampleAt]).due()
}

// runLot claims and runs the lot without the shard's lock, which is held before and after.
func (w *worker[T]) runLot() {
	s := w.s
	if cap(w.buffer) == 0 {
		w.buffer = make([]T, 0, 1)
	}
	batch := w.buffer[:1]
	item, _ := any(&batch[0]).(*func()) // lots are of callbacks
	w.leave()
	for k, f := w.lot.claim(); f != nil; k, f = w.lot.claim() {
		if k == w.sampleAt {
			w.sampledAt = s.clock()
		}
		*item = f
		w.exec(batch)
	}
	s.lock()
	w.unlocked = false
	w.finish(batch)
}

// finishLot notes that the worker is done with its lot, or has left it within a callback.
func (w *worker[T]) finishLot() {
	if !w.holding {
		return
	}
	w.holding = false
	w.s.returnLot(w.lot)
	switch {
	case w.sampleAt < 0:
	case w.sampledAt < 0: // it was stopped, or recalled
		w.unread = 16
	default:
		w.s.observe(w.sampledAt)
		w.s.counters.lateness.record(time.Duration(w.sampledAt - w.sampleDue))
	}
}

// keepLot leaves the lot to another worker. One that may block has none, so that what blocks holds no memory.
func (w *worker[T]) keepLot() {
	l, s := w.lot, w.s
	if l == nil || s.stopped {
		return
	}
	if l.b != nil {
		s.freeBucket(l.b)
		l.b = nil
	}
	w.lot, s.spareLot = nil, l
}
