package timingwheel

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/planner"
)

// asPlan returns the plan of a handle.
func asPlan(t Timer) *plan { return t.ref.plan.(*plan) }

// With an int of 32 bits, a plan that runs each millisecond reaches math.MaxInt after 25 days.
func TestRunNumberStaysAtMaxInt(t *testing.T) {
	t.Parallel()
	tw, err := New(Options{Manual: true})
	require.NoError(t, err)
	defer tw.Stop()
	var numbers []int
	f := func(r *Run) { numbers = append(numbers, r.N) }
	tw.startPlan(&plan{planner: planner.Every(ms), n: math.MaxInt - 1, withRun: f}, f)
	for range 3 {
		tw.Advance(tw.Now().Add(ms))
	}
	assert.Equal(t, []int{math.MaxInt, math.MaxInt, math.MaxInt}, numbers)
}

// A move of a plan to the tick for which it is planned changes nothing.
func TestRescheduleOfAPlanToTheSameTick(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	tw := startWheel(t, Options{Manual: true, Start: start})
	var planned []time.Duration
	plan := tw.ScheduleRun(Every(1500*time.Microsecond), func(r *Run) { planned = append(planned, r.Planned.Sub(start)) })
	at, ok := plan.Deadline()
	require.True(t, ok)
	require.True(t, plan.RescheduleAt(at))
	for k := range 5 {
		tw.Advance(start.Add(time.Duration(k+1) * ms))
	}
	require.Equal(t, []time.Duration{1500 * time.Microsecond, 3 * ms, 4500 * time.Microsecond}, planned)
}

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

// The period is not a multiple of the tick. Each run is rounded up to a tick, and no run shifts the
// next ones.
func TestEveryDoesNotAccumulateRounding(t *testing.T) {
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

// A run takes an hour. The runs that were missed meanwhile are not replayed.
func TestRunsMissedDuringALongRunAreNotReplayed(t *testing.T) {
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

// The arguments of Next and the times of its calls are part of the contract.
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
				time.Sleep(35 * ms) // until 60, so the run at 30 is missed
			}
		})
		pass(200 * ms)
		assert.Equal(t, []int{10, 25, 61, 70}, w.times)
		assert.Equal(t, []call{
			{3, 3},   // with the current time; returns 10
			{10, 10}, // with the planned time of the run; returns 25
			{25, 25}, // returns 30, which is missed
			{60, 60}, // once more with the current time; returns 61
			{61, 61}, // returns 70
			{70, 70}, // returns no further run
		}, calls)
		assert.False(t, plan.Stop())
		assert.Zero(t, tw.Len())
	})
}

// A plan that begins in the past runs at once. A plan without runs is not armed.
func TestFirstRunInThePastStartsAtOnce(t *testing.T) {
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

// Stop during a run returns true if and only if another run would have followed.
func TestStopDuringARunTellsWhetherAnotherWouldFollow(t *testing.T) {
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
						assert.False(t, plan.get().Stop(), "a second Stop")
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

// Between two runs Len counts the plan and Deadline returns the next run. During a run they do not.
func TestPlanIsPendingBetweenRunsOnly(t *testing.T) {
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

// A flushed plan runs once and continues with the run after the flushed one.
func TestFlushedPlanContinues(t *testing.T) {
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

func TestPlanKeepsItsPhaseAfterPanicAndGoexit(t *testing.T) {
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

// Reschedule between runs moves the next run, and the plan continues from the new time.
func TestRescheduleBetweenRunsMovesTheNextRun(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		plan := tw.ScheduleFunc(Every(10*ms), w.note)
		require.True(t, plan.Reschedule(3*ms))
		pass(25 * ms)
		assert.Equal(t, []int{3, 13, 23}, w.times, "earlier")

		w.times = nil
		require.True(t, plan.Reschedule(30*ms)) // at 55
		pass(55 * ms)
		assert.Equal(t, []int{55, 65, 75}, w.times, "later")
	})
}

func TestRescheduleDuringARunSetsTheNextRun(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		var plan handle
		plan.set(tw.ScheduleFunc(Every(10*ms), func() {
			w.note()
			if len(w.times) == 1 {
				assert.True(t, plan.get().Reschedule(time.Hour))
				assert.True(t, plan.get().Reschedule(3*ms), "the last Reschedule wins")
			}
		}))
		pass(40 * ms)
		assert.Equal(t, []int{10, 13, 23, 33}, w.times)
	})
}

// Another goroutine calls Reschedule during a run, with a time that passes before the run has
// ended.
func TestRescheduleToATimeWithinTheRunDoesNotOverlap(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		plan := tw.ScheduleFunc(Every(100*ms), func() {
			w.note()
			time.Sleep(20 * ms)
		})
		pass(105 * ms)
		require.True(t, plan.Reschedule(5*ms))
		pass(20 * ms)
		assert.Equal(t, []int{100, 120}, w.times, "at once when the run has ended, not during it")
		assert.True(t, plan.Stop())
	})
}

func TestRescheduleDuringTheLastRunReturnsFalse(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		s := &lastRun{period: 10 * ms}
		s.left.Store(1)
		w := newStopwatch()
		var plan handle
		plan.set(tw.ScheduleFunc(s, func() {
			w.note()
			assert.False(t, plan.get().Reschedule(0))
		}))
		pass(50 * ms)
		assert.Equal(t, []int{10}, w.times)
		assert.Zero(t, tw.Len())
		verifyShards(t, tw.engine)
	})
}

// A panic of Next in ScheduleFunc goes to the caller. A later panic of Next counts as a panic of
// the run and ends the plan.
func TestPanicOfNextEndsThePlan(t *testing.T) {
	for name, panicsIn := range map[string]int{"ScheduleFunc": 1, "first run": 2, "second run": 3} {
		t.Run(name, func(t *testing.T) {
			var reported []any
			bubble(t, Options{OnPanic: func(v any, _ []byte) { reported = append(reported, v) }}, func(t *testing.T, tw *TimingWheel) {
				calls := 0
				next := nextFunc(func(from time.Time) time.Time {
					if calls++; calls == panicsIn {
						boom()
					}
					return from.Add(10 * ms)
				})
				w := newStopwatch()
				if panicsIn == 1 {
					assert.PanicsWithValue(t, "boom", func() { tw.ScheduleFunc(next, w.note) })
					assert.Zero(t, tw.Len())
					return
				}
				plan := tw.ScheduleFunc(next, w.note)
				pass(100 * ms)
				assert.Equal(t, []any{"boom"}, reported)
				assert.Len(t, w.times, panicsIn-2)
				requireEnded(t, tw, plan)
			})
		})
	}
}

// Next panics in the additional call that follows a missed run.
func TestPanicOfNextAfterAMissedRunEndsThePlan(t *testing.T) {
	var reported []any
	bubble(t, Options{OnPanic: func(v any, _ []byte) { reported = append(reported, v) }}, func(t *testing.T, tw *TimingWheel) {
		calls := 0
		w := newStopwatch()
		plan := tw.ScheduleFunc(nextFunc(func(from time.Time) time.Time {
			if calls++; calls == 3 {
				boom()
			}
			return from.Add(10 * ms)
		}), func() {
			w.note()
			time.Sleep(20 * ms)
		})
		pass(100 * ms)
		assert.Equal(t, []any{"boom"}, reported)
		assert.Equal(t, []int{10}, w.times)
		requireEnded(t, tw, plan)
	})
}

// Next reschedules the plan and then panics. If Reschedule returned true, the run takes place.
func TestRescheduleBeforeAPanicOfNextHolds(t *testing.T) {
	bubble(t, Options{OnPanic: func(any, []byte) {}}, func(t *testing.T, tw *TimingWheel) {
		var plan handle
		calls := 0
		w := newStopwatch()
		promised := false
		plan.set(tw.ScheduleFunc(nextFunc(func(from time.Time) time.Time {
			if calls++; calls == 2 {
				promised = plan.get().Reschedule(5 * ms)
				boom()
			}
			if calls > 2 {
				return time.Time{}
			}
			return from.Add(10 * ms)
		}), w.note))
		pass(100 * ms)
		if promised {
			assert.Equal(t, []int{15}, w.times)
		} else {
			assert.Empty(t, w.times)
		}
		requireEnded(t, tw, plan.get())
	})
}

// requireEnded asserts that the plan has ended and that nothing of it is left.
func requireEnded(t *testing.T, tw *TimingWheel, plan Timer) {
	t.Helper()
	assert.Zero(t, tw.Len())
	assert.Zero(t, tw.Stats().Running)
	assert.False(t, plan.Reschedule(0), "Reschedule of an ended plan")
	assert.False(t, plan.Stop(), "Stop of an ended plan")
	verifyShards(t, tw.engine)
}

// Stop or Reschedule comes after the claim of a run and before the plan knows whether it is the
// last run. In this test Next calls them. Both return true, so the run does not take place, or only
// at its new time.
func TestStopAndRescheduleBeforeAClaimedRunBegins(t *testing.T) {
	for name, row := range map[string]struct {
		act  func(Timer) bool
		next time.Duration // the further run that Next then returns; 0: none
		want []int
	}{
		"Stop":                       {Timer.Stop, 10 * ms, []int{10}},
		"Stop of the last run":       {Timer.Stop, 0, []int{10}},
		"Reschedule of the last run": {func(plan Timer) bool { return plan.Reschedule(5 * ms) }, 0, []int{10, 25}},
	} {
		for kind, planned := range map[string]func(nextFunc) Scheduler{
			"Scheduler": func(next nextFunc) Scheduler { return next },
			"Factory":   func(next nextFunc) Scheduler { return asPlanner{next} },
		} {
			bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
				var plan handle
				calls := 0
				w := newStopwatch()
				plan.set(tw.ScheduleFunc(planned(func(from time.Time) time.Time {
					calls++
					if calls < 3 {
						return from.Add(10 * ms)
					}
					if calls == 3 {
						assert.True(t, row.act(plan.get()))
					}
					if row.next == 0 {
						return time.Time{}
					}
					return from.Add(row.next)
				}), w.note))
				pass(100 * ms)
				assert.Equal(t, row.want, w.times, "%s of a %s", name, kind)
				requireEnded(t, tw, plan.get())
			})
		}
	}
}

// Stop, Reschedule and the Stop of the wheel come between the claim of a run and the question to
// the planner, or during that question.
func TestPlanStoppedOrMovedRightAfterAClaim(t *testing.T) {
	t.Parallel()
	stop := func(_ *TimingWheel, plan Timer) { plan.Stop() }
	reschedule := func(_ *TimingWheel, plan Timer) { plan.Reschedule(5 * ms) }
	stopWheel := func(tw *TimingWheel, _ Timer) { tw.Stop() }
	for name, row := range map[string]struct {
		act  func(tw *TimingWheel, plan Timer)
		last int // the run after which the plan ends
		want []int
	}{
		"Stop":                               {stop, 5, []int{10}},
		"Stop of the last run":               {stop, 2, []int{10}},
		"Reschedule":                         {reschedule, 4, []int{10, 20, 25, 35}},
		"Reschedule of the last run":         {reschedule, 2, []int{10, 25}},
		"Stop of the wheel":                  {stopWheel, 5, []int{10}},
		"Stop of the wheel for the last run": {stopWheel, 2, []int{10}},
	} {
		for kind, planned := range map[string]func(nextFunc) Scheduler{
			"Scheduler": func(next nextFunc) Scheduler { return next },
			"Factory":   func(next nextFunc) Scheduler { return asPlanner{next} },
		} {
			for _, when := range []string{"claimed", "asked"} {
				start := time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)
				var tw *TimingWheel
				var plan Timer
				var runs []int
				claims, questions := 0, 0
				tw = startWheel(t, Options{Manual: true, Start: start})
				end := start.Add(time.Duration(10*row.last) * ms)
				plan = tw.ScheduleFunc(planned(func(from time.Time) time.Time {
					if questions++; questions == 3 && when == "asked" {
						row.act(tw, plan)
					}
					if next := from.Add(10 * ms); !next.After(end) {
						return next
					}
					return time.Time{}
				}), func() { runs = append(runs, int(tw.Now().Sub(start)/ms)) })
				timer := &asPlan(plan).timer
				run := timer.f
				timer.f = func() {
					if claims++; claims == 2 && when == "claimed" {
						row.act(tw, plan)
					}
					run()
				}
				for at := range 100 {
					tw.Advance(start.Add(time.Duration(at) * ms))
				}
				assert.Equal(t, row.want, runs, "%s of a %s when %s", name, kind, when)
				requireEnded(t, tw, plan)
			}
		}
	}
}

// A Scheduler that always returns a past time makes its plan run without a pause. The plan delays
// no other timer.
func TestPlanThatIsAlwaysLateDelaysNoOtherTimer(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Executor: executor(t), Shards: 1})
			plan := tw.ScheduleFunc(nextFunc(func(time.Time) time.Time { return time.Unix(0, 0) }), func() {})
			ran := make(chan struct{})
			for range 3 {
				tw.AfterFunc(5*ms, func() { ran <- struct{}{} })
				receive(t, ran, "another timer")
			}
			assert.True(t, plan.Stop())
			require.NoError(t, drainWheel(tw))
		})
	}
}

// planTrial is a plan that another goroutine stops.
type planTrial struct {
	timer  Timer
	runs   atomic.Int64
	inside atomic.Int32
	over   atomic.Bool
}

func (p *planTrial) run() {
	if p.inside.Add(1) != 1 {
		p.over.Store(true)
	}
	p.runs.Add(1)
	p.inside.Add(-1)
}

// Stop ends a plan that is pending, due, running or about to be armed again. One run may have been
// claimed before the Stop and start after it. No other run starts.
func TestRaceStopEndsAPlanInEachState(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{WheelSize: 8, Levels: 2, Tick: minTick, Shards: 2})
	trials := make([]planTrial, scaled(20_000))
	stoppedAt := make([]int64, len(trials))
	var next atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(trials); i = int(next.Add(1)) - 1 {
				p := &trials[i]
				p.timer = tw.ScheduleFunc(Every(time.Microsecond+rand.N(20*time.Microsecond)), p.run)
				spin(rand.N(40 * time.Microsecond))
				if !assert.True(t, p.timer.Stop(), "an endless plan can always be stopped") {
					return
				}
				stoppedAt[i] = p.runs.Load()
			}
		})
	}
	all.Wait()
	require.NoError(t, drainWheel(tw))
	ends := make([]int64, len(trials))
	during := 0
	for i := range trials {
		ends[i] = trials[i].runs.Load()
		if ends[i] > stoppedAt[i]+1 {
			t.Fatalf("%d runs when stopped, %d at the end", stoppedAt[i], ends[i])
		}
		during += int(min(stoppedAt[i], 1))
		if trials[i].over.Load() {
			t.Fatal("runs overlapped")
		}
	}
	assert.NotZero(t, during, "no plan ran before its Stop, so the test has tested nothing")
	time.Sleep(20 * time.Millisecond)
	for i := range trials {
		if trials[i].runs.Load() != ends[i] || trials[i].timer.Stop() {
			t.Fatal("a stopped plan has continued")
		}
	}
}

// If two goroutines call Stop at once, exactly one call returns true.
func TestRaceOneOfTwoStopsOfAPlanReturnsTrue(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{WheelSize: 2, Levels: 2, Tick: minTick, Shards: 1})
	for range max(scaled(1000), 100) {
		plan := tw.ScheduleFunc(Every(3*time.Microsecond), func() {})
		var stopped atomic.Int32
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				spin(rand.N(20 * time.Microsecond))
				if plan.Stop() {
					stopped.Add(1)
				}
			})
		}
		both.Wait()
		require.EqualValues(t, 1, stopped.Load())
	}
	require.NoError(t, drainWheel(tw))
}

// lastRun is a Scheduler of a limited number of runs, a period apart.
type lastRun struct {
	period time.Duration
	left   atomic.Int32
}

func (s *lastRun) Next(t time.Time) time.Time {
	if s.left.Add(-1) < 0 {
		return time.Time{}
	}
	return t.Add(s.period)
}

// A plan of a few runs is stopped at a random time. If Stop returns false, all runs have begun.
func TestRaceStopOfAFinitePlanIsExact(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{WheelSize: 4, Levels: 2, Tick: minTick, Shards: 1})
	const n = 3
	for range max(scaled(2000), 200) {
		// With a shorter period runs may be missed, and Next would be called once more.
		s := &lastRun{period: 30 * time.Microsecond}
		s.left.Store(n)
		var runs atomic.Int64
		plan := tw.ScheduleFunc(s, func() { runs.Add(1) })
		spin(rand.N(150 * time.Microsecond))
		if plan.Stop() {
			continue
		}
		require.Negative(t, s.left.Load(), "Stop returned false although runs are left")
		require.False(t, plan.Stop())
		require.False(t, plan.Reschedule(0))
	}
	require.NoError(t, drainWheel(tw))
	verifyShards(t, tw.engine)
}

// serial is a Scheduler that detects concurrent calls of Next.
type serial struct {
	inside atomic.Int32
	over   atomic.Bool
}

func (s *serial) Next(t time.Time) time.Time {
	if s.inside.Add(1) != 1 {
		s.over.Store(true)
	}
	defer s.inside.Add(-1)
	runtime.Gosched()
	return t.Add(rand.N(20*time.Microsecond) - 5*time.Microsecond)
}

// Runs and calls of Next do not overlap, in spite of Reschedule, Flush and slow runs.
func TestRacePlanRunsAndNextAreSerial(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{WheelSize: 4, Levels: 2, Tick: minTick, Shards: 1, Executor: executor(t)})
			var s serial
			var p planTrial
			plan := tw.ScheduleFunc(&s, func() {
				p.run()
				spin(rand.N(30 * time.Microsecond))
			})
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for range max(scaled(300), 30) {
						assert.True(t, plan.Reschedule(rand.N(100*time.Microsecond)), "the plan has no end")
						spin(rand.N(20 * time.Microsecond))
						tw.Flush()
					}
				})
			}
			all.Wait()
			runs := p.runs.Load()
			await(t, "a further run", func() bool { return p.runs.Load() > runs })
			assert.True(t, plan.Stop())
			require.NoError(t, drainWheel(tw))
			assert.False(t, p.over.Load(), "runs overlapped")
			assert.False(t, s.over.Load(), "calls of Next overlapped")
			verifyShards(t, tw.engine)
		})
	}
}

// A plan continues after a panic and after Goexit in a run, with every executor.
func TestPlanContinuesAfterPanicAndGoexit(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		for how, leave := range map[string]func(){"panic": boom, "Goexit": runtime.Goexit} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				var reported atomic.Int64
				tw := startWheel(t, Options{
					Shards: 1, Executor: executor(t),
					OnPanic: func(any, []byte) { reported.Add(1) },
				})
				var runs atomic.Int64
				plan := tw.ScheduleFunc(Every(time.Millisecond), func() {
					runs.Add(1)
					leave()
				})
				await(t, "five runs", func() bool { return runs.Load() >= 5 })
				assert.True(t, plan.Stop())
				require.NoError(t, drainWheel(tw))
				if how == "panic" {
					assert.Equal(t, runs.Load(), reported.Load())
				} else {
					assert.Zero(t, reported.Load())
				}
				verifyShards(t, tw.engine)
			})
		}
	}
}

// Stop comes when a worker has claimed a run of a plan and is about to read its payload. Stop must
// not clear the payload, and must not give the slot to another timer, whose payload the worker
// would then run.
func TestStopOfAClaimedPlanKeepsItsPayload(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Tick: minTick, Shards: 1})
	var wrong atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range max(scaled(5000), 500) {
				var plan Timer
				var gone atomic.Bool
				var once atomic.Int32
				plan = tw.ScheduleFunc(Every(time.Microsecond), func() {
					if gone.Load() && once.Add(1) > 1 {
						wrong.Add(1)
					}
				})
				for k := 0; k < 20 && !plan.Reschedule(0); k++ {
				}
				runtime.Gosched()
				plan.Stop()
				gone.Store(true)
				for range 2 { // the slot's next timers
					tw.AfterFunc(time.Hour, func() { wrong.Add(1) }).Stop()
				}
			}
		})
	}
	all.Wait()
	require.NoError(t, drainWheel(tw))
	assert.Zero(t, wrong.Load())
	verifyShards(t, tw.engine)
	s := tw.engine.shards[0]
	s.armMu.Lock()
	defer s.armMu.Unlock()
	used := 0
	for p := range s.slots.Pager.Len() {
		used += s.slots.Pager.Used(p)
	}
	assert.Equal(t, len(s.inbox.free), used, "slots have leaked")
}

// Plans of all kinds end by Stop, after their last run, or by a panic. Each releases its slot once.
func TestEndedPlansReleaseTheirSlots(t *testing.T) {
	t.Parallel()
	for name, executor := range map[string]Executor{"default": nil, "Goroutines": Goroutines, "Inline": Inline} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Shards: 1, Tick: minTick, Executor: executor, OnPanic: func(any, []byte) {}})
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for range max(scaled(2000), 200) {
						var plan Timer
						ends := []func(){func() {}, func() {}, runtime.Goexit, func() { panic("run") }, func() { plan.Stop() }, func() { plan.Reschedule(0) }}
						end := ends[rand.N(len(ends))]
						written := make(chan struct{})
						f := func() {
							<-written
							end()
						}
						last := &lastRun{period: rand.N(100 * time.Microsecond)}
						last.left.Store(rand.N(int32(4)))
						switch rand.N(4) {
						case 0:
							plan = tw.ScheduleFunc(Every(1+rand.N(100*time.Microsecond)), f)
						case 1:
							plan = tw.ScheduleFunc(last, f)
						case 2:
							plan = tw.ScheduleRun(last, func(*Run) { f() })
						case 3:
							plan = tw.ScheduleRun(overlapping(3), func(*Run) { f() })
						}
						close(written)
						spin(rand.N(200 * time.Microsecond))
						plan.Stop()
					}
				})
			}
			all.Wait()
			require.NoError(t, drainWheel(tw))
			verifyShards(t, tw.engine)
			await(t, "the release of all slots", func() bool {
				tw.Len()
				s := tw.engine.shards[0]
				s.wheelMu.Lock()
				defer s.wheelMu.Unlock()
				s.armMu.Lock()
				defer s.armMu.Unlock()
				used := 0
				for p := range s.slots.Pager.Len() {
					used += s.slots.Pager.Used(p)
				}
				return used == len(s.inbox.free)+len(s.owner.freed)
			})
		})
	}
}

// at returns a step to the time that is after ms later than t.
func at(t time.Time, after int) planner.Step {
	return planner.Step{Next: t.Add(time.Duration(after) * ms)}
}

// The questions to a planner and their times are part of the contract.
func TestPlannerIsAskedAsDocumented(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		since := func(t time.Time) int {
			if t.IsZero() {
				return -1
			}
			return int(t.Sub(w.start) / ms)
		}
		type row struct{ n, planned, started, finished int }
		var asked []row
		said := []int{10, 25, 20, 30, 44, 50, 0}
		s := plannerFunc(func(q question) planner.Step {
			asked = append(asked, row{q.N, since(q.Planned), since(q.Started), since(q.finished)})
			answer := said[0]
			said = said[1:]
			if answer == 0 {
				return planner.Step{}
			}
			return at(w.start, answer)
		})
		pass(3 * ms)
		plan := tw.ScheduleFunc(s, func() {
			w.note()
			time.Sleep(12 * ms)
		})
		pass(200 * ms)
		assert.Equal(t, []row{
			{0, 3, 3, 3},    // answer for the first run: 10
			{1, 10, 10, -1}, // answer before the run: 25
			{1, 10, 10, 22}, // after the run: 20, which has passed, so the run starts at once
			{2, 20, 22, -1}, // before: 30
			{2, 20, 22, 34}, // after: 44
			{3, 44, 44, -1}, // before: 50
			{3, 44, 44, 56}, // after: no further run
		}, asked)
		assert.Equal(t, []int{10, 22, 44}, w.times)
		requireEnded(t, tw, plan)
	})
}

func TestScheduleRunPassesNumberAndTimesOfTheRun(t *testing.T) {
	for name, s := range map[string]Scheduler{
		"Every":     Every(10 * ms),
		"Scheduler": nextFunc(Every(10 * ms).Next),
		"Factory":   plannerFunc(func(q question) planner.Step { return at(q.Started, 10) }),
	} {
		bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
			start := time.Now()
			var runs []*Run
			plan := tw.ScheduleRun(s, func(r *Run) { runs = append(runs, r) })
			pass(25 * ms)
			require.Len(t, runs, 2, name)
			for i, r := range runs {
				due := start.Add(time.Duration(10*(i+1)) * ms)
				assert.Equal(t, i+1, r.N, name)
				assert.True(t, r.Planned.Equal(due), "%s: %v", name, r.Planned)
				assert.True(t, r.Started.Equal(due), "%s: %v", name, r.Started)
			}
			require.True(t, plan.Reschedule(8*ms))
			pass(8 * ms)
			require.Len(t, runs, 3, name)
			assert.True(t, runs[2].Planned.Equal(start.Add(33*ms)), "%s: Planned is not the time of Reschedule", name)
		})
	}
}

// ScheduleRun plans the same runs as ScheduleFunc.
func TestScheduleRunSkipsMissedRuns(t *testing.T) {
	for name, s := range map[string]Scheduler{"Every": Every(10 * ms), "Scheduler": nextFunc(Every(10 * ms).Next)} {
		bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
			a, b := newStopwatch(), newStopwatch()
			tw.ScheduleFunc(s, func() {
				a.note()
				time.Sleep(35 * ms)
			})
			tw.ScheduleRun(s, func(*Run) {
				b.note()
				time.Sleep(35 * ms)
			})
			pass(200 * ms)
			require.NotEmpty(t, a.times)
			assert.Equal(t, a.times, b.times, name)
		})
	}
}

// A run may stop its own plan, even before ScheduleRun has returned. No run follows.
func TestRaceRunStopsItsPlanFromTheFirstRunOn(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Tick: minTick, Shards: 1, Executor: executor(t)})
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for i := range max(scaled(2000), 200) {
						last := 1 + i%3
						stopped := make(chan bool, 1)
						var runs atomic.Int64
						plan := tw.ScheduleRun(Every(time.Microsecond), func(r *Run) {
							runs.Add(1)
							if r.N == last {
								stopped <- r.Stop()
							}
						})
						if !receive(t, stopped, "the run that stops its plan") {
							t.Error("Stop returned false although another run was planned")
						}
						if plan.Stop() || runs.Load() != int64(last) {
							t.Errorf("%d runs of a plan that was stopped in run %d", runs.Load(), last)
						}
					}
				})
			}
			all.Wait()
			require.NoError(t, drainWheel(tw))
			verifyShards(t, tw.engine)
		})
	}
}

// Stop of a Run returns true if and only if it prevented further runs, during the run and
// afterwards.
func TestStopOfARunIsExact(t *testing.T) {
	for _, runs := range []int{1, 2, 5} {
		for stopIn := 1; stopIn <= runs; stopIn++ {
			for _, later := range []bool{false, true} {
				bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
					s := &lastRun{period: 10 * ms}
					s.left.Store(int32(runs))
					var kept []*Run
					tw.ScheduleRun(s, func(r *Run) {
						if kept = append(kept, r); r.N == stopIn && !later {
							assert.Equal(t, stopIn < runs, r.Stop(), "run %d of %d", stopIn, runs)
							assert.False(t, r.Stop(), "a second Stop")
						}
					})
					pass(time.Duration(10*stopIn+5) * ms)
					require.Len(t, kept, stopIn)
					if later {
						assert.Equal(t, stopIn < runs, kept[0].Stop(), "the first run, after run %d of %d", stopIn, runs)
					}
					pass(100 * ms)
					require.Len(t, kept, stopIn)
					for i, r := range kept {
						assert.Equal(t, i+1, r.N, "a Run has changed after its end")
						assert.False(t, r.Stop())
					}
					assert.Zero(t, tw.Len())
					verifyShards(t, tw.engine)
				})
			}
		}
	}
	assert.False(t, new(Run).Stop(), "Stop of the zero Run")
}

func TestPlannerWithoutRunsGivesTheZeroTimer(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		assert.Equal(t, Timer{}, tw.ScheduleFunc(plannerFunc(func(question) planner.Step { return planner.Step{} }), w.note))
		pass(ms)
		assert.Empty(t, w.times)
		assert.Zero(t, tw.Len())
	})
}

func TestScheduleRunWithNilPanics(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		assert.Panics(t, func() { tw.ScheduleRun(nil, func(*Run) {}) })
		assert.Panics(t, func() { tw.ScheduleRun(Every(ms), nil) })
	})
}

// An omitted run does not take place, and the next run gets its number.
func TestOmittedRunsDoNotCount(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		var numbers []int
		asked := 0
		tw.ScheduleRun(plannerFunc(func(q question) planner.Step {
			asked++
			step := at(q.Planned, 10)
			step.Omit = w.elapsed()%20 == 0 && w.elapsed() > 0 && q.finished.IsZero()
			if w.elapsed() == 80 {
				step.Next = time.Time{} // the plan ends with an omitted run
			}
			return step
		}), func(r *Run) {
			w.note()
			numbers = append(numbers, r.N)
		})
		pass(200 * ms)
		assert.Equal(t, []int{10, 30, 50, 70}, w.times)
		assert.Equal(t, []int{1, 2, 3, 4}, numbers)
		assert.Equal(t, 1+4*2+4, asked, "one question for an omitted run")
		assert.Zero(t, tw.Len())
		verifyShards(t, tw.engine)
	})
}

// overlapping returns a planner with a run each 10 ms that is armed before the previous run begins.
func overlapping(last int) plannerFunc {
	return func(q question) planner.Step {
		if q.N == last {
			return planner.Step{Overlap: true}
		}
		return planner.Step{Next: q.Planned.Add(10 * ms), Overlap: true}
	}
}

func TestOverlappingRunsKeepTheirTimes(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		plan := tw.ScheduleFunc(overlapping(7), func() {
			w.note()
			assert.LessOrEqual(t, tw.Len(), 1, "the plan counts more than once")
			time.Sleep(35 * ms)
		})
		pass(45 * ms)
		assert.Equal(t, 3, tw.Stats().Running)
		assert.Equal(t, 1, tw.Len())
		due, ok := plan.Deadline()
		require.True(t, ok)
		assert.Equal(t, 50*ms, due.Sub(w.start))
		pass(100 * ms)
		assert.Equal(t, []int{10, 20, 30, 40, 50, 60, 70}, w.times)
		requireEnded(t, tw, plan)
	})
}

// During overlapping runs Reschedule moves the next run, Flush starts it, and Stop ends the plan.
func TestStopRescheduleAndFlushOfOverlappingRuns(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		plan := tw.ScheduleFunc(overlapping(-1), func() {
			w.note()
			time.Sleep(35 * ms)
		})
		pass(25 * ms)
		require.True(t, plan.Reschedule(12*ms))
		pass(18 * ms)
		assert.Equal(t, []int{10, 20, 37}, w.noted())
		assert.Equal(t, 1, tw.Flush())
		pass(0)
		assert.Equal(t, []int{10, 20, 37, 43}, w.noted())
		pass(15 * ms)
		assert.Equal(t, []int{10, 20, 37, 43, 57}, w.noted(), "the run at 47 was flushed")
		assert.True(t, plan.Stop())
		assert.False(t, plan.Stop())
		assert.NotZero(t, tw.Stats().Running)
		pass(100 * ms)
		assert.Len(t, w.noted(), 5)
		requireEnded(t, tw, plan)
	})
}

// Stop during an overlapping run returns true, except during the last run.
func TestStopDuringAnOverlappingRunIsExact(t *testing.T) {
	for stopIn := 1; stopIn <= 3; stopIn++ {
		bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
			var plan handle
			var runs atomic.Int32
			plan.set(tw.ScheduleRun(overlapping(3), func(r *Run) {
				runs.Add(1)
				if r.N == stopIn {
					assert.Equal(t, stopIn < 3, plan.get().Stop())
				}
			}))
			pass(100 * ms)
			assert.EqualValues(t, stopIn, runs.Load())
			requireEnded(t, tw, plan.get())
		})
	}
}

// A panic or Goexit in one of several overlapping runs affects no other run.
func TestOverlappingRunsSurvivePanicAndGoexit(t *testing.T) {
	for _, leave := range []func(){boom, runtime.Goexit} {
		for _, executor := range []Executor{nil, Goroutines} {
			bubble(t, Options{OnPanic: func(any, []byte) {}, Executor: executor}, func(t *testing.T, tw *TimingWheel) {
				w := newStopwatch()
				var ended atomic.Int32
				tw.ScheduleRun(overlapping(6), func(r *Run) {
					w.note()
					time.Sleep(15 * ms)
					if r.N%2 == 0 {
						leave()
					}
					ended.Add(1)
				})
				pass(100 * ms)
				assert.Equal(t, []int{10, 20, 30, 40, 50, 60}, w.times)
				assert.EqualValues(t, 3, ended.Load())
				assert.Zero(t, tw.Stats().Running)
			})
		}
	}
}

// With Inline, overlapping runs start one after the other, late if necessary.
func TestOverlappingRunsWithInlineAreSerial(t *testing.T) {
	bubble(t, Options{Executor: Inline}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		tw.ScheduleRun(overlapping(4), func(r *Run) {
			w.note()
			if r.N == 1 {
				time.Sleep(25 * ms)
			}
		})
		pass(100 * ms)
		assert.Equal(t, []int{10, 35, 35, 40}, w.times)
	})
}

// A panic of a planner ends the plan. The run for which the planner was asked does not take place,
// and nothing is left.
func TestPanicOfAPlannerEndsThePlan(t *testing.T) {
	for name, row := range map[string]struct{ panicsIn, runs int }{
		"ScheduleFunc": {1, 0}, "before a run": {2, 0}, "after a run": {3, 1}, "before the second": {4, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var reported []any
			bubble(t, Options{OnPanic: func(v any, _ []byte) { reported = append(reported, v) }}, func(t *testing.T, tw *TimingWheel) {
				calls := 0
				s := plannerFunc(func(q question) planner.Step {
					if calls++; calls == row.panicsIn {
						boom()
					}
					return at(q.Started, 10)
				})
				w := newStopwatch()
				if row.panicsIn == 1 {
					assert.PanicsWithValue(t, "boom", func() { tw.ScheduleFunc(s, w.note) })
					assert.Zero(t, tw.Len())
					return
				}
				plan := tw.ScheduleFunc(s, w.note)
				pass(100 * ms)
				assert.Equal(t, []any{"boom"}, reported)
				assert.Len(t, w.times, row.runs)
				requireEnded(t, tw, plan)
			})
		})
	}
}

// A planner reschedules the plan and then panics or ends the plan. The run takes place at the new
// time only.
func TestRescheduleByAPlannerHolds(t *testing.T) {
	for name, row := range map[string]struct {
		then func() // after the Reschedule
		want []int
	}{
		"and panics": {boom, []int{15}},
		"and ends":   {func() {}, []int{15}},
	} {
		bubble(t, Options{OnPanic: func(any, []byte) {}}, func(t *testing.T, tw *TimingWheel) {
			var plan handle
			calls := 0
			w := newStopwatch()
			plan.set(tw.ScheduleFunc(plannerFunc(func(q question) planner.Step {
				if calls++; calls == 2 {
					assert.True(t, plan.get().Reschedule(5*ms))
					row.then()
				}
				if calls >= 2 {
					return planner.Step{}
				}
				return at(q.Planned, 10)
			}), w.note))
			pass(100 * ms)
			assert.Equal(t, row.want, w.times, name)
			requireEnded(t, tw, plan.get())
		})
	}
}

// After a Stop or Reschedule during a run, the planner is not asked at the end of the run.
func TestPlannerIsNotAskedAfterStopOrReschedule(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		var plan handle
		afterwards := 0
		w := newStopwatch()
		plan.set(tw.ScheduleRun(plannerFunc(func(q question) planner.Step {
			if !q.finished.IsZero() && q.N > 0 {
				afterwards++
			}
			return at(q.Started, 10)
		}), func(r *Run) {
			w.note()
			switch r.N {
			case 1:
				assert.True(t, plan.get().Reschedule(3*ms))
			case 3:
				assert.True(t, plan.get().Stop())
			}
		}))
		pass(100 * ms)
		assert.Equal(t, []int{10, 13, 23}, w.times)
		assert.Equal(t, 1, afterwards, "questions after the second run")
		requireEnded(t, tw, plan.get())
	})
}

// Shutdown waits for all overlapping runs.
func TestShutdownWaitsForOverlappingRuns(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		var begun, ended atomic.Int32
		tw.ScheduleFunc(overlapping(-1), func() {
			begun.Add(1)
			time.Sleep(35 * ms)
			ended.Add(1)
		})
		pass(45 * ms)
		require.NoError(t, tw.Shutdown(context.Background()))
		assert.EqualValues(t, 4, begun.Load())
		assert.EqualValues(t, 4, ended.Load())
	})
}

// strict is a planner that detects questions that are concurrent or out of order. Runs may overlap
// or be omitted.
type strict struct {
	t       testing.TB
	overlap bool
	inside  atomic.Int32
	last    planner.Run // without a lock, because questions must not be concurrent
	asked   int
}

func (s *strict) answer(q question) planner.Step {
	if s.inside.Add(1) != 1 {
		s.t.Error("concurrent questions to a planner")
	}
	defer s.inside.Add(-1)
	runtime.Gosched()
	s.asked++
	if q.finished.IsZero() && q.N != s.last.N+1 || !q.finished.IsZero() && q.N != s.last.N {
		s.t.Errorf("asked for run %d after run %d", q.N, s.last.N)
	}
	step := planner.Step{Next: q.Started.Add(rand.N(20*time.Microsecond) - 5*time.Microsecond)}
	if q.finished.IsZero() {
		step.Overlap = s.overlap
		step.Omit = s.asked%7 == 0
		if step.Omit {
			q.N--
		}
	}
	s.last = q.Run
	return step
}

// numbered records the numbers of runs and detects a number that comes twice.
type numbered struct {
	mu     sync.Mutex
	seen   map[int]bool
	twice  bool
	inside int
	most   int
}

func (n *numbered) begin(r *Run) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.twice = n.twice || n.seen[r.N]
	n.seen[r.N] = true
	n.inside++
	n.most = max(n.most, n.inside)
}

func (n *numbered) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inside--
}

func (n *numbered) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.seen)
}

// A plan is rescheduled and flushed, and its runs are slow, panic or exit. Each run has a number of
// its own, and the planner is asked one question at a time.
func TestRaceQuestionsToAPlannerAreSerial(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		for how, overlap := range map[string]bool{"serial": false, "overlapping": true} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				tw := startWheel(t, Options{
					WheelSize: 4, Levels: 2, Tick: minTick, Shards: 1, Executor: executor(t),
					OnPanic: func(any, []byte) {},
				})
				s := &strict{t: t, overlap: overlap}
				n := numbered{seen: map[int]bool{}}
				plan := tw.ScheduleRun(plannerFunc(s.answer), func(r *Run) {
					n.begin(r)
					defer n.end()
					spin(rand.N(50 * time.Microsecond))
					switch r.N % 50 {
					case 17:
						boom()
					case 18:
						runtime.Goexit()
					}
				})
				var all sync.WaitGroup
				for range 4 {
					all.Go(func() {
						for range max(scaled(200), 30) {
							assert.True(t, plan.Reschedule(rand.N(100*time.Microsecond)), "the plan has no end")
							spin(rand.N(20 * time.Microsecond))
							tw.Flush()
						}
					})
				}
				all.Wait()
				runs := n.count()
				await(t, "a further run", func() bool { return n.count() > runs })
				assert.True(t, plan.Stop())
				require.NoError(t, drainWheel(tw))
				assert.False(t, n.twice, "two runs had the same number")
				assert.Zero(t, n.inside)
				if !overlap {
					assert.Equal(t, 1, n.most, "runs overlapped")
				}
				verifyShards(t, tw.engine)
			})
		}
	}
}

// A Stop at any time ends a plan with overlapping runs. Runs that were claimed before may begin
// afterwards.
func TestRaceStopEndsAPlanWithOverlappingRuns(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{WheelSize: 8, Levels: 2, Tick: minTick, Shards: 2})
	for i := range max(scaled(300), 30) {
		var runs atomic.Int64
		plan := tw.ScheduleFunc(overlappingEvery(3*time.Microsecond), func() {
			runs.Add(1)
			spin(10 * time.Microsecond)
		})
		if i%2 == 0 {
			// Stop meets runs also on a machine that is too busy to begin one within the next spin.
			await(t, "a run", func() bool { return runs.Load() > 0 })
		}
		spin(rand.N(40 * time.Microsecond))
		require.True(t, plan.Stop(), "an endless plan can always be stopped")
		stoppedAt := runs.Load()
		require.NoError(t, drainWheel(tw))
		// Each run arms the next one before it begins, so several claimed runs may begin after
		// Stop.
		require.False(t, plan.Stop())
		ended := runs.Load()
		runtime.Gosched()
		require.Equal(t, ended, runs.Load(), "%d runs when stopped", stoppedAt)
	}
	verifyShards(t, tw.engine)
}

// overlappingEvery returns a planner with a run each d, which is armed before the previous run
// begins.
func overlappingEvery(d time.Duration) plannerFunc {
	return func(q question) planner.Step { return planner.Step{Next: q.Started.Add(d), Overlap: true} }
}

// Shutdown comes while runs overlap. It waits for all of them, and no run begins afterwards.
func TestRaceShutdownWaitsForOverlappingRuns(t *testing.T) {
	t.Parallel()
	for range max(scaled(60), 10) {
		tw, err := New(Options{Tick: minTick, Shards: 2})
		require.NoError(t, err)
		var inside, runs atomic.Int64
		plans := make([]Timer, 4)
		for i := range plans {
			plans[i] = tw.ScheduleFunc(overlappingEvery(5*time.Microsecond), func() {
				inside.Add(1)
				runs.Add(1)
				spin(20 * time.Microsecond)
				inside.Add(-1)
			})
		}
		var all sync.WaitGroup
		all.Go(func() { tw.Flush() })
		all.Go(func() { plans[0].Reschedule(0) })
		spin(rand.N(100 * time.Microsecond))
		require.NoError(t, tw.Shutdown(context.Background()))
		require.Zero(t, inside.Load(), "a run is under way after Shutdown")
		ended := runs.Load()
		all.Wait()
		for _, plan := range plans {
			require.False(t, plan.Stop())
			require.False(t, plan.Reschedule(0))
		}
		require.Equal(t, ended, runs.Load())
	}
}
