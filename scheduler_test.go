package timingwheel

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The first run after now stands at a multiple of d after the one that was missed, however large
// the numbers are.
func TestEverySkipsMissedRuns(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	missed := time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)
	for _, row := range []struct{ d, late, want time.Duration }{
		{10, 0, 10},
		{10, 9, 10},
		{10, 10, 20},
		{10, 35, 40},
		{1, 604_800e9, 604_800e9 + 1},
		{1, math.MaxInt64 - 1, math.MaxInt64},
		{math.MaxInt64, 0, math.MaxInt64},
		{200 * year, 100 * year, 200 * year},
	} {
		s := Every(row.d).(Skipper)
		assert.Equal(t, missed.Add(row.want), s.Skip(missed, missed.Add(row.late)), "every %v, %v late", row.d, row.late)
	}
	for _, d := range []time.Duration{150 * year, 200 * year, math.MaxInt64} {
		now := missed.Add(250 * year).Add(50 * year) // more than a Duration holds
		next := Every(d).(Skipper).Skip(missed, now)
		assert.True(t, next.After(now), "every %v: %v", d, next)
		now = missed.Add(250 * year)
		next = Every(d).(Skipper).Skip(missed, now)
		assert.True(t, next.After(now), "every %v: %v", d, next)
	}
}

// On 32 bits a run each millisecond counts to the end of int in 25 days.
func TestRunsAreNotCountedBeyondInt(t *testing.T) {
	t.Parallel()
	tw, err := New(Options{Manual: true})
	require.NoError(t, err)
	defer tw.Stop()
	first := tw.Now().Add(ms)
	var numbers []int
	p := &followed{
		plan:     plan{wheel: tw, planned: first},
		follower: followFunc(func(r Run) Step { return at(r.Planned, 1) }),
		f:        func(r Run) { numbers = append(numbers, r.N) },
		n:        math.MaxInt - 1,
	}
	p.start(p.run)
	for range 3 {
		tw.Advance(tw.Now().Add(ms))
	}
	assert.Equal(t, []int{math.MaxInt, math.MaxInt, math.MaxInt}, numbers)
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

// Reschedule moves the next run, and the plan continues from there.
func TestRescheduleOfAPlanBetweenRuns(t *testing.T) {
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

func TestRescheduleOfAPlanDuringARun(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		var plan handle
		plan.set(tw.ScheduleFunc(Every(10*ms), func() {
			w.note()
			if len(w.times) == 1 {
				assert.True(t, plan.get().Reschedule(time.Hour))
				assert.True(t, plan.get().Reschedule(3*ms), "the last one wins")
			}
		}))
		pass(40 * ms)
		assert.Equal(t, []int{10, 13, 23, 33}, w.times)
	})
}

// Another goroutine calls Reschedule during a run, with a time that comes before the run has ended.
func TestRescheduleOfAPlanToATimeWithinTheRun(t *testing.T) {
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

// In the last run there is nothing to move.
func TestRescheduleDuringTheLastRun(t *testing.T) {
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

// A Next that panics in ScheduleFunc is its caller's; in a run it is the run's panic and ends the
// plan.
func TestNextPanics(t *testing.T) {
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

// The same where Next is asked once more because a run took too long.
func TestNextPanicsAfterAMissedRun(t *testing.T) {
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

// Next reschedules the plan before it panics. If that Reschedule returned true, the run takes
// place.
func TestNextReschedulesAndPanics(t *testing.T) {
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

// requireEnded checks that nothing of a plan is left.
func requireEnded(t *testing.T, tw *TimingWheel, plan Timer) {
	t.Helper()
	assert.Zero(t, tw.Len())
	assert.Zero(t, tw.Stats().Running)
	assert.False(t, plan.Reschedule(0), "Reschedule of an ended plan")
	assert.False(t, plan.Stop(), "Stop of an ended plan")
	verifyShards(t, tw.engine)
}

// Stop or Reschedule comes after the claim of a run and before it is clear whether that run is the
// last. Next calls them, as any goroutine might. Both return true, so the run does not take place,
// or only at its new time.
func TestStopAndRescheduleBeforeAClaimedRunBegins(t *testing.T) {
	for name, row := range map[string]struct {
		act  func(Timer) bool
		next time.Duration // what Next then returns, 0: no further run
		want []int
	}{
		"Stop":                       {Timer.Stop, 10 * ms, []int{10}},
		"Stop of the last run":       {Timer.Stop, 0, []int{10}},
		"Reschedule of the last run": {func(plan Timer) bool { return plan.Reschedule(5 * ms) }, 0, []int{10, 25}},
	} {
		for kind, planned := range map[string]func(nextFunc) Scheduler{
			"Scheduler": func(next nextFunc) Scheduler { return next },
			"Planner": func(next nextFunc) Scheduler {
				p := &plain{scheduler: next}
				return followFunc(p.Follow)
			},
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

// The same between the claim and the question to the Scheduler, and by the Stop of the wheel, then
// and while that is asked.
func TestPlanIsEndedOrMovedRightAfterAClaim(t *testing.T) {
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
			"Planner":   func(next nextFunc) Scheduler { p := &plain{scheduler: next}; return followFunc(p.Follow) },
		} {
			for _, when := range []string{"claimed", "asked"} {
				start := time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)
				tw := startWheel(t, Options{Manual: true, Start: start})
				var plan Timer
				var runs []int
				claims, questions := 0, 0
				callback := tw.engine.job.run
				tw.engine.job.run = func(f []func()) {
					if claims++; claims == 2 && when == "claimed" {
						row.act(tw, plan)
					}
					callback(f)
				}
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
				for at := range 100 {
					tw.Advance(start.Add(time.Duration(at) * ms))
				}
				assert.Equal(t, row.want, runs, "%s of a %s when %s", name, kind, when)
				requireEnded(t, tw, plan)
			}
		}
	}
}

// A Scheduler that names the past for ever runs its plan without a pause, and holds up no other timer.
func TestPlanThatIsAlwaysLate(t *testing.T) {
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

// A Stop at any moment of a plan's life sticks: while it waits, is due, runs, or is armed again.
// One run may have been claimed before the Stop and start after it; no other does.
func TestRaceStopOfAPlanSticks(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{WheelSize: 8, Levels: 2, Tick: time.Microsecond, Shards: 2})
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
	assert.NotZero(t, during, "no plan had run before it was stopped: the test tests nothing")
	time.Sleep(20 * time.Millisecond)
	for i := range trials {
		if trials[i].runs.Load() != ends[i] || trials[i].timer.Stop() {
			t.Fatal("a stopped plan goes on")
		}
	}
}

// Two goroutines stop one plan: exactly one of them is told that it did.
func TestRaceTwoStopsOfAPlan(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{WheelSize: 2, Levels: 2, Tick: time.Microsecond, Shards: 1})
	for range max(scaled(1000), 100) {
		plan := tw.ScheduleFunc(Every(3*time.Microsecond), func() {})
		var yes atomic.Int32
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				spin(rand.N(20 * time.Microsecond))
				if plan.Stop() {
					yes.Add(1)
				}
			})
		}
		both.Wait()
		require.EqualValues(t, 1, yes.Load())
	}
	require.NoError(t, drainWheel(tw))
}

// lastRun is a plan of n runs, a period apart.
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

// A plan of a few runs is stopped at a random moment. Where Stop returned true the plan did not
// come to its end; where it returned false it did, with all its runs.
func TestRaceStopOfAFinitePlan(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{WheelSize: 4, Levels: 2, Tick: time.Microsecond, Shards: 1})
	const n = 3
	for range max(scaled(2000), 200) {
		// The period is so long that no run is missed, as Next would then be asked once more.
		s := &lastRun{period: 30 * time.Microsecond}
		s.left.Store(n)
		var runs atomic.Int64
		plan := tw.ScheduleFunc(s, func() { runs.Add(1) })
		spin(rand.N(150 * time.Microsecond))
		if plan.Stop() {
			continue
		}
		require.Negative(t, s.left.Load(), "Stop returned false though runs are left")
		require.False(t, plan.Stop())
		require.False(t, plan.Reschedule(0))
	}
	require.NoError(t, drainWheel(tw))
	verifyShards(t, tw.engine)
}

// serial is a Scheduler that notices when it is called twice at once.
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

// Neither Reschedule nor Flush nor slow runs make runs or calls of Next overlap.
func TestRacePlanRunsAndNextAreSerial(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{WheelSize: 4, Levels: 2, Tick: 10 * time.Microsecond, Shards: 1, Executor: executor(t)})
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
			await(t, "the plan goes on", func() bool { return p.runs.Load() > runs })
			assert.True(t, plan.Stop())
			require.NoError(t, drainWheel(tw))
			assert.False(t, p.over.Load(), "runs overlapped")
			assert.False(t, s.over.Load(), "calls of Next overlapped")
			verifyShards(t, tw.engine)
		})
	}
}

// A plan whose runs end in a panic or in Goexit goes on, on every executor.
func TestPlanGoesOnAfterPanicAndGoexit(t *testing.T) {
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

// A worker has claimed a run of a plan and is about to read its payload when Stop comes. Stop must
// not clear the payload, nor give the slot to another timer, whose payload the worker would then
// run.
func TestStopOfAPlanThatWasJustClaimedLeavesItsPayload(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Tick: time.Microsecond, Shards: 1})
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
	assert.Equal(t, len(s.inbox.free), used, "slots that nothing gives back")
}

// Plans of all kinds end in all ways: by Stop at any moment, by themselves, by a panic. Each gives
// its slot back once.
func TestEveryPlanGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	for name, executor := range map[string]Executor{"default": nil, "Goroutines": Goroutines, "Inline": Inline} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Shards: 1, Tick: 10 * time.Microsecond, Executor: executor, OnPanic: func(any, []byte) {}})
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
							plan = tw.ScheduleRun(last, func(Run) { f() })
						case 3:
							plan = tw.ScheduleRun(overlapping(3), func(Run) { f() })
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
			await(t, "no slot is used", func() bool {
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
