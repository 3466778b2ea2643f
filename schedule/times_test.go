package schedule

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/planner"
)

// runsOf returns the times in ms at which the runs of a plan start within d of fake time. Run n
// takes takes[n-1], or no time if there is none.
func runsOf(t *testing.T, s timingwheel.Scheduler, d time.Duration, takes ...time.Duration) (times []int) {
	t.Helper()
	runInBubble(t, func(t *testing.T, tw *timingwheel.TimingWheel) {
		log := runLog{start: time.Now()}
		tw.ScheduleRun(s, func(r *timingwheel.Run) {
			log.note(r)
			if r.N <= len(takes) {
				time.Sleep(takes[r.N-1])
			}
		})
		sleep(d)
		times = log.started()
	})
	return times
}

func TestEveryKeepsItsPhase(t *testing.T) {
	assert.Equal(t, []int{10, 20, 30, 40}, runsOf(t, timingwheel.Every(10*ms), 45*ms, 0, 5*ms, 9*ms))
}

func TestFixedDelayCountsFromTheEndOfARun(t *testing.T) {
	assert.Equal(t, []int{10, 20, 35, 85}, runsOf(t, FixedDelay(10*ms), 90*ms, 0, 5*ms, 40*ms))
	assert.Equal(t, []int{10, 23, 33}, runsOf(t, Limit(FixedDelay(10*ms), 3), time.Hour, 3*ms))
}

func TestFixedDelayContinuesAfterPanicAndGoexit(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: midnight, OnPanic: func(any, []byte) {}})
		require.NoError(t, err)
		runs := 0
		plan := tw.ScheduleFunc(FixedDelay(10*ms), func() {
			runs++
			leave()
		})
		for at := 10 * ms; at <= 40*ms; at += 10 * ms {
			done := make(chan struct{})
			go func() { // Goexit ends this goroutine
				defer close(done)
				tw.Advance(midnight.Add(at))
			}()
			<-done
		}
		assert.Equal(t, 4, runs, name)
		assert.True(t, plan.Stop(), name)
		tw.Stop()
	}
}

func TestBackoffPausesGrowFromTheEndOfARun(t *testing.T) {
	// The pauses are 10, 20, 40 and 50.
	assert.Equal(t, []int{10, 35, 75, 125, 175}, runsOf(t, Backoff(10*ms, 50*ms), 200*ms, 5*ms))
	assert.Equal(t, []int{8, 20, 38, 65, 92}, runsOf(t, BackoffBy(1.5, 8*ms, 27*ms), 100*ms))
	assert.Equal(t, []int{10, 20, 30}, runsOf(t, BackoffBy(1, 10*ms, 10*ms), 35*ms))
}

func TestBackoffReachesItsMaximumAndStaysThere(t *testing.T) {
	t.Parallel()
	for _, max := range []time.Duration{time.Second, time.Hour, math.MaxInt64} {
		c := planner.For(Backoff(time.Nanosecond, max))
		last := time.Duration(0)
		for _, n := range []int{1, 2, 3, 30, 62, 63, 64, 1000, math.MaxInt32} {
			r := planner.Run{N: n, Planned: midnight}
			pause := ended(c, c.Before(r).Next, midnight).Sub(midnight)
			assert.GreaterOrEqual(t, pause, last, "pause %d", n)
			assert.LessOrEqual(t, pause, max, "pause %d", n)
			last = pause
		}
		assert.Equal(t, max, last)
	}
}

// A retry stops its plan when it has succeeded.
func TestRunStopEndsABackoff(t *testing.T) {
	tw := newManualWheel(t)
	var at []time.Duration
	tw.ScheduleRun(Limit(Backoff(10*ms, time.Second), 10), func(r *timingwheel.Run) {
		at = append(at, tw.Now().Sub(midnight))
		if len(at) == 3 {
			assert.True(t, r.Stop())
		}
	})
	for next, ok := tw.Next(); ok; next, ok = tw.Next() {
		tw.Advance(next)
	}
	assert.Equal(t, []time.Duration{10 * ms, 30 * ms, 70 * ms}, at)
}

func TestLimitEndsAPlan(t *testing.T) {
	assert.Equal(t, []int{10, 20, 30}, runsOf(t, Limit(timingwheel.Every(10*ms), 3), time.Second))
	assert.Equal(t, []int{10, 20}, runsOf(t, Limit(Limit(timingwheel.Every(10*ms), 2), 3), time.Second))
	assert.Equal(t, []int{10, 20}, runsOf(t, Limit(Limit(timingwheel.Every(10*ms), 3), 2), time.Second))
	assert.Empty(t, runsOf(t, Limit(timingwheel.Every(10*ms), 0), time.Second))
	// A long run counts as one, and the runs that are missed because of it do not count.
	assert.Equal(t, []int{10, 50, 60}, runsOf(t, Limit(timingwheel.Every(10*ms), 3), time.Second, 35*ms))
}

// Skipped runs do not count.
func TestLimitCountsOnlyRunsThatTakePlace(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]timingwheel.Scheduler{
		"outside": Limit(MaxLate(timingwheel.Every(10*ms), 0), 2),
		"inside":  MaxLate(Limit(timingwheel.Every(10*ms), 2), 0),
	} {
		tw := newManualWheel(t)
		d := runLog{start: midnight}
		plan := tw.ScheduleRun(s, d.note)
		for _, at := range []time.Duration{15, 20, 39, 45, 50, 60, 70} {
			advance(tw, at*ms)
		}
		assert.Equal(t, []loggedRun{{20, 20}, {50, 50}}, d.runs, name)
		assert.False(t, plan.Stop(), name)
		assert.Zero(t, tw.Len(), name)
	}
}

// Timer.Stop and Run.Stop return false during the last run, and true during any other run.
func TestStopDuringLastRunOfALimitReturnsFalse(t *testing.T) {
	t.Parallel()
	for stopIn := 1; stopIn <= 3; stopIn++ {
		for name, stop := range map[string]func(timingwheel.Timer, *timingwheel.Run) bool{
			"plan": func(plan timingwheel.Timer, _ *timingwheel.Run) bool { return plan.Stop() },
			"run":  func(_ timingwheel.Timer, r *timingwheel.Run) bool { return r.Stop() },
		} {
			tw := newManualWheel(t)
			runs := 0
			var plan timingwheel.Timer
			plan = tw.ScheduleRun(Limit(timingwheel.Every(10*ms), 3), func(r *timingwheel.Run) {
				if runs++; runs == stopIn {
					assert.Equal(t, stopIn < 3, stop(plan, r), "%s in run %d of 3", name, runs)
				}
			})
			for at := 10 * ms; at < 100*ms; at += 10 * ms {
				advance(tw, at)
			}
			assert.Equal(t, stopIn, runs)
		}
	}
}

func TestUntilEndsAPlan(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		until time.Duration
		s     timingwheel.Scheduler
		steps []time.Duration
		want  []loggedRun
	}{
		"before the first run": {9, timingwheel.Every(10 * ms), []time.Duration{10, 20}, nil},
		"at a run":             {20, timingwheel.Every(10 * ms), []time.Duration{10, 20, 30}, []loggedRun{{10, 10}, {20, 20}}},
		"in between":           {29, timingwheel.Every(10 * ms), []time.Duration{10, 20, 30}, []loggedRun{{10, 10}, {20, 20}}},
		"late but planned":     {20, timingwheel.Every(10 * ms), []time.Duration{10, 38, 40}, []loggedRun{{10, 10}, {20, 38}}},
		"skipped to the end":   {50, MaxLate(timingwheel.Every(10*ms), 0), []time.Duration{10, 55, 60}, []loggedRun{{10, 10}}},
		"all that were missed": {30, WithMisfire(timingwheel.Every(10*ms), RunAll), []time.Duration{10, 55, 60}, []loggedRun{{10, 10}, {20, 55}, {30, 55}}},
		"delay":                {34, FixedDelay(10 * ms), []time.Duration{10, 25, 40}, []loggedRun{{10, 10}, {20, 25}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := newManualWheel(t)
			d := runLog{start: midnight}
			plan := tw.ScheduleRun(Until(row.s, midnight.Add(row.until*ms)), d.note)
			for _, at := range row.steps {
				advance(tw, at*ms)
			}
			assert.Equal(t, row.want, d.runs)
			assert.False(t, plan.Stop(), "ended")
			assert.Zero(t, tw.Len())
		})
	}
}

// draws returns a function that returns the given delays in ms over and over.
func draws(d ...time.Duration) func() time.Duration {
	i := -1
	return func() time.Duration {
		i++
		return d[i%len(d)] * ms
	}
}

func TestJitterDelaysDoNotAccumulate(t *testing.T) {
	assert.Equal(t, []int{13, 20, 39, 41, 53}, runsOf(t, jitter(timingwheel.Every(10*ms), draws(3, 0, 9, 1)), 55*ms))
}

// A run ends after the nominal time of the next run, but before its delayed time. The next run is
// not missed.
func TestJitteredRunIsNotMissedBeforeItsDelayedTime(t *testing.T) {
	assert.Equal(t, []int{10, 28, 30}, runsOf(t, jitter(timingwheel.Every(10*ms), draws(0, 8, 0)), 35*ms, 15*ms))
}

func TestJitterAfterMissedRuns(t *testing.T) {
	// The run of 10+2 takes until 42, and 20+2 is missed. With a delay of 2 the first run after 42
	// is the run of 50, at 52.
	assert.Equal(t, []int{12, 52, 62}, runsOf(t, jitter(timingwheel.Every(10*ms), draws(2)), 65*ms, 30*ms))
	// If the run takes until 41, the run of 40 is still to come, at 42.
	assert.Equal(t, []int{12, 42, 52}, runsOf(t, jitter(timingwheel.Every(10*ms), draws(2)), 55*ms, 29*ms))
}

func TestJitterOfAFixedDelay(t *testing.T) {
	// The run of 10+1 takes until 16. The next ones are 26+2 and 38+3. The second draw is for a run
	// at 21, which is planned again when the first run has ended.
	assert.Equal(t, []int{11, 28, 41}, runsOf(t, jitter(FixedDelay(10*ms), draws(1, 0, 2, 3)), 45*ms, 5*ms))
}

func TestJitterAfterReschedule(t *testing.T) {
	runInBubble(t, func(t *testing.T, tw *timingwheel.TimingWheel) {
		d := runLog{start: time.Now()}
		plan := tw.ScheduleRun(jitter(timingwheel.Every(10*ms), draws(1)), d.note)
		require.True(t, plan.Reschedule(5*ms))
		sleep(40 * ms)
		assert.Equal(t, []int{5, 16, 26, 36}, d.started(), "a rescheduled run has no jitter")
	})
}

func TestJitterOfTheWholeRangeDoesNotOverflow(t *testing.T) {
	t.Parallel()
	for range 100 {
		next := Jitter(timingwheel.Every(time.Second), math.MaxInt64).Next(midnight)
		assert.False(t, next.Before(midnight.Add(time.Second)))
	}
	assert.Equal(t, midnight.Add(time.Second), Jitter(timingwheel.Every(time.Second), 0).Next(midnight))
}

func TestOrderOfWrappersMatters(t *testing.T) {
	until := time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC) // the start of each bubble
	assert.Equal(t, []int{11, 22, 33},
		runsOf(t, Limit(jitter(Until(timingwheel.Every(10*ms), until.Add(time.Hour)), draws(1, 2, 3, 4)), 3), time.Second))
	assert.Equal(t, []int{11, 22},
		runsOf(t, Limit(jitter(Until(timingwheel.Every(10*ms), until.Add(25*ms)), draws(1, 2, 3, 4)), 3), time.Second))
	// Until sees the delayed times: the run of 30 would be at 33.
	assert.Equal(t, []int{11, 22},
		runsOf(t, Until(jitter(timingwheel.Every(10*ms), draws(1, 2, 3, 4)), until.Add(32*ms)), time.Second))
	// Two jitters.
	assert.Equal(t, []int{13, 26, 33},
		runsOf(t, jitter(jitter(timingwheel.Every(10*ms), draws(1, 2)), draws(2, 4)), 40*ms))
}

// Two plans use one Scheduler at the same time. Each has its own count and backoff.
func TestOneSchedulerServesSeveralPlans(t *testing.T) {
	runInBubble(t, func(t *testing.T, tw *timingwheel.TimingWheel) {
		s := WithMisfire(Limit(Backoff(10*ms, time.Second), 3), RunAll)
		a, b := runLog{start: time.Now()}, runLog{start: time.Now()}
		tw.ScheduleRun(s, a.note)
		sleep(15 * ms)
		tw.ScheduleRun(s, b.note)
		sleep(time.Second)
		assert.Equal(t, []int{10, 30, 70}, a.started())
		assert.Equal(t, []int{25, 45, 85}, b.started())
	})
}

// A wrapper calls a Scheduler with state as often as a plan without a wrapper does: once at the
// start, once for each run, and once more after a missed run.
func TestWrapperCallsStatefulSchedulerOncePerRun(t *testing.T) {
	runInBubble(t, func(t *testing.T, tw *timingwheel.TimingWheel) {
		for name, wrap := range map[string]func(timingwheel.Scheduler) timingwheel.Scheduler{
			"none":  func(s timingwheel.Scheduler) timingwheel.Scheduler { return s },
			"limit": func(s timingwheel.Scheduler) timingwheel.Scheduler { return Limit(s, 100) },
			"both": func(s timingwheel.Scheduler) timingwheel.Scheduler {
				return Jitter(Until(s, time.Now().Add(time.Hour)), 0)
			},
		} {
			list := &list{time.Now(), []time.Duration{10, 20, 30, 70, 80}}
			d := runLog{start: time.Now()}
			tw.ScheduleRun(wrap(list), func(r *timingwheel.Run) {
				d.note(r)
				if r.N == 2 {
					time.Sleep(45 * ms) // 30 is missed, so Next is called once more
				}
			})
			sleep(time.Second)
			assert.Equal(t, []int{10, 20, 70, 80}, d.started(), name)
		}
	})
}

// list is a Scheduler that returns its times in order and ignores the argument of Next.
type list struct {
	start time.Time
	times []time.Duration
}

func (l *list) Next(time.Time) time.Time {
	if len(l.times) == 0 {
		return time.Time{}
	}
	next := l.start.Add(l.times[0] * ms)
	l.times = l.times[1:]
	return next
}
