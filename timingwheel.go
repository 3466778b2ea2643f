package timingwheel

import (
	"context"
	"io"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel/internal/clock"
	"github.com/timingwheel-go/timingwheel/internal/lasting"
)

// The algorithm, once, on a wheel of 8 slots and 3 levels. The defaults are 256 slots and 4 levels.
// docs/levels.svg shows the same numbers, and docs/internals/design.md describes everything else.
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

// TimingWheel is a set of timers. Make one with [New].
type TimingWheel struct {
	engine *engine[func()]
	use    use // private, stopped or the default

	sleepers sync.Pool // of *sleeper; one for each wheel, because a channel belongs to its bubble
	lasting  lasting.Timers[Timer]
}

func init() {
	lasting.Of = func(tw any) any { return &tw.(*TimingWheel).lasting }
}

// New returns a running wheel, or an error that wraps [ErrOption].
func New(opts Options) (*TimingWheel, error) {
	return newWheelAt(opts, 0)
}

func newWheelAt(opts Options, origin int64) (*TimingWheel, error) {
	e, err := newEngine(opts, origin, job[func()]{
		perCall: 1,
		run:     func(f []func()) { f[0]() },
		callee:  func(f []func()) uintptr { return codeOf(f[0]) },
	})
	if err != nil {
		return nil, err
	}
	arm := func(at int64, f func()) Timer { return e.armLasting(at, clock.Unread, f) }
	return &TimingWheel{engine: e, lasting: lasting.Timers[Timer]{Clock: &e.Timeline, Arm: arm, Cancel: Timer.cancelLasting}}, nil
}

// use says what a wheel is. It is private until it is stopped or becomes the default. Both are
// final. If Stop and SetDefault race, a compare-and-swap decides.
type use struct{ state atomic.Uint32 }

const (
	usePrivate uint32 = iota
	useStopped
	useDefault
)

func (u *use) isDefault() bool { return u.state.Load() == useDefault }

// become returns false if the wheel is not private.
func (u *use) become(state uint32) bool { return u.state.CompareAndSwap(usePrivate, state) }

// mustEnd is for calls that stop the wheel. It panics if the wheel is the default.
func (u *use) mustEnd(method string) {
	u.become(useStopped)
	u.mustOwn(method)
}

func (u *use) mustOwn(method string) {
	if u.isDefault() {
		panic("timingwheel: " + method + " of the default wheel, which belongs to the whole process")
	}
}

var (
	defaultWheel atomic.Pointer[TimingWheel] // nil before the first use
	defaultMu    sync.Mutex                  // held while defaultWheel is set
)

// Default returns the wheel of the process, which is made on first use. Its Stop, Shutdown and
// Flush panic. Do not use it in a testing/synctest bubble.
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
	tw.use.become(useDefault)
	defaultWheel.Store(tw)
	return tw
}

// SetDefault makes tw the wheel of [Default]. It panics if Default or a function of the package was
// used or SetDefault was called before, and if tw is nil, Manual or stopped. Call it at the start
// of main.
func SetDefault(tw *TimingWheel) {
	if tw == nil {
		panic("timingwheel: SetDefault(nil): accepted is a running wheel")
	}
	if tw.engine.Manual {
		panic("timingwheel: SetDefault of a Manual wheel: accepted is one that runs by itself")
	}
	defaultMu.Lock()
	defer defaultMu.Unlock()
	if defaultWheel.Load() != nil {
		panic("timingwheel: SetDefault after Default was used or set: call it once, at the start of main, " +
			"before any use of Default and of the package's functions")
	}
	if !tw.use.become(useDefault) {
		panic("timingwheel: SetDefault of a stopped wheel: accepted is a running one")
	}
	defaultWheel.Store(tw)
}

// AfterFunc calls [TimingWheel.AfterFunc] on [Default].
func AfterFunc(d time.Duration, f func()) Timer { return Default().AfterFunc(d, f) }

// AtFunc calls [TimingWheel.AtFunc] on [Default].
func AtFunc(t time.Time, f func()) Timer { return Default().AtFunc(t, f) }

// ScheduleFunc calls [TimingWheel.ScheduleFunc] on [Default].
func ScheduleFunc(s Scheduler, f func()) Timer { return Default().ScheduleFunc(s, f) }

// AfterFunc runs f once, d from now or up to one tick later. [Options.Executor] decides where. It
// returns the zero Timer on a stopped wheel. It panics if f is nil, or if a shard has 2^29 timers.
// As a rule it allocates nothing.
func (tw *TimingWheel) AfterFunc(d time.Duration, f func()) Timer {
	if f == nil {
		panic("timingwheel: AfterFunc of a nil function")
	}
	return tw.engine.after(d, f)
}

// AtFunc is [TimingWheel.AfterFunc] for a point in time.
func (tw *TimingWheel) AtFunc(t time.Time, f func()) Timer {
	if f == nil {
		panic("timingwheel: AtFunc of a nil function")
	}
	return tw.engine.at(t, f)
}

// String returns the name, and the numbers of pending timers and of levels.
func (tw *TimingWheel) String() string { return tw.engine.describe("TimingWheel") }

// Len returns the number of pending timers, over several shards exact if none changes meanwhile. It
// may wait for a driver or worker. O(shards) amortised.
func (tw *TimingWheel) Len() int { return tw.engine.pending() }

// Stats returns a snapshot. Like Len it may wait. O(shards) amortised.
func (tw *TimingWheel) Stats() Stats { return tw.engine.stats() }

// Occupancy returns where the pending timers stand. It is not meant for hot paths: O(shards ×
// buckets), at most 2^18. It may wait like Len.
func (tw *TimingWheel) Occupancy() Occupancy {
	return tw.engine.occupancy(occupancyWhole, occupancySlots)
}

// WriteProfile writes a profile of the pending timers by the stack that armed them, for go tool
// pprof, with age and time to expiry as labels. It fails without [Options.ProfileRate]. O(samples).
func (tw *TimingWheel) WriteProfile(w io.Writer) error { return tw.engine.writeProfile(w) }

// Flush makes every callback that is pending at the call due now, and returns their number. It
// waits for none; in Manual mode with [Inline] it runs them. A plan runs once and goes on. Flush
// panics on [Default]. O(pending timers).
func (tw *TimingWheel) Flush() int {
	tw.use.mustOwn("Flush")
	return tw.engine.flush()
}

// Stop discards what is pending, except for the deadlines of contexts, which the runtime's timers
// keep. Callbacks that have started go on, and none starts once Stop has returned. Stop panics on
// [Default]. O(pending timers).
func (tw *TimingWheel) Stop() {
	tw.use.mustEnd("Stop")
	tw.engine.stop()
}

// Shutdown is Stop and then waits until no callback and no call of Executor.Go or Options.OnSlow is
// under way, or returns ctx's error. A callback that calls it waits for itself. It panics on
// [Default], and if ctx is nil.
func (tw *TimingWheel) Shutdown(ctx context.Context) error {
	mustHaveContext(ctx)
	tw.use.mustEnd("Shutdown")
	return tw.engine.shutdown(ctx)
}

// today returns the present for contexts and channels.
func (tw *TimingWheel) today() time.Time { return tw.engine.shards[0].today() }

// Now returns the time on the wheel's clock, which steps of the wall clock since New do not move.
// In Manual mode it is the time of the last Advance.
func (tw *TimingWheel) Now() time.Time { return tw.engine.clockTime() }

// Advance moves the clock of a Manual wheel to now, never back, and then runs what is due, in order
// of ticks. It returns how many callbacks it claimed, or handed to an Executor other than [Inline].
// Timers that these arm run in a later Advance. If a callback panics or calls runtime.Goexit, the
// others stay due. Advance panics if the wheel is not Manual, and during another Advance.
func (tw *TimingWheel) Advance(now time.Time) int { return tw.engine.advanceTo(now) }

// Next returns when the wheel looks at its timers next, which is no later than the earliest
// deadline rounded up to a tick. It returns false if no timer is pending. Like Len it may wait.
// O(shards) amortised.
func (tw *TimingWheel) Next() (time.Time, bool) { return tw.engine.next() }
