package timingwheel

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// at is a Step to so many ms after the time.
func at(t time.Time, after int) Step { return Step{Next: t.Add(time.Duration(after) * ms)} }

// What a Follower is asked, and when, is part of the contract.
func TestFollowIsCalledAsDocumented(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		since := func(t time.Time) int {
			if t.IsZero() {
				return -1
			}
			return int(t.Sub(w.start) / ms)
		}
		type question struct{ n, planned, started, finished int }
		var asked []question
		answers := []int{10, 25, 20, 30, 44, 50, 0}
		follow := followFunc(func(r Run) Step {
			asked = append(asked, question{r.N, since(r.Planned), since(r.Started), since(r.Finished)})
			answer := answers[0]
			answers = answers[1:]
			if answer == 0 {
				return Step{}
			}
			return at(w.start, answer)
		})
		pass(3 * ms)
		plan := tw.ScheduleFunc(follow, func() {
			w.note()
			time.Sleep(12 * ms)
		})
		pass(200 * ms)
		assert.Equal(t, []question{
			{0, 3, 3, 3},    // the first run: 10
			{1, 10, 10, -1}, // 25
			{1, 10, 10, 22}, // after the run: 20, which has passed, so it starts at once
			{2, 20, 22, -1}, // 30
			{2, 20, 22, 34}, // 44
			{3, 44, 44, -1}, // 50
			{3, 44, 44, 56}, // none after all
		}, asked)
		assert.Equal(t, []int{10, 22, 44}, w.times)
		requireEnded(t, tw, plan)
	})
}

func TestScheduleRunTellsOfTheRun(t *testing.T) {
	for name, s := range map[string]Scheduler{
		"Every":     Every(10 * ms),
		"Scheduler": nextFunc(Every(10 * ms).Next),
		"Planner":   followFunc(func(r Run) Step { return at(r.Started, 10) }),
	} {
		bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
			start := time.Now()
			var runs []Run
			plan := tw.ScheduleRun(s, func(r Run) { runs = append(runs, r) })
			pass(25 * ms)
			require.Len(t, runs, 2, name)
			for i, r := range runs {
				due := start.Add(time.Duration(10*(i+1)) * ms)
				assert.Equal(t, i+1, r.N, name)
				assert.True(t, r.Planned.Equal(due), "%s: %v", name, r.Planned)
				assert.True(t, r.Started.Equal(due), "%s: %v", name, r.Started)
				assert.Zero(t, r.Finished, name)
			}
			require.True(t, plan.Reschedule(8*ms))
			pass(8 * ms)
			require.Len(t, runs, 3, name)
			assert.True(t, runs[2].Planned.Equal(start.Add(33*ms)), "%s: where Reschedule has moved it", name)
		})
	}
}

// A Scheduler without a Follower does the same in both methods.
func TestScheduleRunSkipsMissedRuns(t *testing.T) {
	for name, s := range map[string]Scheduler{"Every": Every(10 * ms), "Scheduler": nextFunc(Every(10 * ms).Next)} {
		bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
			a, b := newStopwatch(), newStopwatch()
			tw.ScheduleFunc(s, func() {
				a.note()
				time.Sleep(35 * ms)
			})
			tw.ScheduleRun(s, func(Run) {
				b.note()
				time.Sleep(35 * ms)
			})
			pass(200 * ms)
			require.NotEmpty(t, a.times)
			assert.Equal(t, a.times, b.times, name)
		})
	}
}

func TestPlannerWithoutRuns(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		assert.Equal(t, Timer{}, tw.ScheduleFunc(followFunc(func(Run) Step { return Step{} }), w.note))
		pass(ms)
		assert.Empty(t, w.times)
		assert.Zero(t, tw.Len())
	})
}

func TestScheduleRunOfNil(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		assert.Panics(t, func() { tw.ScheduleRun(nil, func(Run) {}) })
		assert.Panics(t, func() { tw.ScheduleRun(Every(ms), nil) })
		assert.PanicsWithValue(t, "timingwheel: a Planner whose Plan is a nil Follower", func() { tw.ScheduleFunc(noFollower{}, func() {}) })
	})
}

// noFollower is a Planner that breaks its contract.
type noFollower struct{ Scheduler }

func (noFollower) Plan() Follower { return nil }

// A run that is skipped does not take place and keeps its number for the next.
func TestSkippedRuns(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		var numbers []int
		asked := 0
		tw.ScheduleRun(followFunc(func(r Run) Step {
			asked++
			step := at(r.Planned, 10)
			step.Skip = w.elapsed()%20 == 0 && w.elapsed() > 0 && r.Finished.IsZero()
			if w.elapsed() == 80 {
				step.Next = time.Time{} // and the plan ends with a run that is skipped
			}
			return step
		}), func(r Run) {
			w.note()
			numbers = append(numbers, r.N)
		})
		pass(200 * ms)
		assert.Equal(t, []int{10, 30, 50, 70}, w.times)
		assert.Equal(t, []int{1, 2, 3, 4}, numbers)
		assert.Equal(t, 1+4*2+4, asked, "once for a run that is skipped")
		assert.Zero(t, tw.Len())
		verifyShards(t, tw.engine)
	})
}

// overlapping plans a run each 10 ms, armed before the one before begins.
func overlapping(last int) followFunc {
	return func(r Run) Step {
		if r.N == last {
			return Step{Overlap: true}
		}
		return Step{Next: r.Planned.Add(10 * ms), Overlap: true}
	}
}

func TestOverlappingRuns(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		plan := tw.ScheduleFunc(overlapping(7), func() {
			w.note()
			assert.LessOrEqual(t, tw.Len(), 1, "the plan is pending while it runs")
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

// Stop ends the plan, whatever runs. Reschedule moves the next run. Flush starts it.
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
		assert.Equal(t, []int{10, 20, 37, 43, 57}, w.noted(), "47 was flushed")
		assert.True(t, plan.Stop())
		assert.False(t, plan.Stop())
		assert.NotZero(t, tw.Stats().Running)
		pass(100 * ms)
		assert.Len(t, w.noted(), 5)
		requireEnded(t, tw, plan)
	})
}

// Stop within a run: true while there is a further one, false in the last.
func TestStopDuringAnOverlappingRun(t *testing.T) {
	for stopIn := 1; stopIn <= 3; stopIn++ {
		bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
			var plan handle
			var runs atomic.Int32
			plan.set(tw.ScheduleRun(overlapping(3), func(r Run) {
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

// Runs that end in a panic or in Goexit take nothing of the others with them.
func TestOverlappingRunsOverPanicAndGoexit(t *testing.T) {
	for _, leave := range []func(){boom, runtime.Goexit} {
		for _, executor := range []Executor{nil, Goroutines} {
			bubble(t, Options{OnPanic: func(any, []byte) {}, Executor: executor}, func(t *testing.T, tw *TimingWheel) {
				w := newStopwatch()
				var ended atomic.Int32
				tw.ScheduleRun(overlapping(6), func(r Run) {
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

// On the driver's goroutine runs come in their time but one after the other.
func TestOverlappingRunsInline(t *testing.T) {
	bubble(t, Options{Executor: Inline}, func(t *testing.T, tw *TimingWheel) {
		w := newStopwatch()
		tw.ScheduleRun(overlapping(4), func(r Run) {
			w.note()
			if r.N == 1 {
				time.Sleep(25 * ms)
			}
		})
		pass(100 * ms)
		assert.Equal(t, []int{10, 35, 35, 40}, w.times)
	})
}

// A Follow that panics ends its plan: the run for which it was asked does not take place, and
// nothing is left.
func TestFollowPanics(t *testing.T) {
	for name, row := range map[string]struct{ panicsIn, runs int }{
		"ScheduleFunc": {1, 0}, "before a run": {2, 0}, "after a run": {3, 1}, "before the second": {4, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var reported []any
			bubble(t, Options{OnPanic: func(v any, _ []byte) { reported = append(reported, v) }}, func(t *testing.T, tw *TimingWheel) {
				calls := 0
				follow := followFunc(func(r Run) Step {
					if calls++; calls == row.panicsIn {
						boom()
					}
					return at(r.Started, 10)
				})
				w := newStopwatch()
				if row.panicsIn == 1 {
					assert.PanicsWithValue(t, "boom", func() { tw.ScheduleFunc(follow, w.note) })
					assert.Zero(t, tw.Len())
					return
				}
				plan := tw.ScheduleFunc(follow, w.note)
				pass(100 * ms)
				assert.Equal(t, []any{"boom"}, reported)
				assert.Len(t, w.times, row.runs)
				requireEnded(t, tw, plan)
			})
		})
	}
}

// Follow reschedules the plan before it panics or ends the plan. The run takes place at the new
// time only.
func TestFollowReschedules(t *testing.T) {
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
			plan.set(tw.ScheduleFunc(followFunc(func(r Run) Step {
				if calls++; calls == 2 {
					assert.True(t, plan.get().Reschedule(5*ms))
					row.then()
				}
				if calls >= 2 {
					return Step{}
				}
				return at(r.Planned, 10)
			}), w.note))
			pass(100 * ms)
			assert.Equal(t, row.want, w.times, name)
			requireEnded(t, tw, plan.get())
		})
	}
}

// Stop and Reschedule during a run decide. The Follower is not asked again.
func TestFollowIsNotAskedAfterStopOrReschedule(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		var plan handle
		afterwards := 0
		w := newStopwatch()
		plan.set(tw.ScheduleRun(followFunc(func(r Run) Step {
			if !r.Finished.IsZero() && r.N > 0 {
				afterwards++
			}
			return at(r.Started, 10)
		}), func(r Run) {
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
		assert.Equal(t, 1, afterwards, "after the second run only")
		requireEnded(t, tw, plan.get())
	})
}

// The wheel is stopped while runs overlap: Shutdown waits for all of them.
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

// strict is a Follower that notices when it is asked twice at once, or out of order. Runs may
// overlap or be left out.
type strict struct {
	t       testing.TB
	overlap bool
	inside  atomic.Int32
	last    Run // no lock: the questions follow each other
	asked   int
}

func (s *strict) Next(time.Time) time.Time { panic("Next of a Planner") }
func (s *strict) Plan() Follower           { return s }

func (s *strict) Follow(r Run) Step {
	if s.inside.Add(1) != 1 {
		s.t.Error("Follow is called twice at once")
	}
	defer s.inside.Add(-1)
	runtime.Gosched()
	s.asked++
	if r.Finished.IsZero() && r.N != s.last.N+1 || !r.Finished.IsZero() && r.N != s.last.N {
		s.t.Errorf("asked for run %d after run %d", r.N, s.last.N)
	}
	step := Step{Next: r.Started.Add(rand.N(20*time.Microsecond) - 5*time.Microsecond)}
	if r.Finished.IsZero() {
		step.Overlap = s.overlap
		step.Skip = s.asked%7 == 0
		if step.Skip {
			r.N--
		}
	}
	s.last = r
	return step
}

// numbered notes the numbers of runs, which come once each.
type numbered struct {
	mu     sync.Mutex
	seen   map[int]bool
	twice  bool
	inside int
	most   int
}

func (n *numbered) begin(r Run) {
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

// Plans are rescheduled and flushed, and their runs are slow, panic or exit. Each run takes place
// once and has a number of its own, and the Follower is asked one question at a time.
func TestRaceFollowedPlans(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		for how, overlap := range map[string]bool{"serial": false, "overlapping": true} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				tw := startWheel(t, Options{
					WheelSize: 4, Levels: 2, Tick: 10 * time.Microsecond, Shards: 1, Executor: executor(t),
					OnPanic: func(any, []byte) {},
				})
				s := &strict{t: t, overlap: overlap}
				n := numbered{seen: map[int]bool{}}
				plan := tw.ScheduleRun(s, func(r Run) {
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
				await(t, "the plan goes on", func() bool { return n.count() > runs })
				assert.True(t, plan.Stop())
				require.NoError(t, drainWheel(tw))
				assert.False(t, n.twice, "a run came twice")
				assert.Zero(t, n.inside)
				if !overlap {
					assert.Equal(t, 1, n.most, "runs overlapped")
				}
				verifyShards(t, tw.engine)
			})
		}
	}
}

// A Stop at any moment ends a plan whose runs overlap: one run may have been claimed before it and
// begin after it.
func TestRaceStopOfOverlappingRunsSticks(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{WheelSize: 8, Levels: 2, Tick: time.Microsecond, Shards: 2})
	var ran atomic.Int64
	for range max(scaled(300), 30) {
		var runs atomic.Int64
		plan := tw.ScheduleFunc(overlappingEvery(3*time.Microsecond), func() {
			runs.Add(1)
			spin(10 * time.Microsecond)
		})
		spin(rand.N(40 * time.Microsecond))
		require.True(t, plan.Stop(), "an endless plan can always be stopped")
		stoppedAt := runs.Load()
		require.NoError(t, drainWheel(tw))
		// Each run arms the next before it begins, so several may be on their way to their
		// callbacks.
		require.False(t, plan.Stop())
		ended := runs.Load()
		ran.Add(ended)
		runtime.Gosched()
		require.Equal(t, ended, runs.Load(), "%d runs when stopped", stoppedAt)
	}
	assert.NotZero(t, ran.Load(), "no plan ran: the test tests nothing")
	verifyShards(t, tw.engine)
}

// overlappingEvery plans a run each d that is armed before the one before begins.
func overlappingEvery(d time.Duration) followFunc {
	return func(r Run) Step { return Step{Next: r.Started.Add(d), Overlap: true} }
}

// The wheel is stopped in the middle: Shutdown waits for every run, and none begins afterwards.
func TestRaceShutdownOfOverlappingRuns(t *testing.T) {
	t.Parallel()
	for range max(scaled(60), 10) {
		tw, err := New(Options{Tick: time.Microsecond, Shards: 2})
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
		require.Zero(t, inside.Load(), "Shutdown has returned")
		ended := runs.Load()
		all.Wait()
		for _, plan := range plans {
			require.False(t, plan.Stop())
			require.False(t, plan.Reschedule(0))
		}
		require.Equal(t, ended, runs.Load())
	}
}
