package simulation

import (
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/benchmarks/trace"
)

// epoch is when the virtual clock begins.
var epoch = time.Unix(0, 0)

// manualBytes is what a timer holds in Manual mode only: its number in the order of arming.
const manualBytes = 8

// timer is the idle timer of the connection in a slot.
type timer struct {
	handle   timingwheel.Timer
	deadline int64
	silent   bool
}

// run is one trace on one choice of options: the trace's handler.
type run struct {
	trace  *trace.Trace
	shards []*timingwheel.Timeouts[uint64]
	timers []timer // by slot
	check  check
	result Result
	tell   func(float64)

	timeout, tick, end int64
	now                int64 // where the wheels' clocks stand
	stopwatch          stopwatch
}

// Turn moves the clocks to the beginning of a turn, stopping wherever a wheel wants to be woken.
func (r *run) Turn(now int64) {
	r.advance(now)
	if now%int64(time.Second) == 0 {
		r.sample()
		r.tell(float64(now) / float64(r.end))
	}
}

func (r *run) advance(now int64) {
	woken := false
	for _, w := range r.shards {
		for at, ok := w.Next(); ok && at.Sub(epoch) <= time.Duration(now); at, ok = w.Next() {
			if !woken {
				woken = true
				r.result.Events += r.stopwatch.lap()
			}
			r.now = int64(at.Sub(epoch))
			r.result.Wakeups++
			if w.Advance(at) == 0 {
				r.result.Idle++
			}
		}
		w.Advance(epoch.Add(time.Duration(now))) // nothing is due: it only tells the time
	}
	r.now = now
	if woken {
		r.result.Advance += r.stopwatch.lap()
	}
}

// Arrive arms the idle timer of a new connection.
func (r *run) Arrive(slot, number uint32, at int64) {
	for int(slot) >= len(r.timers) {
		r.timers = append(r.timers, timer{})
	}
	w := r.shards[int(number)%len(r.shards)]
	deadline := at + r.timeout
	handle := w.Add(time.Duration(deadline-r.now), uint64(number)<<32|uint64(slot))
	r.timers[slot] = timer{handle: handle, deadline: deadline}
}

// Beat postpones it.
func (r *run) Beat(slot uint32, at int64) {
	t := &r.timers[slot]
	t.deadline = at + r.timeout
	if !t.handle.Reschedule(time.Duration(t.deadline - r.now)) {
		r.check.lost++
	}
}

// Leave stops it.
func (r *run) Leave(slot uint32, _ int64) {
	if !r.timers[slot].handle.Stop() {
		r.check.lost++
	}
}

// Silence leaves it to itself.
func (r *run) Silence(slot uint32, _ int64) {
	t := &r.timers[slot]
	t.silent = true
	if due := (t.deadline + r.tick - 1) / r.tick * r.tick; due <= r.end {
		r.check.expect(r.trace.Number(slot))
	}
}

// expire is what the wheel calls.
func (r *run) expire(payloads []uint64) {
	for _, v := range payloads {
		slot, number := uint32(v), uint32(v>>32)
		t := &r.timers[slot]
		r.check.expired(number, r.now-t.deadline, r.tick, t.silent && r.trace.Number(slot) == number)
		if t.silent {
			t.silent = false
			r.trace.Release(slot)
		}
	}
}

// sample looks at memory and at the number of timers.
func (r *run) sample() {
	pending, bytes := 0, uint64(0)
	for _, w := range r.shards {
		st := w.Stats()
		pending += st.Pending
		bytes += st.Bytes
	}
	if pending > r.result.Peak {
		r.result.Peak = pending
		r.result.PerPeak = float64(bytes)/float64(pending) - manualBytes
	}
	r.result.Bytes = max(r.result.Bytes, bytes)
}

// finish plays what is due at the very end and sums up.
func (r *run) finish() Result {
	r.advance(r.end)
	r.sample()
	r.result.Events += r.stopwatch.lap()
	r.result.Counts = r.trace.Counts()
	pending := 0
	for _, w := range r.shards {
		st := w.Stats()
		r.result.Moved += st.Moved
		pending += st.Pending
	}
	r.result.Verdict = r.check.judge(r.result.Counts, pending)
	return r.result
}
