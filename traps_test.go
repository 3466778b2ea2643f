package timingwheel

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// One test for each trap of docs/design.md that other timing wheels fell into, named for what went
// wrong there; those of wheel and clock are here, those of concurrency in traps_race_test.go.

// Trap 5: floor rounding and millisecond truncation, with which a quarter to a half of all timers
// were early.
func TestTrapRoundsDown(t *testing.T) {
	t.Parallel()
	for _, tick := range []time.Duration{time.Microsecond, 3 * time.Microsecond, ms, 7 * ms} {
		for _, d := range []time.Duration{1, tick - 1, tick, tick + 1, 9*tick - 1, 9 * tick, 9*tick + 1, 1000*tick + 1} {
			tw := startWheel(t, Options{Manual: true, Tick: tick, WheelSize: 4, Levels: 3})
			start := tw.Now()
			tw.AfterFunc(d, func() {})
			require.Zero(t, tw.Advance(start.Add(d-1)), "tick %v, delay %v: early", tick, d)
			if d%tick != 0 {
				require.Zero(t, tw.Advance(start.Add(d.Truncate(tick))), "tick %v, delay %v: early", tick, d)
			}
			due := (d + tick - 1) / tick * tick
			require.Equal(t, 1, tw.Advance(start.Add(due)), "tick %v, delay %v: late", tick, d)
		}
	}
}

// stepped is t with the wall clock moved by d and the monotonic reading as it was: what time.Now
// returns after NTP or an administrator has stepped the clock. The wall part of a time.Time with a
// monotonic reading counts seconds from its 31st bit on.
func stepped(tb testing.TB, t time.Time, d time.Duration) time.Time {
	tb.Helper()
	moved := t
	*(*uint64)(unsafe.Pointer(&moved)) += uint64(d/time.Second) << 30
	require.Zero(tb, moved.Sub(t), "the monotonic reading has changed")
	require.Equal(tb, d, moved.Round(0).Sub(t.Round(0)), "the wall clock has not")
	return moved
}

// Trap 6: the wall clock. A step of it fired timers early, or an hour late.
func TestTrapWallClockSteps(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		// The wheel was made before the step.
		tw := startWheel(t, Options{Shards: 1})
		for _, s := range tw.engine.shards {
			s.Base = stepped(t, s.Base, -step)
		}
		tw.engine.Base = stepped(t, tw.engine.Base, -step)
		ran := make(chan time.Duration, 1)
		for name, arm := range map[string]func(d time.Duration, f func()) Timer{
			"AfterFunc":                tw.AfterFunc,
			"AtFunc, monotonic":        func(d time.Duration, f func()) Timer { return tw.AtFunc(time.Now().Add(d), f) },
			"AtFunc, wall":             func(d time.Duration, f func()) Timer { return tw.AtFunc(time.Now().Add(d).Round(0), f) },
			"AtFunc, read before step": func(d time.Duration, f func()) Timer { return tw.AtFunc(stepped(t, time.Now().Add(d), -step), f) },
			"Reschedule": func(d time.Duration, f func()) Timer {
				timer := tw.AfterFunc(time.Minute, f)
				timer.Reschedule(d)
				return timer
			},
			"RescheduleAt, wall": func(d time.Duration, f func()) Timer {
				timer := tw.AfterFunc(time.Minute, f)
				timer.RescheduleAt(time.Now().Add(d).Round(0))
				return timer
			},
		} {
			start := time.Now()
			arm(20*ms, func() { ran <- time.Since(start) })
			after := receive(t, ran, name)
			assert.Greater(t, after, 20*ms-time.Microsecond, "%s: early", name)
			assert.Less(t, after, 30*time.Minute, "%s: the step made it late", name)
		}
	}
}

// Trap 6, too: delays that overflow. MaxInt64 fired after 10 µs, a negative delay never.
func TestTrapDurationOverflow(t *testing.T) {
	t.Parallel()
	for _, opts := range append(tiny, Options{}) {
		tw := startWheel(t, opts)
		never := func() { t.Error("fired") }
		for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2, 1 << 62} {
			timer := tw.AfterFunc(d, never)
			due, ok := timer.Deadline()
			assert.True(t, ok)
			assert.Greater(t, time.Until(due), time.Duration(1<<61))
			require.True(t, timer.Reschedule(d))
		}
		tw.AtFunc(time.Unix(math.MaxInt64/2, 0), never)
		tw.AtFunc(time.Now().Add(math.MaxInt64), never)
		tw.ScheduleFunc(Every(math.MaxInt64), never)
		fired := make(chan struct{}, 4)
		for _, d := range []time.Duration{0, -1, -math.MaxInt64, math.MinInt64} {
			tw.AfterFunc(d, func() { fired <- struct{}{} })
		}
		for range 4 {
			receive(t, fired, "a delay of less than nothing")
		}
		assert.Equal(t, 7, tw.Len())
		tw.Stop()
	}
}

// Trap 8: a wheel of size 1 recursed for ever, one of size 0 divided by zero.
func TestTrapWheelSizeOneAndZero(t *testing.T) {
	t.Parallel()
	_, err := New(Options{WheelSize: 1})
	require.ErrorIs(t, err, ErrOption)
	assert.ErrorContains(t, err, "WheelSize is 1")
	for _, size := range []int{-1, -2, math.MinInt, 3, 1 << 17} {
		_, err := New(Options{WheelSize: size})
		require.ErrorIs(t, err, ErrOption)
	}
	for _, size := range []int{0, 2} {
		for _, levels := range []int{0, 1, 16} {
			tw := startWheel(t, Options{WheelSize: size, Levels: levels, Manual: true, Tick: time.Microsecond})
			tw.AfterFunc(time.Hour, func() {})
			assert.Equal(t, 1, tw.Advance(tw.Now().Add(time.Hour)))
		}
	}
}

// Trap 11: ticker-counted wheels lose time with every tick that is dropped. Here the clock jumps.
func TestTrapDroppedTicksLoseTime(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true, WheelSize: 4, Levels: 3})
	start := tw.Now()
	var order []int
	for _, d := range rand.Perm(1000) {
		tw.AfterFunc(time.Duration(d)*ms, func() { order = append(order, d) })
	}
	require.Equal(t, 1000, tw.Advance(start.Add(5000*ms)), "all that the jump has passed over")
	for i := range order {
		require.Equal(t, i, order[i], "in the order of ticks")
	}
	// The next one counts from the clock, not from the number of ticks seen.
	tw.AfterFunc(3*ms, func() {})
	assert.Zero(t, tw.Advance(start.Add(5003*ms-1)))
	assert.Equal(t, 1, tw.Advance(start.Add(5003*ms)))
}

// Trap 11, too: steps counted from the current slot, within which time has gone on, are a tick
// early.
func TestTrapCountsFromTheCurrentSlot(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true, Tick: 10 * ms, WheelSize: 4, Levels: 2})
	start := tw.Now()
	tw.Advance(start.Add(9 * ms)) // near the end of slot 0
	tw.AfterFunc(10*ms, func() {})
	assert.Zero(t, tw.Advance(start.Add(10*ms)))
	assert.Zero(t, tw.Advance(start.Add(19*ms)), "due, but its tick has not come")
	assert.Equal(t, 1, tw.Advance(start.Add(20*ms)))
}

// Trap 13: after a suspend, or any stall, a plan replayed every run that it had missed, at once.
func TestTrapReplaysMissedRuns(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true})
	start := tw.Now()
	runs := 0
	tw.ScheduleFunc(Every(ms), func() { runs++ })
	assert.Equal(t, 1, tw.Advance(start.Add(time.Hour+ms/2)))
	assert.Zero(t, tw.Advance(start.Add(time.Hour+ms/2)))
	assert.Equal(t, 1, runs)
	assert.Equal(t, 1, tw.Advance(start.Add(time.Hour+ms)), "in its old phase")
}

// Trap 14: nothing fires wrongly, yet wake-ups explode when small timers stand behind the head. On
// fake time every wake-up shows.
func TestTrapSmallTimersBehindTheHeadWakeTheDriver(t *testing.T) {
	bubble(t, Options{WheelSize: 16, Levels: 3}, func(t *testing.T, tw *TimingWheel) {
		for range 5 { // heads
			tw.AfterFunc(time.Second, func() {})
		}
		const n = 1000
		due := map[time.Duration]bool{time.Second: true}
		for range n {
			d := time.Second + rand.N(time.Minute)
			due[(d + ms - 1).Truncate(ms)] = true
			timer := tw.AfterFunc(d, func() {})
			for range 3 {
				timer.Reschedule(d) // none of them is a reason to look at the wheel
			}
		}
		pass(999 * ms)
		early := tw.Stats().Wakeups
		assert.Less(t, early, uint64(10), "before anything is due only intervals of coarse wheels are")
		pass(2 * time.Minute)
		assert.Zero(t, tw.Len())
		// Once for each instant at which something is due, and for each interval of the coarser
		// wheels.
		assert.LessOrEqual(t, tw.Stats().Wakeups, uint64(len(due)+intervals(due, 16)+intervals(due, 256)))
	})
}

// intervals is the number of intervals of so many ms in which a time lies.
func intervals(times map[time.Duration]bool, length time.Duration) int {
	found := map[time.Duration]bool{}
	for at := range times {
		found[at/(length*ms)] = true
	}
	return len(found)
}

// Trap 15: wheels that are right near zero are wrong at large epochs, where indices wrap.
func TestTrapLargeEpochs(t *testing.T) {
	t.Parallel()
	const size = 16
	for _, origin := range epochs(size) {
		tw, err := newWheelAt(Options{Manual: true, WheelSize: size, Levels: 3, Tick: ms}, origin)
		require.NoError(t, err)
		start := tw.Now()
		var all sync.WaitGroup
		var ran atomic.Int64
		for _, ticks := range []int64{1, 2, size - 1, size, size + 1, size*size - 1, size * size, size*size + 1, size * size * size, 5*size*size*size + 3} {
			d := time.Duration(ticks)*ms + time.Duration(rand.IntN(int(ms)))
			tw.AfterFunc(d, func() {
				ran.Add(1)
				late := tw.Now().Sub(start) - d
				assert.GreaterOrEqual(t, late, time.Duration(0), "epoch %d, delay %v: early", origin, d)
				assert.Less(t, late, ms, "epoch %d, delay %v: late", origin, d)
			})
		}
		all.Wait()
		for tw.Len() > 0 {
			next, ok := tw.Next()
			require.True(t, ok)
			require.True(t, next.After(tw.Now()), "epoch %d: Next is %v before the clock: the caller would spin", origin, tw.Now().Sub(next))
			tw.Advance(next)
			verifyShards(t, tw.engine)
		}
		assert.EqualValues(t, 10, ran.Load())
	}
}

// epochs are clock readings around the wraps of every level, and large ones.
func epochs(size int64) []int64 {
	all := []int64{0, 1, 1<<40 + 1, 1<<62 + 12345}
	for span := int64(ms) * size; span < 1<<58; span *= size {
		all = append(all, span-1, span, span-int64(ms), span-int64(ms)/2, 3*span-2*int64(ms))
	}
	return all
}
