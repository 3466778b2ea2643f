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

// Plans with a Follower under races. What they do at which time is tested in
// synctest_follower_test.go.

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
