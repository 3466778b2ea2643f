package timingwheel

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryDoesNotDrift(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		plan := tw.ScheduleFunc(Every(7*ms), w.note)
		pass(7000 * ms)
		require.Len(t, w.times, 1000)
		for i, at := range w.times {
			require.Equal(t, 7*(i+1), at)
		}
		assert.True(t, plan.Stop())
	})
}

// A period that is no multiple of the tick: each run is rounded up, and none shifts those that
// follow.
func TestEveryDoesNotAddUpItsRounding(t *testing.T) {
	bubble(t, Options{Tick: 10 * ms}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		tw.ScheduleFunc(Every(15*ms), w.note)
		pass(100 * ms)
		assert.Equal(t, []int{20, 30, 50, 60, 80, 90}, w.times)
	})
}

func TestMissedRunsAreSkippedAndThePhaseKept(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		tw.ScheduleFunc(Every(10*ms), func() {
			w.note()
			time.Sleep(35 * ms)
		})
		pass(200 * ms)
		assert.Equal(t, []int{10, 50, 90, 130, 170}, w.times)
	})
}

// An hour in one run costs the runs of that hour, which are not made up for.
func TestLongRunIsFollowedByOneRun(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		tw.ScheduleFunc(Every(time.Second), func() {
			w.note()
			if len(w.times) == 1 {
				time.Sleep(time.Hour)
			}
		})
		pass(time.Hour + 3500*ms)
		assert.Equal(t, []int{1000, 3602_000, 3603_000}, w.times)
	})
}

// What Next is called with, and when, is part of the contract.
func TestNextIsCalledAsDocumented(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		type call struct{ with, at int }
		var calls []call
		returns := []int{10, 25, 30, 61, 70, 0}
		next := nextFunc(func(from time.Time) time.Time {
			calls = append(calls, call{int(from.Sub(w.start) / ms), w.elapsed()})
			at := returns[0]
			returns = returns[1:]
			if at == 0 {
				return time.Time{}
			}
			return w.start.Add(time.Duration(at) * ms)
		})
		pass(3 * ms)
		plan := tw.ScheduleFunc(next, func() {
			w.note()
			if len(w.times) == 2 {
				time.Sleep(35 * ms) // over 30, until 60
			}
		})
		pass(200 * ms)
		assert.Equal(t, []int{10, 25, 61, 70}, w.times)
		assert.Equal(t, []call{
			{3, 3},   // with now: 10
			{10, 10}, // with the run's planned time: 25
			{25, 25}, // 30, which the run misses
			{60, 60}, // so once more, with now: 61
			{61, 61}, // 70
			{70, 70}, // none
		}, calls)
		assert.False(t, plan.Stop())
		assert.Zero(t, tw.Len())
	})
}

// A plan that begins in the past runs at once; one without runs is never armed.
func TestFirstRun(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		past := true
		tw.ScheduleFunc(nextFunc(func(from time.Time) time.Time {
			if past {
				past = false
				return from.Add(-time.Hour)
			}
			return time.Time{}
		}), w.note)
		pass(10 * ms)
		assert.Equal(t, []int{0}, w.times)

		none := tw.ScheduleFunc(nextFunc(func(time.Time) time.Time { return time.Time{} }), w.note)
		assert.Equal(t, Timer{}, none)
		assert.Zero(t, tw.Len())
		assert.EqualValues(t, 1, tw.Stats().Armed)
	})
}

// Stop during a run answers whether there would have been another one.
func TestStopDuringARun(t *testing.T) {
	for _, runs := range []int{1, 2, 5} {
		bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
			for stopIn := 1; stopIn <= runs; stopIn++ {
				s := &lastRun{period: 10 * ms}
				s.left.Store(int32(runs))
				w := newStopwatch()
				var plan handle
				plan.set(tw.ScheduleFunc(s, func() {
					w.note()
					if len(w.times) == stopIn {
						assert.Equal(t, stopIn < runs, plan.get().Stop(), "run %d of %d", stopIn, runs)
						assert.False(t, plan.get().Stop(), "once")
						assert.False(t, plan.get().Reschedule(0))
					}
				}))
				pass(100 * ms)
				assert.Len(t, w.times, stopIn)
				assert.Zero(t, tw.Len())
				verifyShards(t, tw.engine)
			}
		})
	}
}

// Len counts a plan while it waits, not during a run, and Deadline tells the next run.
func TestPlanIsPendingBetweenRuns(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		start := time.Now()
		plan := tw.ScheduleFunc(Every(10*ms), func() { time.Sleep(5 * ms) })
		assert.Equal(t, 1, tw.Len())
		due, ok := plan.Deadline()
		require.True(t, ok)
		assert.Equal(t, 10*ms, due.Sub(start))
		pass(12 * ms)
		assert.Zero(t, tw.Len(), "during a run")
		assert.Equal(t, 1, tw.Stats().Running)
		_, ok = plan.Deadline()
		assert.False(t, ok)
		pass(5 * ms)
		assert.Equal(t, 1, tw.Len())
		due, ok = plan.Deadline()
		require.True(t, ok)
		assert.Equal(t, 20*ms, due.Sub(start))
	})
}

// A flushed plan runs once and goes on with the run after the one that was flushed.
func TestFlushedPlanGoesOn(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		tw.ScheduleFunc(Every(10*ms), w.note)
		pass(3 * ms)
		assert.Equal(t, 1, tw.Flush())
		pass(40 * ms)
		assert.Equal(t, 3, w.times[0])
		assert.Equal(t, []int{20, 30, 40}, w.times[1:])
	})
}

// Panics and Goexit on fake time: the plan keeps its phase.
func TestPlanKeepsItsPhaseOverPanicAndGoexit(t *testing.T) {
	for _, leave := range []func(){boom, runtime.Goexit} {
		bubble(t, Options{OnPanic: func(any, []byte) {}}, func(t *testing.T, tw *TimingWheel) {
			w := newStopwatch()
			tw.ScheduleFunc(Every(10*ms), func() {
				w.note()
				if len(w.times)%2 == 1 {
					time.Sleep(15 * ms)
					leave()
				}
			})
			pass(75 * ms)
			assert.Equal(t, []int{10, 30, 40, 60, 70}, w.times)
		})
	}
}
