package schedule

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

// Several plans use the same Scheduler while other goroutines reschedule and flush them. Each plan
// makes exactly its number of runs.
func TestRacePlansThatShareASchedulerMakeAllRuns(t *testing.T) {
	t.Parallel()
	const n = 200
	for name, policy := range map[string]Overlap{"skip if running": SkipIfRunning, "queue one": QueueOne, "allow": Allow} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw, err := timingwheel.New(timingwheel.Options{Tick: 50 * time.Microsecond, Shards: 2})
			require.NoError(t, err)
			s := WithOverlap(Limit(Jitter(timingwheel.Every(20*time.Microsecond), 10*time.Microsecond), n), policy)
			var runs [8]atomic.Int64
			var last sync.WaitGroup
			last.Add(n * len(runs))
			var all sync.WaitGroup
			for i := range runs {
				plan := tw.ScheduleRun(s, func(r *timingwheel.Run) {
					runs[i].Add(1)
					if r.N%10 == 0 {
						time.Sleep(50 * time.Microsecond)
					}
					last.Done()
				})
				all.Go(func() {
					for range 20 {
						plan.Reschedule(rand.N(50 * time.Microsecond))
						tw.Flush()
						time.Sleep(rand.N(50 * time.Microsecond))
					}
				})
			}
			all.Wait()
			last.Wait() // hangs if a run is lost
			require.NoError(t, tw.Shutdown(context.Background()))
			for i := range runs {
				assert.EqualValues(t, n, runs[i].Load())
			}
		})
	}
}

// Stop races with the last run of a Limit. Stop returns true if and only if it prevented a run, and
// no plan makes more runs than its Limit.
func TestRaceStopReturnsTrueOnlyIfItPreventsRuns(t *testing.T) {
	t.Parallel()
	tw, err := timingwheel.New(timingwheel.Options{Tick: 50 * time.Microsecond, Shards: 1})
	require.NoError(t, err)
	const n = 5
	stopped := map[*atomic.Int64]bool{} // plans by their runs
	for range 500 {
		runs, over := new(atomic.Int64), new(atomic.Int64)
		plan := tw.ScheduleFunc(Limit(timingwheel.Every(20*time.Microsecond), n), func() {
			if runs.Add(1) > n {
				over.Add(1)
			}
		})
		time.Sleep(rand.N(200 * time.Microsecond))
		if plan.Stop() {
			stopped[runs] = true
		} else {
			for runs.Load() < n { // the last run may have been claimed and not have begun
				time.Sleep(10 * time.Microsecond)
			}
		}
		require.Zero(t, over.Load())
		require.False(t, plan.Stop())
	}
	require.NoError(t, tw.Shutdown(context.Background()))
	for runs := range stopped {
		require.Less(t, runs.Load(), int64(n), "Stop returned true although it prevented no run")
	}
}

// Reschedule moves a run that has not begun. It never adds a run to a plan with a single run.
func TestRaceRescheduleAddsNoRunToALimit(t *testing.T) {
	t.Parallel()
	tw, err := timingwheel.New(timingwheel.Options{Tick: 50 * time.Microsecond, Shards: 1})
	require.NoError(t, err)
	all := make([]atomic.Int64, 1000)
	for i := range all {
		plan := tw.ScheduleFunc(Limit(timingwheel.Every(5*time.Microsecond), 1), func() { all[i].Add(1) })
		for range 20 {
			plan.Reschedule(rand.N(5 * time.Microsecond))
		}
		for all[i].Load() == 0 { // the run may have been claimed and not have begun
			time.Sleep(10 * time.Microsecond)
		}
	}
	require.NoError(t, tw.Shutdown(context.Background()))
	for i := range all {
		require.EqualValues(t, 1, all[i].Load())
	}
}
