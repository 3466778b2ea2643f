package timingwheel

import (
	"context"
	"sync"
	"time"
)

// The algorithm, once, on a wheel of 8 slots and 3 levels. (The defaults are 256 slots and 4 levels;
// docs/levels.svg shows the same numbers, docs/design.md has all the rest.)
//
// Time is counted in ticks; a deadline is rounded up to one. A slot of level 0 stands for 1 tick, of
// level 1 for 8, of level 2 for 64. Each level has room for the 8 intervals that begin with the one in
// which the clock is, so a timer goes to the first level l with
//
//	deadline>>3l - clock>>3l < 8
//
// and there to slot deadline>>3l mod 8. What stands in a slot is its bucket. It expires when the clock
// reaches the first tick of its interval.
//
// At tick 5 two timers are armed, for the ticks 213 and 1237.
//
//	213:   level 0 is 213-5 = 208 slots away, level 1 is 26-0 = 26, level 2 is 3-0 = 3.
//	       So level 2, slot 3. The bucket expires at 3*64 = 192.
//	1237:  level 2 is 19-0 = 19 slots away, too far even there. The last level takes what is left:
//	       slot 19 mod 8 = 3, the same bucket. Its own round would come at 19*64 = 1216; a bucket with
//	       timers of several rounds expires with the earliest.
//
//	clock   what happens
//	  192   The bucket leaves its slot as a whole, and its timers are placed anew:
//	        213 goes to level 1 (26-24 = 2 slots away), slot 2, which expires at 26*8 = 208;
//	        1237 goes back to slot 3 of level 2, into a new bucket, which expires at 1216.
//	  208   213 goes to level 0 (5 slots away), slot 5, which expires at 213.
//	  213   It runs.
//	 1216   1237 goes to level 1 (154-152 = 2 slots away), slot 2, which expires at 1232.
//	 1232   It goes to level 0, slot 5.
//	 1237   It runs.
//
// Nothing happens in between. Buckets with timers stand in a heap by expiration, and one timer of the
// runtime, the alarm, is set for the first: these 1,232 ticks take six wake-ups. The clock moves when a
// bucket is taken off the heap, from 5 to 192 at once; an add that needs more than level 0 first brings
// an idle wheel's clock up to now.
//
// Rounds are not counted down: how many a timer still waits follows from its deadline and the clock,
// (19-3)/8 = 2 for 1237 at tick 208.
//
// Reschedule to a later time writes the deadline into the timer's node, and nothing else. The
// bucket only says when the driver next looks at the timer. A timer found to be due later is then
// placed anew.
//
// A bucket that has left its slot is cascading, if its timers have to move, or due, if they wait to be
// claimed. Timers that are armed for its slot from then on open a new bucket there, so emptying a bucket
// never adds to it.

// TimingWheel is a set of timers. Make one with [New]. All methods may be called at any time from any
// goroutine, callbacks included, unless they say otherwise.
type TimingWheel struct {
	engine *engine[func()]
	shared bool // the wheel of Default

	families families  // of parents of contexts
	sleepers sync.Pool // of *sleeper. Of the wheel, as a channel belongs to the bubble in which it was made
}

// New returns a running wheel, or an error that wraps [ErrOption] and names the option, its value and
// the accepted range. There is nothing to start and, while no timer is pending, nothing running: a
// wheel without pending timers needs no Stop to be collected.
func New(opts Options) (*TimingWheel, error) {
	return newWheelAt(opts, 0)
}

func newWheelAt(opts Options, origin int64) (*TimingWheel, error) {
	e, err := newEngineAt(opts, 1, origin, func(f []func()) { f[0]() })
	if err != nil {
		return nil, err
	}
	tw := &TimingWheel{engine: e}
	for _, s := range e.shards {
		s.kin = &tw.families
	}
	return tw, nil
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

// Default returns the wheel of the process, which is made on first use. Its Stop, Shutdown and Flush
// panic, as other parts of the program rely on it. It is for use outside testing/synctest bubbles.
func Default() *TimingWheel { return defaultWheel() }

// AfterFunc calls [TimingWheel.AfterFunc] on [Default].
func AfterFunc(d time.Duration, f func()) Timer { return Default().AfterFunc(d, f) }

// AtFunc calls [TimingWheel.AtFunc] on [Default].
func AtFunc(t time.Time, f func()) Timer { return Default().AtFunc(t, f) }

// ScheduleFunc calls [TimingWheel.ScheduleFunc] on [Default].
func ScheduleFunc(s Scheduler, f func()) Timer { return Default().ScheduleFunc(s, f) }

// AfterFunc runs f once, d from now or up to one tick later, never earlier. Zero and negative mean at
// once; a d beyond the range of the clock never fires. f runs where [Options.Executor] says. The
// returned handle stops or moves the timer. On a stopped wheel it is the zero Timer, and f is not run.
//
// AfterFunc panics where f is nil. It allocates nothing. O(1), apart from the first timer of a bucket,
// which is O(log buckets).
func (tw *TimingWheel) AfterFunc(d time.Duration, f func()) Timer {
	if f == nil {
		panic("timingwheel: AfterFunc of a nil function")
	}
	return tw.engine.after(d, f)
}

// AtFunc is AfterFunc for a point in time; one that has passed means at once. A time with a monotonic
// reading is used as it is. One without is a date on the wall: the time that remains until then is
// taken at the call, and later steps of the wall clock do not move it.
func (tw *TimingWheel) AtFunc(t time.Time, f func()) Timer {
	if f == nil {
		panic("timingwheel: AtFunc of a nil function")
	}
	return tw.engine.at(t, f)
}

// Len returns the number of pending timers: those armed and neither started nor stopped. Over several
// shards it is exact when nothing else is going on. O(shards).
func (tw *TimingWheel) Len() int { return tw.engine.pending() }

// Stats returns a snapshot of the wheel's counters. O(shards × (buckets + pages)).
func (tw *TimingWheel) Stats() Stats { return tw.engine.stats() }

// Flush hands every callback that is pending at the call to the executor now, whatever its
// deadline, and returns how many. It does not wait for them. Each still counts as pending, and can
// be stopped or rescheduled, until it starts. A plan runs once and goes on. In Manual mode with
// Inline the callbacks run before Flush returns. It panics on [Default].
func (tw *TimingWheel) Flush() int {
	tw.mustOwn("Flush")
	n := 0
	for _, s := range tw.engine.shards {
		n += s.flush()
	}
	if tw.engine.manual {
		tw.engine.dispatch()
	}
	return n
}

// Stop stops the wheel and discards what is pending. Callbacks that have started go on; none starts
// once Stop has returned. Handles stay valid and inert, and every later call returns at once with its
// documented result. Stop is idempotent. It panics on [Default].
func (tw *TimingWheel) Stop() {
	tw.mustOwn("Stop")
	tw.engine.stop()
}

// Shutdown is Stop and then waits for the callbacks that have started, and for calls of Options.OnSlow. It returns nil when none runs
// any more, or ctx's error where ctx ends first. A callback or an OnSlow that calls it waits for itself. It may be
// called again, also after Stop. It panics on [Default], and where ctx is nil; the wheel then goes on.
func (tw *TimingWheel) Shutdown(ctx context.Context) error {
	tw.mustOwn("Shutdown")
	mustHaveContext(ctx)
	if t, ok := ctx.Deadline(); ok && !tw.engine.manual { // it may be a deadline of this wheel, which Stop discards
		withTimer, cancel := context.WithDeadline(ctx, t)
		defer cancel()
		ctx = withTimer
	}
	return tw.engine.shutdown(ctx)
}

func (tw *TimingWheel) mustOwn(method string) {
	if tw.shared {
		panic("timingwheel: " + method + " of the default wheel, which belongs to the whole process")
	}
}

// today is the present for others: by which plans are made, and what contexts and channels tell. Outside Manual mode it
// is read anew, as plans may be of dates on the wall, whose clock may have been set since New. A plan in monotonic time does not notice.
func (tw *TimingWheel) today() time.Time {
	if tw.engine.manual {
		return tw.Now()
	}
	return tw.engine.date()
}

// Now returns the time on the wheel's own clock: the current time, not moved by steps of the wall clock
// since New, or in Manual mode the time of the last Advance.
func (tw *TimingWheel) Now() time.Time { return tw.engine.clockTime() }

// Advance moves the clock of a Manual wheel to now, or leaves it where now lies before it. It then
// runs what was due, in order of ticks, and returns how many callbacks it claimed (handed over,
// with an Executor other than Inline). In one shard, timers of one tick run in the order in which
// they were armed, and a Reschedule counts as arming. What these callbacks arm runs in a later
// Advance, however soon it is due.
//
// A callback that panics, or calls runtime.Goexit, unwinds to the caller; the others that are due stay
// so for the next Advance. Advance panics where the wheel is not Manual, or while another Advance of it
// is under way: in a callback or on another goroutine.
func (tw *TimingWheel) Advance(now time.Time) int { return tw.engine.advanceTo(now) }

// Next returns when the wheel has to look at its timers next, and false where none is pending. The time
// is never later than the earliest deadline rounded up to the tick (the current tick, where that has
// passed), but may be earlier: timers may have to be moved between wheels, or were stopped or postponed
// since. O(shards) amortised.
func (tw *TimingWheel) Next() (time.Time, bool) { return tw.engine.next() }
