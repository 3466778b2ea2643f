package timingwheel

import (
	"context"
	"sync"
	"time"
)

// The algorithm, once, on a wheel of 8 slots and 3 levels. The defaults are 256 slots and 4 levels.
// docs/levels.svg shows the same numbers, and docs/design.md describes everything else.
//
// Time is counted in ticks. A deadline is rounded up to a tick. A slot of level 0 stands for 1
// tick, of level 1 for 8 ticks, of level 2 for 64. Each level has room for the 8 intervals that
// begin with the interval of the clock. A timer goes to the first level l with
//
//	deadline>>3l - clock>>3l < 8
//
// and there to slot deadline>>3l mod 8. The list of timers of a slot is its bucket. A bucket
// expires when the clock reaches the first tick of its interval.
//
// At tick 5 two timers are placed, for the ticks 213 and 1237.
//
//	213:   level 0 is 213-5 = 208 slots away, level 1 is 26-0 = 26, level 2 is 3-0 = 3.
//	       The timer goes to slot 3 of level 2. The bucket expires at 3*64 = 192.
//	1237:  level 2 is 19-0 = 19 slots away, too far even there. The last level takes it anyway,
//	       in slot 19 mod 8 = 3, which is the same bucket. The timer's own round comes at
//	       19*64 = 1216. A bucket with timers of several rounds expires with the earliest round.
//
//	clock   what happens
//	  192   The bucket leaves its slot as a whole, and its timers are placed anew:
//	        213 goes to level 1 (26-24 = 2 slots away), slot 2, which expires at 26*8 = 208;
//	        1237 goes to slot 3 of level 2 again, into a new bucket, which expires at 1216.
//	  208   213 goes to level 0 (5 slots away), slot 5, which expires at 213.
//	  213   213 runs.
//	 1216   1237 goes to level 1 (154-152 = 2 slots away), slot 2, which expires at 1232.
//	 1232   1237 goes to level 0, slot 5.
//	 1237   1237 runs.
//
// Nothing happens in between. The buckets with timers stand in a heap, ordered by expiration, and
// one timer of the runtime, the alarm, is set for the first bucket. These 1,232 ticks take six
// wake-ups. The wheel's clock moves when a bucket is taken off the heap, for example from 5 to 192
// at once. On an idle wheel the clock is brought up to the present before a timer is placed.
//
// Rounds are not counted down. The number of rounds that a timer still waits follows from its
// deadline and the clock: (19-3)/8 = 2 for 1237 at tick 208.
//
// A timer is armed before it is placed. Arming writes the timer's word, which holds the deadline,
// the generation and the state, and puts the timer into the inbox of a shard. Most timeouts are
// stopped there and never reach a bucket. One goroutine at a time, the owner, empties the inbox and
// places what is left. A driver, a worker or a caller may be the owner; callers do not wait for the
// owner.
//
// Stop and Reschedule to a later time change the word by one compare-and-swap and touch no bucket.
// The bucket only says when the owner looks at the timer next. If the owner then finds a later
// deadline, it places the timer anew. Reschedule to an earlier time also puts the timer into the
// inbox.
//
// A bucket that has left its slot is cascading if its timers have to move, or due if they wait to
// be claimed. Timers for its slot that are placed afterwards open a new bucket there, so emptying a
// bucket never adds to it.

// TimingWheel is a set of timers. Make one with [New]. All methods may be called at any time from
// any goroutine, callbacks included, unless they say otherwise.
type TimingWheel struct {
	engine *engine[func()]
	shared bool // the wheel of Default

	sleepers sync.Pool // of *sleeper; one for each wheel, because a channel belongs to its bubble
}

// New returns a running wheel, or an error that wraps [ErrOption] and names the option, its value
// and the accepted range. The wheel needs no start. While no timer is pending it has no goroutine,
// and it can be collected without Stop.
func New(opts Options) (*TimingWheel, error) {
	return newWheelAt(opts, 0)
}

func newWheelAt(opts Options, origin int64) (*TimingWheel, error) {
	e, err := newEngine(opts, origin, job[func()]{
		perCall: 1,
		run:     func(f []func()) { f[0]() },
		callee:  func(f []func()) uintptr { return callee(f[0]) },
		survive: func(f func()) func() {
			if outlivesStop(f) {
				return f
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	return &TimingWheel{engine: e}, nil
}

// defaultWheel is made on first use.
var defaultWheel = sync.OnceValue(func() *TimingWheel {
	tw, err := New(Options{})
	if err != nil {
		panic(err) // the zero Options are valid
	}
	tw.shared = true
	return tw
})

// Default returns the wheel of the process, which is made on first use. Its Stop, Shutdown and
// Flush panic, because other parts of the program rely on it. It is for use outside
// testing/synctest bubbles.
func Default() *TimingWheel { return defaultWheel() }

// AfterFunc calls [TimingWheel.AfterFunc] on [Default].
func AfterFunc(d time.Duration, f func()) Timer { return Default().AfterFunc(d, f) }

// AtFunc calls [TimingWheel.AtFunc] on [Default].
func AtFunc(t time.Time, f func()) Timer { return Default().AtFunc(t, f) }

// ScheduleFunc calls [TimingWheel.ScheduleFunc] on [Default].
func ScheduleFunc(s Scheduler, f func()) Timer { return Default().ScheduleFunc(s, f) }

// AfterFunc runs f once, d from now or up to one tick later, never earlier. A zero or negative d
// means at once. A timer whose d is beyond the range of the clock never fires. [Options.Executor]
// decides where f runs. The returned handle stops or moves the timer. On a stopped wheel AfterFunc
// returns the zero Timer, and f never runs.
//
// AfterFunc panics if f is nil, or if a shard is full (2^29 timers). It does not wait for callbacks
// or for a mass expiry. It allocates nothing, except for a page of memory now and then, and for a
// deadline more than 2^33 ticks ahead. O(1) amortised, and O(log buckets) for the first timer of a
// bucket.
func (tw *TimingWheel) AfterFunc(d time.Duration, f func()) Timer {
	if f == nil {
		panic("timingwheel: AfterFunc of a nil function")
	}
	return tw.engine.after(d, f)
}

// AtFunc is AfterFunc for a point in time. A time that has passed means at once. A time with a
// monotonic reading is used as it is. A time without one is a date on the wall clock: AtFunc takes
// the time that remains until then, and later steps of the wall clock do not move the timer.
func (tw *TimingWheel) AtFunc(t time.Time, f func()) Timer {
	if f == nil {
		panic("timingwheel: AtFunc of a nil function")
	}
	return tw.engine.at(t, f)
}

// String returns the name of the wheel and the numbers of pending timers and of levels in use. It
// costs as much as [TimingWheel.Stats].
func (tw *TimingWheel) String() string { return tw.engine.describe("TimingWheel") }

// Len returns the number of pending timers, which are armed and neither claimed nor stopped. Over
// several shards it is exact if no timer changes meanwhile. Len places what was just armed and may
// wait for a driver or worker. O(shards), amortised over arms and stops.
func (tw *TimingWheel) Len() int { return tw.engine.pending() }

// Stats returns a snapshot of the wheel's counters. Like Len it may wait for a driver or worker.
// O(shards), amortised over arms and stops.
func (tw *TimingWheel) Stats() Stats { return tw.engine.stats() }

// Flush makes every callback that is pending at the call due now, whatever its deadline, and
// returns their number. Flush does not wait for the callbacks. A timer still counts as pending, and
// can be stopped or rescheduled, until its callback is claimed. A plan runs once and goes on. In
// Manual mode with Inline the callbacks run before Flush returns. Flush may wait for a driver or
// worker. It returns 0 on a stopped wheel, and panics on [Default]. O(pending timers).
func (tw *TimingWheel) Flush() int {
	tw.mustOwn("Flush")
	return tw.engine.flush()
}

// Stop stops the wheel and discards what is pending, except for the deadlines of contexts, which the
// runtime's timers keep. Callbacks that have started go on, and no callback starts once Stop has
// returned. Handles stay valid and inert, and every later call
// returns at once with its documented result. Stop may wait for a driver or worker, and for no
// callback. It is idempotent. It panics on [Default]. O(pending timers).
func (tw *TimingWheel) Stop() {
	tw.mustOwn("Stop")
	tw.engine.stop()
}

// Shutdown is Stop and then waits for the callbacks that have started, for calls of Executor.Go,
// and for calls of Options.OnSlow. It returns nil when none runs any more, or ctx's error if ctx
// ends first. A callback or an OnSlow that calls Shutdown waits for itself. Shutdown may be called
// again, also after Stop. It panics on [Default] and if ctx is nil, and the wheel then goes on.
func (tw *TimingWheel) Shutdown(ctx context.Context) error {
	tw.mustOwn("Shutdown")
	mustHaveContext(ctx)
	return tw.engine.shutdown(ctx)
}

func (tw *TimingWheel) mustOwn(method string) {
	if tw.shared {
		panic("timingwheel: " + method + " of the default wheel, which belongs to the whole process")
	}
}

// today returns the present for plans, contexts and channels. Outside Manual mode it reads both
// clocks anew, because a plan may be one of dates and the wall clock may have been set since New.
func (tw *TimingWheel) today() time.Time {
	if tw.engine.Manual {
		return tw.Now()
	}
	return tw.engine.Date()
}

// Now returns the time on the wheel's own clock. It is the current time, which steps of the wall
// clock since New do not move, or in Manual mode the time of the last Advance.
func (tw *TimingWheel) Now() time.Time { return tw.engine.clockTime() }

// Advance moves the clock of a Manual wheel to now, never back. It then runs what is due, in order
// of ticks, and returns how many callbacks it claimed, or handed over to an Executor other than
// Inline. In one shard, timers of one tick run in the order in which they were armed, and a
// Reschedule counts as arming. Timers that these callbacks arm run in a later Advance, however soon
// they are due.
//
// A callback that panics or calls runtime.Goexit unwinds to the caller, and the other due callbacks
// stay due for the next Advance. Advance panics if the wheel is not Manual, and while another
// Advance of the wheel is under way, in a callback or on another goroutine.
func (tw *TimingWheel) Advance(now time.Time) int { return tw.engine.advanceTo(now) }

// Next returns the time at which the wheel has to look at its timers next, and false if no timer is
// pending. The time is never later than the earliest deadline rounded up to a tick, or the current
// tick if that deadline has passed. The time may be earlier, because timers may have to be moved
// between wheels, or were stopped or postponed since. Like Len, Next may wait for a driver or
// worker. O(shards) amortised.
func (tw *TimingWheel) Next() (time.Time, bool) { return tw.engine.next() }
