package timingwheel

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Plans under races. What they do at which time is tested on fake time in synctest_plan_test.go.

// planTrial is a plan that somebody stops.
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
