package timingwheel

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/clock"
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
	tw.startPlan(&plan{planner: planner.Every(ms), n: math.MaxInt - 1, f: f})
	for range 3 {
		tw.Advance(tw.Now().Add(ms))
	}
	assert.Equal(t, []int{math.MaxInt, math.MaxInt, math.MaxInt}, numbers)
}

// planScript is a plan, calls at some times and in its runs, and the times of the runs. Times are
// in ms.
type planScript struct {
	opts    Options
	planned Scheduler
	length  time.Duration           // of a run
	in      func(n int, plan Timer) // at the beginning of run n
	leave   func(n int)             // at the end of run n
	at      map[int]func(plan Timer, tw *TimingWheel)
	want    []int // until 100
}

var planScripts = map[string]planScript{
	"no drift": {planned: Every(7 * ms), want: []int{7, 14, 21, 28, 35, 42, 49, 56, 63, 70, 77, 84, 91, 98}},
	"each run is rounded up to a tick, and shifts no other": {
		opts: Options{Tick: 10 * ms}, planned: Every(15 * ms), want: []int{20, 30, 50, 60, 80, 90},
	},
	"Flush runs the plan once more": {
		planned: Every(20 * ms), want: []int{3, 40, 60, 80, 100},
		at: map[int]func(Timer, *TimingWheel){3: func(_ Timer, tw *TimingWheel) { tw.Flush() }},
	},
	"earlier": {
		planned: Every(20 * ms), want: []int{3, 23, 43, 63, 83},
		at: map[int]func(Timer, *TimingWheel){0: func(plan Timer, _ *TimingWheel) { plan.Reschedule(3 * ms) }},
	},
	"Reschedule to the same tick changes nothing": {
		planned: Every(15500 * time.Microsecond), want: []int{16, 31, 47, 62, 78, 93},
		at: map[int]func(Timer, *TimingWheel){0: func(plan Timer, _ *TimingWheel) {
			due, _ := plan.Deadline()
			plan.RescheduleAt(due)
		}},
	},
	"later": {
		planned: Every(10 * ms), want: []int{10, 20, 55, 65, 75, 85, 95},
		at: map[int]func(Timer, *TimingWheel){25: func(plan Timer, _ *TimingWheel) { plan.Reschedule(30 * ms) }},
	},
	"the last Reschedule in a run sets the next run": {
		planned: Every(20 * ms), want: []int{20, 23, 43, 63, 83},
		in: func(n int, plan Timer) {
			if n == 1 {
				plan.Reschedule(time.Hour)
				plan.Reschedule(3 * ms)
			}
		},
	},
	"a run does not begin within another": {
		planned: Every(80 * ms), length: 20 * ms, want: []int{80, 100},
		at: map[int]func(Timer, *TimingWheel){85: func(plan Timer, _ *TimingWheel) { plan.Reschedule(5 * ms) }},
	},
	"the phase stays after a panic":   {planned: Every(10 * ms), leave: oddRunsLeave(boom), want: []int{10, 30, 40, 60, 70, 90, 100}},
	"the phase stays after Goexit":    {planned: Every(10 * ms), leave: oddRunsLeave(runtime.Goexit), want: []int{10, 30, 40, 60, 70, 90, 100}},
	"overlapping runs keep the times": {planned: overlapping(7), length: 35 * ms, want: []int{10, 20, 30, 40, 50, 60, 70}},
	"overlapping after a panic":       {planned: overlapping(6), leave: oddRunsLeave(boom), want: []int{10, 20, 30, 40, 50, 60}},
	"overlapping after Goexit":        {planned: overlapping(6), leave: oddRunsLeave(runtime.Goexit), want: []int{10, 20, 30, 40, 50, 60}},
	"overlapping with Goroutines": {
		opts: Options{Executor: Goroutines}, planned: overlapping(6), leave: oddRunsLeave(runtime.Goexit), want: []int{10, 20, 30, 40, 50, 60},
	},
	"overlapping with Inline": {
		opts: Options{Executor: Inline}, planned: overlapping(4), want: []int{10, 35, 35, 40},
		in: func(n int, _ Timer) {
			if n == 1 {
				time.Sleep(25 * ms)
			}
		},
	},
	"overlapping runs: Reschedule, Flush and Stop": {
		planned: overlapping(-1), length: 35 * ms, want: []int{10, 20, 37, 43, 57},
		at: map[int]func(Timer, *TimingWheel){
			25: func(plan Timer, _ *TimingWheel) { plan.Reschedule(12 * ms) },
			43: func(_ Timer, tw *TimingWheel) { tw.Flush() },
			58: func(plan Timer, _ *TimingWheel) { plan.Stop() },
		},
	},
}

// oddRunsLeave returns an end of runs: every other one takes 15 ms and panics or exits.
func oddRunsLeave(leave func()) func(n int) {
	return func(n int) {
		if n%2 == 1 {
			time.Sleep(15 * ms)
			leave()
		}
	}
}

// The runs of a plan come at their times, whichever kind of planner and of function it has.
func TestRunsComeAtTheirTimes(t *testing.T) {
	for name, script := range planScripts {
		for _, kind := range []string{"ScheduleFunc", "ScheduleRun", "planner"} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				script := script
				script.opts.OnPanic = func(any, []byte) {}
				if _, ok := script.planned.(plannerFunc); !ok && kind == "planner" && script.leave == nil {
					script.planned = asPlanner{script.planned}
				}
				bubble(t, script.opts, func(t *testing.T, tw *TimingWheel) { script.play(t, tw, kind == "ScheduleRun") })
			})
		}
	}
}

func (s *planScript) play(t *testing.T, tw *TimingWheel, withRun bool) {
	w := newStopwatch()
	var plan handle
	var n atomic.Int32
	run := func() {
		w.note()
		n := int(n.Add(1))
		assert.LessOrEqual(t, tw.Len(), 1, "the plan counts more than once")
		if s.in != nil {
			s.in(n, plan.get())
		}
		time.Sleep(s.length)
		if s.leave != nil {
			s.leave(n)
		}
	}
	if withRun {
		plan.set(tw.ScheduleRun(s.planned, func(*Run) { run() }))
	} else {
		plan.set(tw.ScheduleFunc(s.planned, run))
	}
	for at := range 101 {
		pass(time.Duration(at)*ms - time.Since(w.start))
		if s.at[at] != nil {
			s.at[at](plan.get(), tw)
		}
	}
	assert.Equal(t, s.want, w.noted())
	plan.get().Stop()
	pass(time.Hour)
	assert.Equal(t, s.want, w.noted(), "after Stop")
	requireEnded(t, tw, plan.get())
}

// The arguments of Next and the times of its calls are part of the contract.
func TestNextIsCalledAsDocumented(t *testing.T) {
	for _, schedule := range []func(*TimingWheel, Scheduler, func()) Timer{
		(*TimingWheel).ScheduleFunc,
		func(tw *TimingWheel, s Scheduler, f func()) Timer { return tw.ScheduleRun(s, func(*Run) { f() }) },
	} {
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
			plan := schedule(tw, next, func() {
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
}

// A plan that begins in the past runs immediately. A plan without runs is not armed.
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

		for _, none := range []Scheduler{
			nextFunc(func(time.Time) time.Time { return time.Time{} }),
			plannerFunc(func(question) planner.Step { return planner.Step{} }),
		} {
			assert.Equal(t, Timer{}, tw.ScheduleFunc(none, w.note))
		}
		assert.Zero(t, tw.Len())
		assert.EqualValues(t, 1, tw.Stats().Armed)
	})
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

// requireEnded asserts that the plan has ended and that nothing of it is left.
func requireEnded(t *testing.T, tw *TimingWheel, plan Timer) {
	t.Helper()
	assert.Zero(t, tw.Len())
	assert.Zero(t, tw.Stats().Running)
	assert.False(t, plan.Reschedule(0), "Reschedule after the plan has ended")
	assert.False(t, plan.Stop(), "Stop after the plan has ended")
	verifyShards(t, tw.engine)
}

// Stop, Reschedule and the wheel's Stop come between the claim of a run and the question to the
// planner, or during that question.
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
		"Stop":                             {stop, 5, []int{10}},
		"Stop in the last run":             {stop, 2, []int{10}},
		"Reschedule":                       {reschedule, 4, []int{10, 20, 25, 35}},
		"Reschedule in the last run":       {reschedule, 2, []int{10, 25}},
		"the wheel's Stop":                 {stopWheel, 5, []int{10}},
		"the wheel's Stop in the last run": {stopWheel, 2, []int{10}},
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
				timer.f = func() { // from the second run on
					if claims++; claims == 1 && when == "claimed" {
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

// Stop ends a plan that is pending, due, running or about to be armed again, and one of two calls
// returns true. One run may have been claimed before the Stop and start after it, or several
// overlapping ones. No other run starts.
func TestRaceStopEndsAPlanInEachState(t *testing.T) {
	t.Parallel()
	for name, every := range map[string]func(time.Duration) Scheduler{
		"serial": Every, "overlapping": func(d time.Duration) Scheduler { return overlappingEvery(d) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{WheelSize: 8, Levels: 2, Tick: minTick, Shards: 2})
			trials := make([]planTrial, scaled(20_000))
			stoppedAt := make([]int64, len(trials))
			var next atomic.Int64
			together(4, func(int) {
				for i := int(next.Add(1)) - 1; i < len(trials); i = int(next.Add(1)) - 1 {
					p := &trials[i]
					p.timer = tw.ScheduleFunc(every(time.Microsecond+rand.N(20*time.Microsecond)), p.run)
					for i == 0 && p.runs.Load() == 0 { // one plan at least runs before its Stop
						time.Sleep(minTick)
					}
					var stopped atomic.Int32
					together(2, func(int) {
						if spin(rand.N(40 * time.Microsecond)); p.timer.Stop() {
							stopped.Add(1)
						}
					})
					if !assert.EqualValues(t, 1, stopped.Load(), "an endless plan can always be stopped, once") {
						return
					}
					stoppedAt[i] = p.runs.Load()
				}
			})
			require.NoError(t, drainWheel(tw))
			verifyShards(t, tw.engine)
			ends := make([]int64, len(trials))
			for i := range trials {
				ends[i] = trials[i].runs.Load()
				if name == "serial" && ends[i] > stoppedAt[i]+1 {
					t.Fatalf("%d runs when stopped, %d at the end", stoppedAt[i], ends[i])
				}
				if name == "serial" && trials[i].over.Load() {
					t.Fatal("runs overlapped")
				}
			}
			assert.NotZero(t, stoppedAt[0], "the first plan ran before its Stop")
			time.Sleep(20 * time.Millisecond)
			for i := range trials {
				if trials[i].runs.Load() != ends[i] || trials[i].timer.Stop() {
					t.Fatal("a stopped plan has continued")
				}
			}
		})
	}
}

// lastRun is a Scheduler of a limited number of runs, a period apart.
type lastRun struct {
	period time.Duration
	left   atomic.Int32
}

func newLastRun(runs int32, period time.Duration) *lastRun {
	s := &lastRun{period: period}
	s.left.Store(runs)
	return s
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
		s := newLastRun(n, 30*time.Microsecond)
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

// Plans end by Stop, after their last run, or by a panic. Each releases its record once.
func TestEndedPlansReleaseTheirRecords(t *testing.T) {
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
						last := newLastRun(rand.N(int32(4)), rand.N(100*time.Microsecond))
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
			await(t, "the release of all records", func() bool {
				tw.Len()
				s := tw.engine.shards[0]
				s.owner.mu.Lock()
				defer s.owner.mu.Unlock()
				s.inbox.mu.Lock()
				defer s.inbox.mu.Unlock()
				used := 0
				for p := range s.inbox.records.Len() {
					used += s.inbox.records.Used(p)
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
			{1, 10, 10, 22}, // after the run: 20, which has passed, so the run starts immediately
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

// The Stop method of a plan or a Run returns true if and only if it prevented further runs, during
// a run and afterwards.
func TestStopOfARunIsExact(t *testing.T) {
	for name, planned := range map[string]func(runs int) Scheduler{
		"serial": func(runs int) Scheduler {
			return newLastRun(int32(runs), 10*ms)
		},
		"overlapping": func(runs int) Scheduler { return overlapping(runs) },
	} {
		for _, c := range [][2]int{{1, 1}, {1, 2}, {2, 2}, {1, 5}, {2, 5}, {3, 5}, {4, 5}, {5, 5}} {
			stopIn, runs := c[0], c[1]
			for _, how := range []string{"plan", "plan later", "run", "run later"} {
				later := strings.HasSuffix(how, "later")
				what := fmt.Sprintf("%s, %s, run %d of %d", name, how, stopIn, runs)
				bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
					var plan handle
					stop := func(r *Run) bool {
						if strings.HasPrefix(how, "run") {
							return r.Stop()
						}
						return plan.get().Stop()
					}
					var mu sync.Mutex
					var kept []*Run
					plan.set(tw.ScheduleRun(planned(runs), func(r *Run) {
						mu.Lock()
						defer mu.Unlock()
						kept = append(kept, r)
						if r.N == runs {
							assert.False(t, plan.get().Reschedule(0), what)
						}
						if r.N == stopIn && !later {
							assert.Equal(t, stopIn < runs, stop(r), what)
							assert.False(t, stop(r), "a second Stop")
							assert.False(t, plan.get().Reschedule(0), what)
						}
					}))
					pass(time.Duration(10*stopIn+5) * ms)
					require.Len(t, kept, stopIn, what)
					if later {
						assert.Equal(t, stopIn < runs, stop(kept[0]), what)
					}
					pass(100 * ms)
					require.Len(t, kept, stopIn, what)
					for i, r := range kept {
						assert.Equal(t, i+1, r.N, "a Run has changed after its end")
						assert.False(t, r.Stop())
					}
					requireEnded(t, tw, plan.get())
				})
			}
		}
	}
	assert.False(t, new(Run).Stop(), "Stop on the zero Run")
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

// overlapping returns a planner with a run every 10 ms that is armed before the previous run
// begins.
func overlapping(last int) plannerFunc {
	return func(q question) planner.Step {
		if q.N == last {
			return planner.Step{Overlap: true}
		}
		return planner.Step{Next: q.Planned.Add(10 * ms), Overlap: true}
	}
}

// A panic of a planner in ScheduleFunc goes to the caller. A later one counts as a panic of the run
// and ends the plan. The run for which the planner was asked does not take place, and nothing is
// left.
func TestPanicOfAPlannerEndsThePlan(t *testing.T) {
	for name, row := range map[string]struct {
		panicsIn, runs int
		length         time.Duration // of a run
	}{
		"Scheduler, ScheduleFunc":       {1, 0, 0},
		"Scheduler, first run":          {2, 0, 0},
		"Scheduler, second run":         {3, 1, 0},
		"Scheduler, after a missed run": {3, 1, 20 * ms},
		"Factory, ScheduleFunc":         {1, 0, 0},
		"Factory, before a run":         {2, 0, 0},
		"Factory, after a run":          {3, 1, 0},
		"Factory, before the second":    {4, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var reported []any
			bubble(t, Options{OnPanic: func(v any, _ []byte) { reported = append(reported, v) }}, func(t *testing.T, tw *TimingWheel) {
				calls := 0
				next := func(from time.Time) time.Time {
					if calls++; calls == row.panicsIn {
						boom()
					}
					return from.Add(10 * ms)
				}
				var s Scheduler = nextFunc(next)
				if strings.HasPrefix(name, "Factory") {
					s = plannerFunc(func(q question) planner.Step { return planner.Step{Next: next(q.Started)} })
				}
				w := newStopwatch()
				run := func() {
					w.note()
					time.Sleep(row.length)
				}
				if row.panicsIn == 1 {
					assert.PanicsWithValue(t, "boom", func() { tw.ScheduleFunc(s, run) })
					assert.Zero(t, tw.Len())
					return
				}
				plan := tw.ScheduleFunc(s, run)
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
		for kind, planned := range map[string]func(nextFunc) Scheduler{
			"Scheduler": func(next nextFunc) Scheduler { return next },
			"Factory": func(next nextFunc) Scheduler {
				return plannerFunc(func(q question) planner.Step { return planner.Step{Next: next(q.Planned)} })
			},
		} {
			bubble(t, Options{OnPanic: func(any, []byte) {}}, func(t *testing.T, tw *TimingWheel) {
				var plan handle
				calls := 0
				w := newStopwatch()
				plan.set(tw.ScheduleFunc(planned(func(from time.Time) time.Time {
					if calls++; calls == 2 {
						assert.True(t, plan.get().Reschedule(5*ms))
						row.then()
					}
					if calls >= 2 {
						return time.Time{}
					}
					return from.Add(10 * ms)
				}), w.note))
				pass(100 * ms)
				assert.Equal(t, row.want, w.times, "%s, %s", name, kind)
				requireEnded(t, tw, plan.get())
			})
		}
	}
}

// After Stop or Reschedule during a run, the planner is not asked at the end of the run.
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

func (s *strict) begin() {
	if s.inside.Add(1) != 1 {
		s.t.Error("concurrent questions to a planner")
	}
	runtime.Gosched()
}

func (s *strict) next(from time.Time) time.Time {
	s.begin()
	defer s.inside.Add(-1)
	return from.Add(rand.N(20 * time.Microsecond))
}

func (s *strict) answer(q question) planner.Step {
	s.begin()
	defer s.inside.Add(-1)
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
		for how, overlap := range map[string]bool{"Scheduler": false, "serial": false, "overlapping": true} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				tw := startWheel(t, Options{
					WheelSize: 4, Levels: 2, Tick: minTick, Shards: 1, Executor: executor(t),
					OnPanic: func(any, []byte) {},
				})
				s := &strict{t: t, overlap: overlap}
				n := numbered{seen: map[int]bool{}}
				var planned Scheduler = plannerFunc(s.answer)
				if how == "Scheduler" {
					planned = nextFunc(s.next)
				}
				plan := tw.ScheduleRun(planned, func(r *Run) {
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

// overlappingEvery returns a planner with a run each d, which is armed before the previous run
// begins.
func overlappingEvery(d time.Duration) plannerFunc {
	return func(q question) planner.Step { return planner.Step{Next: q.Started.Add(d), Overlap: true} }
}

// A plan that is armed during a Flush, on a shard that the Flush has left, runs at its time and not
// at its next look at the wall clock.
func TestPlanArmedDuringAFlushIsNotEarly(t *testing.T) {
	compare := clock.Compare
	clock.Compare = 50 * time.Millisecond
	defer func() { clock.Compare = compare }()
	tw, err := New(Options{Shards: 2})
	require.NoError(t, err)
	defer func() { require.NoError(t, tw.Shutdown(t.Context())) }()
	first, second := tw.engine.shards[0], tw.engine.shards[1]
	second.owner.mu.Lock()
	flushed := make(chan int)
	go func() { flushed <- tw.Flush() }() // walks over the first shard, and waits for the second one
	time.Sleep(50 * time.Millisecond)
	second.inbox.mu.Lock()
	at := time.Now().Add(time.Hour).Round(0)
	ran := make(chan struct{})
	plan := tw.ScheduleRun(only(at), func(*Run) { close(ran) }) // armed on the first shard
	second.inbox.mu.Unlock()
	second.unlock()

	require.Zero(t, receive(t, flushed, "Flush"), "Flush has not claimed the timer of the plan")
	due, ok := plan.Deadline()
	require.True(t, ok)
	require.False(t, due.Before(at), "the plan is pending")
	select {
	case <-ran:
		t.Fatal("the plan has run an hour early")
	case <-time.After(300 * time.Millisecond):
	}
	first.own(func() { require.Zero(t, first.owner.counters.flushed) })
}

type only time.Time

func (a only) Next(now time.Time) time.Time {
	if now.Before(time.Time(a)) {
		return time.Time(a)
	}
	return time.Time{}
}

// A Flush that claims the timer of a plan makes the plan run, even if its function is called before
// the Flush has ended.
func TestFlushRunsAPlanWhoseTimerIsDue(t *testing.T) {
	compare := clock.Compare
	clock.Compare = 50 * time.Millisecond
	defer func() { clock.Compare = compare }()
	tw, err := New(Options{Shards: 2, Executor: Limit(1)})
	require.NoError(t, err)
	defer func() { require.NoError(t, tw.Shutdown(t.Context())) }()
	block, began := make(chan struct{}), make(chan struct{})
	tw.AfterFunc(0, func() { close(began); <-block })
	receive(t, began, "the callback")
	second := tw.engine.shards[1]

	second.inbox.mu.Lock()
	ran := make(chan struct{})
	plan := tw.ScheduleRun(only(time.Now().Add(time.Hour).Round(0)), func(*Run) { close(ran) })
	second.inbox.mu.Unlock()
	await(t, "the timer of the plan is queued", func() bool { return len(tw.engine.dues[0].Waiting(math.MaxInt)) == 1 })
	second.owner.mu.Lock()
	flushed := make(chan int)
	go func() { flushed <- tw.Flush() }()
	time.Sleep(50 * time.Millisecond) // it has claimed the timer of the plan
	close(block)
	time.Sleep(50 * time.Millisecond) // the function of the timer is called
	second.unlock()

	require.Equal(t, 1, receive(t, flushed, "Flush"))
	_, pending := plan.Deadline()
	select {
	case <-ran:
	case <-time.After(300 * time.Millisecond):
		t.Fatalf("Flush has claimed the plan, which has not run; pending: %v", pending)
	}
}
