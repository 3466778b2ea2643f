// Package simulation plays a trace of connections on the timing wheel in Manual mode, in virtual
// time, and measures the cost of a choice of options: memory, moves between levels, wake-ups and
// CPU time.
//
// Each connection has an idle timer. A heartbeat resets the timer, closing stops it, and it fires
// after the connection has fallen silent. Next and Advance drive the clock as in an event loop, so
// each Advance to a time that Next returned is one wake-up of the alarm of a running wheel. The
// simulation checks that exactly the timers of silent connections expire: once each, never early,
// and less than a tick late.
package simulation

import (
	"context"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/benchmarks/trace"
)

// Choice is a choice of options. Levels 0 is the default. Each shard has its own clock here, as it
// has its own alarm in a running wheel.
type Choice struct {
	Tick      time.Duration
	WheelSize int
	Levels    int
	Shards    int
}

// Span returns the time that all levels cover. Timers beyond it wait for several rounds.
func (c Choice) Span() time.Duration {
	span := c.Tick
	for range c.Levels {
		if span > 1<<62/time.Duration(c.WheelSize) {
			return 1<<63 - 1
		}
		span *= time.Duration(c.WheelSize)
	}
	return span
}

func (c Choice) String() string {
	return fmt.Sprintf("%v/%d/%d/%d", c.Tick, c.WheelSize, c.Levels, c.Shards)
}

// Result has the figures of one run.
type Result struct {
	Choice Choice
	Counts trace.Counts
	For    time.Duration // virtual

	Peak    int     // largest number of pending timers
	Bytes   uint64  // largest memory
	PerPeak float64 // bytes for each pending timer at the peak, without the 8 of Manual mode
	Moved   uint64  // moves to a finer level
	Wakeups int     // times that the clock moved to a time from Next
	Idle    int     // wake-ups at which no timer expired

	Advance time.Duration // CPU time of these calls to Advance
	Events  time.Duration // CPU time of the events, the trace itself included

	Verdict Verdict
}

// Run plays the trace on a wheel with these options. It calls progress after each virtual second
// with the completed share. If ctx is done first, Run returns its error.
func Run(ctx context.Context, cfg trace.Config, timeout time.Duration, choice Choice, progress func(share float64)) (Result, error) {
	r := &run{
		trace: trace.New(cfg), end: int64(cfg.For), timeout: int64(timeout), tick: int64(choice.Tick), progress: progress,
		result: Result{Choice: choice, For: cfg.For},
	}
	for range choice.Shards {
		w, err := timingwheel.NewTimeouts(timingwheel.Options{
			Manual: true, Start: epoch, Tick: choice.Tick, WheelSize: choice.WheelSize, Levels: choice.Levels,
		}, r.expire)
		if err != nil {
			return Result{}, err
		}
		defer w.Stop()
		r.shards = append(r.shards, w)
	}
	defer r.stopwatch.start()()
	if err := r.trace.Run(ctx, r); err != nil {
		return Result{}, err
	}
	return r.finish(), nil
}

// TraceOnly plays the trace without a wheel and returns the CPU time.
func TraceOnly(ctx context.Context, cfg trace.Config) (time.Duration, error) {
	t := trace.New(cfg)
	var watch stopwatch
	defer watch.start()()
	err := t.Run(ctx, noTimers{t})
	return watch.lap(), err
}

// noTimers handles a trace without timers.
type noTimers struct{ *trace.Trace }

func (noTimers) Turn(int64)                      {}
func (noTimers) Arrive(uint32, uint32, int64)    {}
func (noTimers) Beat(uint32, int64)              {}
func (noTimers) Leave(uint32, int64)             {}
func (n noTimers) Silence(slot uint32, at int64) { n.Release(slot) }

// epoch is the beginning of virtual time.
var epoch = time.Unix(0, 0)

// manualBytes is the additional memory of a timer in Manual mode, for the order of arming.
const manualBytes = 8

// timer is the idle timer of a connection.
type timer struct {
	handle   timingwheel.Timer
	deadline int64
	silent   bool
}

// run handles one trace with one choice of options.
type run struct {
	trace    *trace.Trace
	shards   []*timingwheel.Timeouts[uint64]
	timers   []timer // by slot
	check    check
	result   Result
	progress func(float64)

	timeout, tick, end int64
	now                int64 // clock of the wheels
	stopwatch          stopwatch
}

// Turn moves the clocks to the beginning of a turn, and stops at each time at which a wheel
// wakes.
func (r *run) Turn(now int64) {
	r.advance(now)
	if now%int64(time.Second) == 0 {
		r.sample()
		r.progress(float64(now) / float64(r.end))
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
		w.Advance(epoch.Add(time.Duration(now))) // nothing is due; only the clock moves
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

// Beat postpones the timer.
func (r *run) Beat(slot uint32, at int64) {
	t := &r.timers[slot]
	t.deadline = at + r.timeout
	if !t.handle.Reschedule(time.Duration(t.deadline - r.now)) {
		r.check.lost++
	}
}

// Leave stops the timer.
func (r *run) Leave(slot uint32, _ int64) {
	if !r.timers[slot].handle.Stop() {
		r.check.lost++
	}
}

// Silence lets the timer expire.
func (r *run) Silence(slot uint32, _ int64) {
	t := &r.timers[slot]
	t.silent = true
	if due := (t.deadline + r.tick - 1) / r.tick * r.tick; due <= r.end {
		r.check.expect(r.trace.Number(slot))
	}
}

// expire is the callback of the wheels.
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

// sample reads the memory and the number of timers.
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

// finish moves the clocks to the end and returns the result.
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
	r.result.Verdict = r.check.verdict(r.result.Counts, pending)
	return r.result
}
