package timingwheel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// Timers run at their deadline, rounded up to a tick: at the edges of levels, at wraps, after days,
// at large readings of the clock. range_test.go has the end of the range.

// checkDelay arms timers in four ways that are due d from the origin. It checks that they run at
// their deadline, rounded up to a tick, and not 1ns earlier.
func checkDelay(t *testing.T, opts Options, origin int64, d time.Duration) {
	t.Helper()
	tick, end := int64(opts.Tick), endOf(opts.Tick)
	origin = within(opts.Tick, origin)
	due := clock.Saturated(origin, int64(d))
	rounded := due / tick
	if due%tick != 0 {
		rounded++
	}
	rounded = min(satMul(rounded, tick), end)
	s := newRecordingWheel(t, opts, origin)
	s.after(d, "after")
	s.AtFunc(modelStart.Add(d), s.note("at"))
	later, earlier := s.after(d/2, "later"), s.after(math.MaxInt64, "earlier")
	if !later.Reschedule(d) || !earlier.Reschedule(d) {
		t.Fatal("Reschedule returned false for a pending timer")
	}
	want := "after at later earlier"
	if rounded == end {
		want = "" // the clock never reaches the deadline
	}
	early := s.to(time.Duration(min(rounded, end-1) - 1 - origin))
	if ran := s.to(time.Duration(rounded - origin)); early != "" || ran != want {
		t.Fatalf("%v, %+v from %d: 1ns early %q, then %q", d, opts, origin, early, ran)
	}
}

// boundaryWheels are shapes of wheels, some with sizes at the limits of the options. Some span more
// ticks than the clock has.
var boundaryWheels = []Options{
	{Tick: time.Millisecond, WheelSize: 2, Levels: 1},
	{Tick: time.Microsecond, WheelSize: 2, Levels: 16},
	{Tick: 1_234_567, WheelSize: 4, Levels: 3},
	{Tick: time.Second, WheelSize: 64, Levels: 2},
	{Tick: time.Millisecond, WheelSize: 256, Levels: 4},
	{Tick: time.Hour, WheelSize: 2, Levels: 2},
	{Tick: time.Hour, WheelSize: 65536, Levels: 1},
	{Tick: time.Microsecond, WheelSize: 1024, Levels: 16},
	{Tick: time.Microsecond, WheelSize: 2, Levels: 1},
	{Tick: time.Microsecond, WheelSize: 65536, Levels: 1},
	{Tick: time.Hour, WheelSize: 2, Levels: 16},
	{Tick: time.Hour, WheelSize: 65536, Levels: 16},
}

func forEachWheel(t *testing.T, f func(t *testing.T, opts Options)) {
	for _, opts := range boundaryWheels {
		t.Run(fmt.Sprintf("tick=%v/size=%d/levels=%d", opts.Tick, opts.WheelSize, opts.Levels), func(t *testing.T) {
			t.Parallel()
			f(t, opts)
		})
	}
}

// spans returns the spans of 1, 2, … levels in ns, as far as they are in range.
func spans(opts Options) []int64 {
	var out []int64
	n := int64(opts.Tick)
	for range opts.Levels {
		if n = satMul(n, int64(opts.WheelSize)); n == math.MaxInt64 {
			break
		}
		out = append(out, n)
	}
	return out
}

// Deadlines are at the edge of each level, one tick and one ns before and after it, at exact
// multiples of its span, which are several rounds of the last level, and at powers of two. The
// clock stands at 0, in the middle of the span, and immediately before the wrap, also after 2^43
// ticks and more.
func TestTimersAreExactAtTheEdgesOfEachLevel(t *testing.T) {
	t.Parallel()
	forEachWheel(t, func(t *testing.T, opts Options) {
		tick := int64(opts.Tick)
		for _, span := range spans(opts) {
			for _, origin := range []int64{0, span - 1, span/2 + 1} {
				for _, edge := range []int64{span / int64(opts.WheelSize), span, satMul(span, 2), satMul(span, 5)} {
					for _, off := range []int64{-tick - 1, -tick, -1, 0, 1, tick, tick + 1} {
						checkDelay(t, opts, origin, time.Duration(max(1, clock.Saturated(edge, off))))
					}
				}
			}
			for _, from := range []int64{1 << 40, 1 << 53, min(satMul(1<<43, tick), 1<<61), 1 << 61, 1<<62 + 1<<61} {
				origin := from - from%span + span - tick // the last tick of a lap
				if origin < from || origin >= endOf(opts.Tick) {
					continue // out of range
				}
				for _, d := range []int64{1, tick - 1, tick, 2 * tick, span - 1, span, clock.Saturated(span, tick)} {
					checkDelay(t, opts, origin, time.Duration(d))
				}
			}
		}
		for i := range 63 {
			for _, origin := range []int64{0, 1<<48 - 1, 1 << 61} {
				checkDelay(t, opts, origin, 1<<i)
				checkDelay(t, opts, origin, 1<<i+1)
			}
		}
	})
}

// AtFunc with a monotonic reading reads the clock only if the wheel is idle. After idle days it
// places a short timer on the finest level.
func TestAtFuncAfterIdleDaysUsesTheFinestLevel(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Tick: time.Hour, Shards: 1})
	stall(tw.engine, 30_000*day) // as if the wheel had been made then
	tw.AtFunc(time.Now().Add(10*time.Hour), func() {})
	require.Zero(t, firstLevel(tw.engine.shards[0]))
}

// After a run that has taken days, a plan places its next run on the finest level.
func TestPlanAfterARunOfDaysUsesTheFinestLevel(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]Scheduler{"Every": Every(10 * time.Hour), "planner": asPlanner{Every(10 * time.Hour)}} {
		tw := startWheel(t, Options{Tick: time.Hour, Shards: 1})
		sh := tw.engine.shards[0]
		var ran atomic.Bool
		tw.ScheduleFunc(s, func() {
			tw.engine.config.Base = tw.engine.config.Base.Add(-30_000 * day) // as if the run had begun then
			sh.config.Base = tw.engine.config.Base
			ran.Store(true)
		})
		tw.Flush()
		await(t, "the run", func() bool { return ran.Load() && tw.Len() == 1 }) // Len reads no clock
		assert.Zero(t, firstLevel(sh), name)
		assert.Zero(t, tw.Stats().Wakeups, "%s: the run was placed by an old reading of the clock", name)
	}
}

// After idle days, a short timer is as precise as any other and costs one wake-up.
func TestShortTimerAfterIdleDaysCostsOneWakeup(t *testing.T) {
	for _, opts := range shapes {
		bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
			tick := tickOf(opts)
			for range 20 {
				pass(rand.N(40 * day))
				start, woken, moved := time.Now(), tw.Stats().Wakeups, tw.Stats().Moved
				var after time.Duration
				d := tick + rand.N(tick)
				tw.AfterFunc(d, func() { after = time.Since(start) })
				pass(6 * tick)
				assert.GreaterOrEqual(t, after, d)
				assert.Less(t, after, d+tick)
				if opts.WheelSize > 2 { // otherwise the timer has to move between levels
					assert.Equal(t, moved, tw.Stats().Moved)
					assert.Equal(t, woken+1, tw.Stats().Wakeups, "an old reading of the clock led to a coarse bucket")
				}
			}
		})
	}
}
