package timingwheel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// Timers run at their deadline rounded up to a tick: at the edges of levels, at wraps, after days,
// at large readings of the clock. Deadlines for which a word has no room are in far_test.go.

// checkDelay arms timers that are due d from the origin, in each way there is, and sees them run at
// their deadline rounded up to a tick, and not 1ns before.
func checkDelay(t *testing.T, opts Options, origin int64, d time.Duration) {
	t.Helper()
	tick := int64(opts.Tick)
	due := clock.Saturated(origin, int64(d))
	rounded := due / tick
	if due%tick != 0 {
		rounded++
	}
	rounded = satMul(rounded, tick)
	s := newStory(t, opts, origin)
	s.after(d, "after")
	s.AtFunc(modelStart.Add(d), s.note("at"))
	postponed, hastened := s.after(d/2, "postponed"), s.after(math.MaxInt64, "hastened")
	if !postponed.Reschedule(d) || !hastened.Reschedule(d) {
		t.Fatal("Reschedule of a pending timer: false")
	}
	want := "after at postponed hastened"
	if rounded == math.MaxInt64 {
		want = "" // the clock does not get there
	}
	early := s.to(time.Duration(min(rounded, math.MaxInt64-1) - 1 - origin))
	if ran := s.to(time.Duration(rounded - origin)); early != "" || ran != want {
		t.Fatalf("%v, %+v from %d: 1ns early %q, then %q", d, opts, origin, early, ran)
	}
}

// boundaryWheels are shapes of wheels; the last ones span more than the clock has.
var boundaryWheels = []Options{
	{Tick: time.Millisecond, WheelSize: 2, Levels: 1},
	{Tick: time.Microsecond, WheelSize: 2, Levels: 16},
	{Tick: 1_234_567, WheelSize: 4, Levels: 3},
	{Tick: time.Second, WheelSize: 64, Levels: 2},
	{Tick: time.Millisecond, WheelSize: 256, Levels: 4},
	{Tick: time.Hour, WheelSize: 2, Levels: 2},
	{Tick: time.Hour, WheelSize: 65536, Levels: 1},
	{Tick: time.Microsecond, WheelSize: 1024, Levels: 16},
}

func forEachWheel(t *testing.T, f func(t *testing.T, opts Options)) {
	for _, opts := range boundaryWheels {
		t.Run(fmt.Sprintf("tick=%v/size=%d/levels=%d", opts.Tick, opts.WheelSize, opts.Levels), func(t *testing.T) {
			t.Parallel()
			f(t, opts)
		})
	}
}

// spans returns what 1, 2, … levels span, in ns, as far as that is in range.
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

// Each level's edge, one interval and one ns before and after it, exact multiples of its span and
// so several rounds of the last one; with the clock at 0, in the middle, and just before each wrap.
func TestEdgesOfEachLevel(t *testing.T) {
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
		}
	})
}

func TestPowersOfTwo(t *testing.T) {
	t.Parallel()
	forEachWheel(t, func(t *testing.T, opts Options) {
		for i := range 63 {
			for _, origin := range []int64{0, 1<<48 - 1, 1 << 61} {
				checkDelay(t, opts, origin, 1<<i)
				checkDelay(t, opts, origin, 1<<i+1)
			}
		}
	})
}

// A clock that has run for long, up to 2^48 ticks and beyond, just before the wrap of each level.
func TestLargeEpochs(t *testing.T) {
	t.Parallel()
	forEachWheel(t, func(t *testing.T, opts Options) {
		tick := int64(opts.Tick)
		for _, span := range spans(opts) {
			for _, from := range []int64{1 << 40, 1 << 53, min(satMul(1<<48, tick), 1<<61), 1 << 61, 1<<62 + 1<<61} {
				origin := from - from%span + span - tick // the last tick of a lap
				if origin < from {
					continue // out of range
				}
				for _, d := range []int64{1, tick - 1, tick, 2 * tick, span - 1, span, clock.Saturated(span, tick)} {
					checkDelay(t, opts, origin, time.Duration(d))
				}
			}
		}
	})
}

func TestMaxInt64NeverFires(t *testing.T) {
	t.Parallel()
	forEachWheel(t, func(t *testing.T, opts Options) {
		for _, origin := range []int64{0, 1, 1 << 61, math.MaxInt64 - 10*int64(opts.Tick)} {
			s := newStory(t, opts, origin)
			s.after(math.MaxInt64, "never")
			s.AtFunc(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), s.note("never"))
			s.after(opts.Tick, "soon")
			require.Equal(t, "soon", s.to(2*opts.Tick))
			require.Empty(t, s.to(math.MaxInt64), "at the end of the clock")
			require.Equal(t, 2, s.Len())
		}
	})
}

// At the clock's last reading every sum saturates: what is not due at once is then never due.
func TestDelayBeyondTheClockNeverFiresAtItsEnd(t *testing.T) {
	t.Parallel()
	s := newStory(t, Options{}, 0)
	require.Empty(t, s.to(math.MaxInt64))
	s.after(time.Hour, "never")
	s.after(0, "at once")
	require.Equal(t, "at once", s.to(math.MaxInt64))
	require.Equal(t, 1, s.Len())
}

// Zero, negative and past mean the next Advance, whatever it moves, in the order of arming.
func TestDueAtOnce(t *testing.T) {
	t.Parallel()
	forEachWheel(t, func(t *testing.T, opts Options) {
		for _, origin := range []int64{0, int64(opts.Tick) / 2, 1 << 61} {
			s := newStory(t, opts, origin)
			require.Empty(t, s.to(opts.Tick))
			s.after(0, "zero")
			s.after(-1, "negative")
			s.AtFunc(time.Time{}, s.note("zero time"))
			s.AtFunc(modelStart, s.note("past"))
			s.AtFunc(s.Now(), s.note("now"))
			s.after(math.MinInt64, "least")
			next, ok := s.Next()
			require.True(t, ok)
			require.False(t, next.After(s.Now()))
			require.Equal(t, "zero negative zero time past now least", s.to(opts.Tick))
		}
	})
}

// Shapes at the limits of the options, some of which span far more ticks than there are.
func TestLimitsOfGeometry(t *testing.T) {
	t.Parallel()
	for _, opts := range []Options{
		{Tick: time.Microsecond, WheelSize: 65536, Levels: 16}, {Tick: time.Hour, WheelSize: 65536, Levels: 16},
		{Tick: time.Microsecond, WheelSize: 2, Levels: 16}, {Tick: time.Microsecond, WheelSize: 65536, Levels: 1},
		{Tick: time.Microsecond, WheelSize: 2, Levels: 1}, {Tick: time.Hour, WheelSize: 2, Levels: 16},
	} {
		for _, d := range []time.Duration{1, opts.Tick, 3 * opts.Tick, 65536 * opts.Tick, 1<<62 + 12345} {
			checkDelay(t, opts, 1<<61-1, d)
		}
	}
}

// The clock oversleeps and jumps over many buckets of several levels: everything runs, in order of
// ticks.
func TestJumpOverSeveralLevels(t *testing.T) {
	t.Parallel()
	for _, origin := range []int64{0, 1<<61 - 1} {
		s := newStory(t, Options{Tick: ms, WheelSize: 4, Levels: 3}, origin)
		var want []string
		for _, d := range []int{1, 3, 4, 5, 15, 16, 17, 63, 64, 65, 127, 128, 500, 5000} {
			want = append(want, fmt.Sprint(d))
		}
		for i := range want { // armed in another order
			var d int
			_, _ = fmt.Sscan(want[(i*5)%len(want)], &d)
			s.after(time.Duration(d)*ms, fmt.Sprint(d))
		}
		require.Equal(t, strings.Join(want, " "), s.to(day))
	}
}

// A wheel that has stood idle for days, or had only a far timer, puts a short one into the finest
// level.
func TestShortTimerAfterDaysOfIdleness(t *testing.T) {
	t.Parallel()
	for _, far := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			tw, err := New(Options{Shards: 1})
			require.NoError(t, err)
			defer tw.Stop()
			if far {
				tw.AfterFunc(40*day, func() {})
			}
			time.Sleep(30 * day)
			moved := tw.Stats().Moved
			tw.AfterFunc(5*ms, func() {})
			time.Sleep(time.Second)
			st := tw.Stats()
			require.Equal(t, moved, st.Moved)
			require.Positive(t, st.Fired)
		})
		s := newStory(t, Options{}, 1<<60)
		if far {
			s.after(40*day, "far")
		}
		s.to(30 * day)
		moved := s.Stats().Moved
		s.after(5*ms, "short")
		require.Equal(t, "short", s.to(30*day+6*ms)) // the origin is no multiple of the tick
		require.Equal(t, moved, s.Stats().Moved)
	}
}

// The same for AtFunc with a monotonic reading, which looks at the clock only where the wheel
// stands idle.
func TestShortTimerAtAMonotonicTimeAfterIdleness(t *testing.T) {
	t.Parallel()
	tw, err := New(Options{Tick: time.Hour, Shards: 1})
	require.NoError(t, err)
	defer tw.Stop()
	s := tw.engine.shards[0]
	tw.engine.Base = tw.engine.Base.Add(-30_000 * day) // as if it had been made then
	s.Base = tw.engine.Base
	tw.AtFunc(time.Now().Add(10*time.Hour), func() {})
	require.Zero(t, firstLevel(s))
}

// The same for the further run of a plan after a run that has taken days.
func TestShortPlanAfterARunOfDays(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]Scheduler{"Every": Every(10 * time.Hour), "course": asCourse{Every(10 * time.Hour)}} {
		tw := startWheel(t, Options{Tick: time.Hour, Shards: 1})
		sh := tw.engine.shards[0]
		var ran atomic.Bool
		tw.ScheduleFunc(s, func() {
			tw.engine.Base = tw.engine.Base.Add(-30_000 * day) // as if it had begun then
			sh.Base = tw.engine.Base
			ran.Store(true)
		})
		tw.Flush()
		await(t, "the run", func() bool { return ran.Load() && tw.Len() == 1 }) // which reads no clock
		assert.Zero(t, firstLevel(sh), name)
		assert.Zero(t, tw.Stats().Wakeups, "%s: it was placed by the clock of before", name)
	}
}

// However far away a deadline is, the callback starts in its very tick: cascading loses no
// precision.
func TestPreciseOverDaysAndYears(t *testing.T) {
	for _, opts := range shapes {
		t.Run(optionName(opts), func(t *testing.T) {
			bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
				start, tick := time.Now(), tickOf(opts)
				const n = 500
				var ran atomic.Int32
				for i := range n {
					d := rand.N([]time.Duration{time.Minute, time.Hour, day, 30 * day, oneYear, 100 * oneYear}[i%6])
					tw.AfterFunc(d, func() {
						ran.Add(1)
						at := time.Since(start)
						assert.GreaterOrEqual(t, at, d, "early")
						assert.Less(t, at-d, tick, "late")
						assert.Zero(t, at%tick, "not at a tick")
					})
				}
				pass(101 * oneYear)
				assert.EqualValues(t, n, ran.Load())
				assert.Zero(t, tw.Len())
				verifyShards(t, tw.engine)
				st := tw.Stats()
				assert.LessOrEqual(t, st.Lateness.Max, tick)
			})
		})
	}
}

// After days of doing nothing the first short timer is as precise as any.
func TestShortTimerAfterIdlenessCostsOneWakeup(t *testing.T) {
	for _, opts := range shapes {
		bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
			tick := tickOf(opts)
			for range 20 {
				pass(rand.N(40 * day))
				start, woken := time.Now(), tw.Stats().Wakeups
				var after time.Duration
				d := tick + rand.N(tick)
				tw.AfterFunc(d, func() { after = time.Since(start) })
				pass(6 * tick)
				assert.GreaterOrEqual(t, after, d)
				assert.Less(t, after, d+tick)
				if opts.WheelSize > 2 { // else it has to pass from one wheel to the next
					assert.Equal(t, woken+1, tw.Stats().Wakeups, "a stale clock put it into a coarse bucket")
				}
			}
		})
	}
}
