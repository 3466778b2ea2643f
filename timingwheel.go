// Package timingwheel provides timers for programs that hold very many of them: connection
// heartbeats, request timeouts, retries and cache expiry. It implements a hierarchical timing
// wheel. Arming, stopping and postponing a timer take constant time, however many timers are
// pending. An idle wheel has no goroutine.
//
//	tw, err := timingwheel.New(timingwheel.Options{}) // ticks of 1 ms
//	if err != nil {
//		return err
//	}
//	defer tw.Stop()
//
//	timeout := tw.AfterFunc(30*time.Second, func() { conn.Close() })
//	…
//	timeout.Stop() // true: the function has not started and never will
//
// # Choosing a call
//
//   - [TimingWheel.AfterFunc] and [TimingWheel.AtFunc] run a function once. The handle is a
//     [Timer], a small value.
//   - A [FuncTimer] runs a function and can be armed again, like a timer from [time.AfterFunc]. It
//     may be a struct field. [FuncTimer.Touch] is the operation for heartbeats.
//   - [TimingWheel.ScheduleFunc] makes a plan, which runs a function at times set by a [Scheduler]
//     such as [Every] or a schedule from github.com/robfig/cron. Package schedule provides more.
//   - [Timeouts] holds values instead of functions and passes expired values to one function, in
//     batches. Package keyed keeps one timeout per key.
//   - [TimingWheel.After], [TimingWheel.NewChannelTimer] and [TimingWheel.NewTicker] send the time
//     on channels, as in package time. [TimingWheel.Ticks] returns an iterator over ticks, and
//     [TimingWheel.Sleep] takes a context.
//   - [TimingWheel.WithTimeout] and [TimingWheel.WithDeadline] make contexts, as in package
//     context.
//   - A [DelayQueue] is for consumers that take elements at their own pace. It needs no wheel.
//
// Package-level functions such as [AfterFunc] and [NewTicker] use the [Default] wheel, which the
// whole process shares.
//
// # Guarantees
//
// A timer is pending from the call that arms it until the goroutine that runs its callback claims
// it, immediately before the callback starts. Len, Stop, Reschedule and Flush apply to pending
// timers, including those that are already due.
//
//   - Never early: a callback does not start before its deadline on the monotonic clock.
//     [TimingWheel.Flush] is the only exception.
//   - Up to a tick late: a deadline is rounded up to a tick. Unless the machine is overloaded, the
//     callback then starts as soon as the operating system and the Go scheduler have woken a
//     goroutine. Distant deadlines are as precise as near ones.
//   - Exactly once: for each timer, either its callback runs once, Stop returns true, or the wheel
//     is stopped. The results of Stop and Reschedule are exact, even if they race with the expiry.
//   - No lock is held while a callback runs, so a callback may call anything in this package. With
//     the default executor, except in Manual mode, no timer waits for a callback that blocks.
//   - Arming, Stop and Reschedule are O(1) amortised and never wait for a callback.
//   - A panic in a callback crashes the program unless [Options.OnPanic] is set.
//   - The handle to a timer that has ended never affects another timer, even though the wheel
//     reuses the memory.
//
// # Durations and times
//
// A timer with a zero or negative duration, or a time that has passed, is due immediately. A
// duration beyond the clock's range (at most 292 years) never passes. A time with a monotonic
// reading is used as is. A time without one is a wall-clock time. The call that arms the timer
// converts it once, so later wall-clock steps do not move the timer. While a machine is suspended,
// Linux's monotonic clock stops, so timers are late by the length of the suspension. Only plans
// follow the wall clock, and only if their [Scheduler] returns wall-clock times.
//
// # Concurrency
//
// All methods may be called from any goroutine at any time, including from callbacks, unless their
// documentation says otherwise. Timers with the same deadline run in no particular order, except in
// Manual mode with one shard, where they run in the order in which they were armed or rescheduled.
//
// [TimingWheel.Stop] may be called concurrently with any other call. On a stopped wheel nothing can
// be armed, and only Shutdown and StopWait block.
//
// # When not to use it
//
//   - For a handful of timers, use [time.AfterFunc].
//   - For callbacks that must start within a tick of their deadlines, use [time.AfterFunc]. The
//     tick is 1 ms by default and at least 50 µs.
//   - For timers that must outlive the process, use module durable in this repository.
//   - For timers that must react to wall-clock steps in under a minute, compare times with
//     [time.Now]. Plans follow a forward step within a minute: see [Scheduler].
//
// # Testing
//
// A wheel that is made in a testing/synctest bubble uses the bubble's clock. With [Options.Manual]
// a wheel has no goroutine, and a test moves its clock with [TimingWheel.Advance].
//
// # Sources
//
// The algorithm is from Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", 1987. The heap
// of slots, which makes the wheel tickless, is from Apache Kafka. The file docs/semantics.md in the
// repository states the guarantees in full.
package timingwheel

import (
	"context"
	"io"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel/internal/access"
	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
	"github.com/timingwheel-go/timingwheel/internal/survey"
)

// The algorithm, with an example of 8 slots and 3 levels. The defaults are 256 slots and 4 levels.
// docs/levels.svg draws the same numbers, and docs/internals/design.md describes everything else.
//
// Time is counted in ticks. A deadline is rounded up to a tick. A slot covers 1 tick on level 0, 8
// ticks on level 1 and 64 ticks on level 2. Each level has room for 8 intervals, of which the first
// contains the clock. A timer goes to the first level l with
//
//	deadline>>3l - clock>>3l < 8
//
// and there to slot deadline>>3l mod 8. The list of a slot's timers is its bucket. A bucket expires
// when the clock reaches the first tick of its interval.
//
// At tick 5 two timers are placed, with deadlines 213 and 1237.
//
//	213:   level 0 is 213-5 = 208 slots away, level 1 is 26-0 = 26, level 2 is 3-0 = 3.
//	       The timer goes to slot 3 of level 2. The bucket expires at 3*64 = 192.
//	1237:  level 2 is 19-0 = 19 slots away, which is beyond its 8 slots. The last level takes the
//	       timer anyway, in slot 19 mod 8 = 3, which is the same bucket. The timer's own round
//	       begins at 19*64 = 1216. A bucket with timers of several rounds expires with the first.
//
//	clock   what happens
//	  192   The bucket leaves its slot as a whole, and its timers are placed again:
//	        213 goes to level 1 (26-24 = 2 slots away), slot 2, which expires at 26*8 = 208;
//	        1237 goes to slot 3 of level 2 again, into a new bucket, which expires at 1216.
//	  208   213 goes to level 0 (5 slots away), slot 5, which expires at 213.
//	  213   213 runs.
//	 1216   1237 goes to level 1 (154-152 = 2 slots away), slot 2, which expires at 1232.
//	 1232   1237 goes to level 0, slot 5.
//	 1237   1237 runs.
//
// Nothing happens in between. The buckets with timers are in a heap, ordered by expiration. The
// alarm is set for the first bucket. In these 1,232 ticks six buckets expire. The wheel's clock
// moves when a bucket is taken off the heap, for example from 5 to 192 in one step. On an idle
// wheel the clock is set to the current tick before a timer is placed.
//
// No round counter is decremented. The number of rounds that a timer still waits follows from its
// deadline and the clock: (19-3)/8 = 2 for 1237 at tick 208.
//
// A timer is armed before it is placed. Arming writes the timer's word, which holds the deadline,
// the generation and the state, and puts the timer into the inbox of a shard. Most timeouts are
// stopped there and never reach a bucket. One goroutine at a time, the owner, empties the inbox and
// places the remaining timers. A driver, a worker or a caller may be the owner. Callers do not wait
// for the owner.
//
// Stop and Reschedule to a later time change the word by one compare-and-swap and touch no bucket.
// The bucket only determines when the owner looks at the timer next. If the owner then finds a
// later deadline, it places the timer again. Reschedule to an earlier time also puts the timer into
// the inbox.
//
// A bucket that has left its slot is cascading until all its timers have moved or are due. Timers
// that are placed into the slot afterwards open a new bucket there, so a bucket that is being
// emptied never grows.

// TimingWheel is a set of timers that run functions. Make one with [New]. A TimingWheel must not be
// copied.
type TimingWheel struct {
	common

	sleepers sync.Pool // of *ChannelTimer of this wheel
	lasting  access.Timers[Timer]
}

// common has the methods of [TimingWheel] and [Timeouts]. In their documentation a callback of a
// Timeouts is a batch.
type common struct {
	engine *engine
	closed bool // Stop or Shutdown was called; defaultMu guards it
}

func init() {
	access.Of = func(tw any) any { return &tw.(*TimingWheel).lasting }
	survey.Take = func(wheel any) (v survey.Wheel) {
		if w, ok := wheel.(interface{ survey() survey.Wheel }); ok {
			v = w.survey()
		}
		return v
	}
}

// New returns a running wheel. If an option is bad, New returns an error that wraps [ErrOption] and
// names the option, its value and the accepted range. New starts no goroutine. Call
// [TimingWheel.Stop] or [TimingWheel.Shutdown] when the wheel is no longer needed: pending timers
// keep the wheel alive until they fire.
func New(opts Options) (*TimingWheel, error) {
	return newWheelAt(opts, 0)
}

func newWheelAt(opts Options, origin int64) (*TimingWheel, error) {
	j := &job[func()]{run: func(f []func()) { f[0]() }, callee: callee}
	e, err := j.newEngine(opts, origin, 1)
	if err != nil {
		return nil, err
	}
	arm := func(at int64, f func()) Timer {
		return armAndUnlock(e.pickAndLock(), at, clock.Unread, f, arena.Lasting)
	}
	l := access.Timers[Timer]{Clock: &e.config.Timeline, Arm: arm, Cancel: Timer.cancelLasting}
	if opts.Manual {
		l.Held = "Manual"
	} else if opts.Executor != nil {
		l.Held = "Executor"
	}
	return &TimingWheel{common: common{engine: e}, lasting: l}, nil
}

var (
	defaultWheel atomic.Pointer[TimingWheel] // nil before the first use
	defaultMu    sync.Mutex                  // serializes writes of defaultWheel with Stop
)

// mustNotBeDefault panics if w belongs to the wheel of Default.
func (w *common) mustNotBeDefault(method string) {
	if tw := defaultWheel.Load(); tw != nil && w == &tw.common {
		panic("timingwheel: " + method + " of the default wheel, which the whole process shares")
	}
}

// close marks w as stopped, so that SetDefault refuses it. It panics if w belongs to the wheel of
// Default.
func (w *common) close(method string) {
	defaultMu.Lock()
	defer defaultMu.Unlock()
	w.mustNotBeDefault(method)
	w.closed = true
}

// Default returns the wheel that the whole process shares. The first call to Default, or to a
// package-level function such as [AfterFunc], makes the wheel with the zero [Options], unless
// [SetDefault] has already been called. The wheel's Stop, Shutdown and Flush methods panic, because
// other packages rely on the wheel. Do not use Default in a testing/synctest bubble: make a wheel
// in the bubble instead.
func Default() *TimingWheel {
	if tw := defaultWheel.Load(); tw != nil {
		return tw
	}
	return makeDefault()
}

func makeDefault() *TimingWheel {
	defaultMu.Lock()
	defer defaultMu.Unlock()
	if tw := defaultWheel.Load(); tw != nil {
		return tw
	}
	tw, err := New(Options{})
	if err != nil {
		panic(err) // the zero Options are valid
	}
	defaultWheel.Store(tw)
	return tw
}

// SetDefault makes tw the [Default] wheel. Timers that are pending on tw stay pending. Call
// SetDefault at the start of main. SetDefault panics if Default or a package-level function has
// already been used, if SetDefault has already been called, or if tw is nil, Manual or stopped.
// After a panic the default wheel is unchanged.
func SetDefault(tw *TimingWheel) {
	if tw == nil {
		panic("timingwheel: SetDefault with a nil wheel; it must be running")
	}
	if tw.engine.opts.Manual {
		panic("timingwheel: SetDefault with a Manual wheel; it must run by itself")
	}
	defaultMu.Lock()
	defer defaultMu.Unlock()
	if defaultWheel.Load() != nil {
		panic("timingwheel: SetDefault after Default was used or set: call it once, at the start of main, " +
			"before any use of Default and of package-level functions")
	}
	if tw.closed {
		panic("timingwheel: SetDefault with a stopped wheel; it must be running")
	}
	defaultWheel.Store(tw)
}

// AfterFunc runs f once on the [Default] wheel, d from now or up to one tick later. See
// [TimingWheel.AfterFunc].
func AfterFunc(d time.Duration, f func()) Timer { return Default().AfterFunc(d, f) }

// AtFunc runs f once on the [Default] wheel, at t or up to one tick later. See
// [TimingWheel.AtFunc].
func AtFunc(t time.Time, f func()) Timer { return Default().AtFunc(t, f) }

// ScheduleFunc runs f at the times that s plans, on the [Default] wheel. See
// [TimingWheel.ScheduleFunc].
func ScheduleFunc(s Scheduler, f func()) Timer { return Default().ScheduleFunc(s, f) }

// AfterFunc runs f once, d from now or up to one tick later, and never earlier. It returns a handle
// that can stop or reschedule the timer. [Options.Executor] determines which goroutine runs f. If d
// is zero or negative, f starts immediately, on another goroutine and possibly before AfterFunc
// returns. In Manual mode f runs in the next [TimingWheel.Advance] instead. A d beyond the clock's
// range (2^44 ticks, but at most 292 years, from New) never passes.
//
// On a stopped wheel AfterFunc arms nothing and returns the zero Timer. It panics if f is nil or if
// a shard already has 2^29 timers. It is O(1) amortised, never waits for a callback, and usually
// allocates nothing.
func (tw *TimingWheel) AfterFunc(d time.Duration, f func()) Timer {
	if f == nil {
		panic("timingwheel: AfterFunc with a nil function")
	}
	return armAfter(tw.engine, d, f)
}

// AtFunc runs f once, at t or up to one tick later, and never earlier. If t has passed or is the
// zero time, f starts immediately. A t with a monotonic reading is used as is. A t without one,
// such as one from [time.Date], is converted once, so later wall-clock steps do not move the timer.
// In all other respects AtFunc is like [TimingWheel.AfterFunc].
func (tw *TimingWheel) AtFunc(t time.Time, f func()) Timer {
	if f == nil {
		panic("timingwheel: AtFunc with a nil function")
	}
	return armAtTime(tw.engine, t, f)
}

// String describes the wheel in one line, with its name, the number of pending timers and the
// number of levels in use. It costs as much as [TimingWheel.Stats].
func (tw *TimingWheel) String() string { return tw.engine.describe("TimingWheel") }

// Len returns the number of pending timers. Timers that are due count until their callbacks start.
// A plan from [TimingWheel.ScheduleFunc] counts as one timer between its runs and as none during a
// run. On a wheel with several shards the number is exact if no timer changes during the call. On a
// stopped wheel it is 0. Len is O(shards) amortised. It may wait while one of the wheel's
// goroutines moves timers.
func (w *common) Len() int { return w.engine.pending() }

// Stats returns a snapshot of the wheel's figures. On a stopped wheel the counters keep their
// values, and nothing is pending. Stats is O(shards) amortised. Like [TimingWheel.Len], it may wait
// for one of the wheel's goroutines.
func (w *common) Stats() Stats { return w.engine.stats() }

func (w *common) survey() survey.Wheel { return w.engine.survey(quantum) }

// WriteProfile writes a profile of the pending timers, for go tool pprof. Counts are estimates,
// scaled up from a random sample. Each sample has the stack that armed the timer, and the timer's
// age and time to expiry as labels. A timer that is armed, moved or ended during the call may be
// missing. On a stopped wheel the profile is empty. WriteProfile returns an error that wraps
// [ErrOption] if [Options.ProfileRate] is 0, or the writer's error. O(samples).
func (w *common) WriteProfile(to io.Writer) error { return w.engine.writeProfile(to) }

// Flush claims all timers that are pending when it is called, so that their callbacks run now, and
// returns their number. [Timer.Stop] then returns false for them, except for plans. Len no longer
// counts them, and [Stats].Due counts them while they wait for a goroutine. A timer that another
// goroutine arms during the call may be included. Callbacks run in no particular order. Flush does
// not wait for them, except in Manual mode with [Inline], where it runs them. Stopping the wheel
// discards callbacks that have not started. A plan runs once and continues. On a stopped wheel
// Flush returns 0. It panics on the [Default] wheel. O(the wheel's memory).
func (tw *TimingWheel) Flush() int {
	tw.mustNotBeDefault("Flush")
	return tw.engine.flush()
}

// flush is [TimingWheel.Flush]. It claims the timers of all shards before it queues the first one:
// a callback may arm a timer on another shard, and that timer must not be flushed as well.
func (e *engine) flush() (n int) {
	e.funcTimers.flushes.Add(1) // before the claims: a plan whose timer is due may run immediately
	timers := make([][]Timer, len(e.shards))
	for k, s := range e.shards {
		s.owner.mu.Lock()
		claimed, count := s.flush()
		s.unlockAndDrain()
		timers[k] = claimed
		n += count
	}
	for k, s := range e.shards {
		s.alarm.due.Put(timers[k], false)
	}
	if e.opts.Manual {
		e.serveDue()
		return n
	}
	for _, d := range e.dues {
		go d.Wake()
	}
	return n
}

// flush claims all pending timers. It returns their number, and the timers that have to be queued:
// outside Manual mode, those that are due have an entry already (S6). owner.mu is held.
func (s *shard) flush() (timers []Timer, n int) {
	o := &s.owner
	for range 2 { // meanwhile a Reschedule may have moved a timer to the inbox
		if s.closed.Load() {
			return nil, 0
		}
		o.drainAll()
		for t, pg := range s.all {
			w, ok := pg.Change(t.index, arena.Flushed, arena.Placed)
			if !ok {
				continue
			}
			n++
			o.counters.flushed++
			if s.config.Manual != nil || *o.store.pos(t.index) != 0 {
				t.gen = w.Gen()
				timers = append(timers, t)
			}
			o.leaveBucket(t.index)
		}
	}
	return timers, n
}

// Stop stops the wheel and discards its pending timers. Runtime timers take over the deadlines of
// contexts and of package wheelnet's connections. Once Stop has returned, no callback starts,
// except one that a goroutine was about to call. Stop does not wait for callbacks: see
// [TimingWheel.Shutdown]. Afterwards nothing can be armed: calls that return a Timer return the
// zero one, the methods of handles return false, and Len returns 0.
//
// Stop may be called from a callback, more than once, and concurrently with any other call. It
// panics on the [Default] wheel. O(the wheel's memory).
func (w *common) Stop() {
	w.close("Stop")
	w.engine.stop()
}

// Shutdown stops the wheel like [TimingWheel.Stop]. It then waits until no callback and no call to
// Executor.Go is under way, and returns nil. If ctx ends first, Shutdown returns ctx.Err(), and
// callbacks may still be running. A callback that calls Shutdown waits for itself until ctx ends.
// Shutdown may be called more than once. It panics on the [Default] wheel and if ctx is nil.
func (w *common) Shutdown(ctx context.Context) error {
	mustHaveContext(ctx, "Shutdown")
	w.close("Shutdown")
	return w.engine.shutdown(ctx)
}

// Now returns the time on the wheel's clock: the time when [New] was called plus the time since
// then on the monotonic clock. Wall-clock steps do not affect it. In Manual mode Now returns the
// time set by [Options.Start] or by [TimingWheel.Advance]. Now also works on a stopped wheel.
func (w *common) Now() time.Time { return w.engine.config.TimeAt(w.engine.config.Read()) }

// Advance moves the clock of a Manual wheel to now and runs the callbacks that are due, in the
// order of their ticks. If now is before the clock's time, the clock does not move. Advance returns
// the number of callbacks, or of payloads of [Timeouts], that it ran or handed to an [Executor]
// other than [Inline]. Timers that these callbacks arm run in a later Advance, even if they are due
// immediately. A plan runs at most once per call.
//
// If a callback panics or calls runtime.Goexit, the remaining callbacks stay due for the next
// Advance. On a stopped wheel Advance returns 0 and does not move the clock. Advance panics if the
// wheel is not Manual or if another Advance is under way, for example if a callback calls Advance.
func (w *common) Advance(now time.Time) int { return w.engine.advanceTo(now) }

// Next returns the time at which the wheel must next look at its timers. That time is not later
// than the earliest deadline, rounded up to a tick. It may be earlier, because timers are moved
// between levels, and may have passed if a timer is due. Next returns false if no timer is pending
// or the wheel is stopped. A program that drives a Manual wheel waits until this time and then
// calls [TimingWheel.Advance]. Next is O(shards) amortised. Like [TimingWheel.Len], it may wait for
// one of the wheel's goroutines.
func (w *common) Next() (time.Time, bool) { return w.engine.next() }
