package timingwheel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

// A Scheduler that names the past for ever runs its plan without a pause, and holds up nobody.
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
