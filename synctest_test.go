package timingwheel

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// On fake time a callback starts at the very instant for which the wheel was woken, so these tests
// are exact where those on the machine's clock can only say "not early".

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
					d := rand.N([]time.Duration{time.Minute, time.Hour, oneDay, 30 * oneDay, oneYear, 100 * oneYear}[i%6])
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
func TestShortTimerAfterDaysOfIdling(t *testing.T) {
	for _, opts := range shapes {
		bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
			tick := tickOf(opts)
			for range 20 {
				pass(rand.N(40 * oneDay))
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

// Nothing wakes while nothing is due.
func TestIdleWheelIsNeverWoken(t *testing.T) {
	for _, opts := range shapes {
		bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
			pass(oneYear)
			assert.Zero(t, tw.Stats().Wakeups, "a wheel that was never used")
			tw.AfterFunc(0, func() {})
			pass(2 * tickOf(opts))
			woken := tw.Stats().Wakeups
			pass(oneYear)
			assert.Equal(t, woken, tw.Stats().Wakeups, "a wheel whose timers have fired")
			tw.AfterFunc(math.MaxInt64, func() {})
			pass(oneYear)
			assert.LessOrEqual(t, tw.Stats().Wakeups, woken+16, "a timer that is for ever away")
		})
	}
}

// One timer costs one wake-up and one for each wheel that it passes, however many laps are between.
func TestWakeupsOfOneFarTimer(t *testing.T) {
	for _, opts := range shapes {
		bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
			for _, d := range []time.Duration{time.Hour, oneDay, 123 * oneDay, oneYear, 50 * oneYear} {
				before := tw.Stats().Wakeups
				ran := false
				tw.AfterFunc(d, func() { ran = true })
				pass(d + tickOf(opts))
				assert.True(t, ran)
				levels := int(tw.engine.last) + 1
				assert.LessOrEqual(t, tw.Stats().Wakeups-before, uint64(levels), "%v on %d levels", d, levels)
			}
		})
	}
}

// Rounds that a bucket of the last wheel waits for cost no wake-up: it is queued under its
// earliest.
func TestWaitingRoundsCostNoWakeup(t *testing.T) {
	bubble(t, Options{WheelSize: 2, Levels: 1, Tick: time.Second}, func(t *testing.T, tw *TimingWheel) {
		var times stopwatch
		times.start = time.Now()
		for _, round := range []int{1000, 10, 100_000, 11} { // all in one slot or the other
			tw.AfterFunc(time.Duration(2*round)*time.Second, times.note)
		}
		pass(19 * time.Second)
		assert.Zero(t, tw.Stats().Wakeups)
		pass(10 * oneDay)
		assert.Equal(t, []int{20_000, 22_000, 2_000_000, 200_000_000}, times.times)
		assert.EqualValues(t, 4, tw.Stats().Wakeups)
	})
}

// A heartbeat a second for a day, with a timeout of 30 s: the driver looks at most once for each
// timeout that passes, not once for each beat.
func TestWakeupsOfPostponedTimers(t *testing.T) {
	bubble(t, Options{Shards: 1}, func(t *testing.T, tw *TimingWheel) {
		time.Sleep(time.Millisecond / 2) // beats come between two ticks: at one it is chance whether the driver looks first
		timers := make([]Timer, 20)
		for i := range timers {
			timers[i] = tw.AfterFunc(30*time.Second, func() { t.Error("cut though alive") })
		}
		seconds := scaled(100_000)
		for range seconds {
			time.Sleep(time.Second)
			for _, timer := range timers {
				if !timer.Reschedule(30 * time.Second) {
					t.Fatal("lost")
				}
			}
		}
		synctest.Wait()
		looks := uint64(seconds/25 + 1)
		assert.LessOrEqual(t, tw.Stats().Wakeups, looks)
		assert.Equal(t, len(timers), tw.Len())
	})
}

// Timers by the hundred thousand that are stopped before they are due wake nobody.
func TestStoppedTimersWakeNobody(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		for range scaled(100_000) {
			tw.AfterFunc(time.Minute+rand.N(time.Hour), func() {}).Stop()
			if rand.IntN(1000) == 0 {
				time.Sleep(ms)
			}
		}
		pass(10 * oneDay)
		// An alarm that it was not worth switching off goes off once.
		assert.LessOrEqual(t, tw.Stats().Wakeups, uint64(5))
		assert.Zero(t, tw.Stats().Moved)
	})
}

// Next never lies behind the earliest deadline rounded up, and a program that follows it gets
// there.
func TestNextOnFakeTime(t *testing.T) {
	for _, opts := range shapes {
		bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
			_, ok := tw.Next()
			assert.False(t, ok)
			tick, start := tickOf(opts), time.Now()
			earliest := oneYear
			for range 50 {
				d := time.Minute + rand.N(100*oneDay)
				earliest = min(earliest, d)
				tw.AfterFunc(d, func() {})
				next, ok := tw.Next()
				require.True(t, ok)
				assert.Less(t, next.Sub(start), earliest+tick)
			}
			pass(earliest + tick)
			assert.Less(t, tw.Len(), 50)
		})
	}
}

// Several wheels in one bubble share nothing and do not disturb each other.
func TestSeveralWheelsInOneBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var wheels []*TimingWheel
		var ran [7]atomic.Int32
		for i, opts := range shapes {
			tw := startWheel(t, opts)
			wheels = append(wheels, tw)
			tick := tickOf(opts)
			for h := range 50 {
				d := time.Duration(1+h) * time.Hour
				tw.AfterFunc(d, func() {
					ran[i].Add(1)
					if i != 1 { // that one is flushed
						assert.Equal(t, (d+tick-1)/tick*tick, time.Since(start))
					}
				})
			}
		}
		pass(10*time.Hour + time.Second)
		wheels[0].Stop()
		wheels[1].Flush()
		pass(3 * oneDay)
		assert.EqualValues(t, 10, ran[0].Load())
		for i := range ran[2:] {
			assert.EqualValues(t, 50, ran[2+i].Load())
		}
	})
	// And another bubble after it, as in a program's tests.
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		ran := false
		tw.AfterFunc(oneDay, func() { ran = true })
		pass(oneDay)
		assert.True(t, ran)
	})
}

// A bubble ends only when all its goroutines have: a wheel whose timers are pending has none, with
// or without Stop, nor has one whose callbacks have run.
func TestBubbleEndsWithoutStop(t *testing.T) {
	for _, opts := range shapes {
		synctest.Test(t, func(t *testing.T) {
			tw, err := New(opts)
			require.NoError(t, err)
			for range 100 {
				tw.AfterFunc(rand.N(time.Hour), func() {})
			}
			pass(time.Hour + tickOf(opts))
			assert.Zero(t, tw.Len())
			tw.AfterFunc(oneYear, func() {})
		})
	}
}
