package schedule

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/planner"
)

const ms = time.Millisecond

// runInBubble runs a test with fake time and a wheel with one shard.
func runInBubble(t *testing.T, test func(t *testing.T, tw *timingwheel.TimingWheel)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tw, err := timingwheel.New(timingwheel.Options{Shards: 1})
		require.NoError(t, err)
		test(t, tw)
		require.NoError(t, tw.Shutdown(context.Background()))
		synctest.Wait()
	})
}

// sleep waits for d of fake time and then until the callbacks that are due have run or block.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// newManualWheel returns a wheel in Manual mode whose clock starts at midnight.
func newManualWheel(t *testing.T) *timingwheel.TimingWheel {
	t.Helper()
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: midnight})
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	return tw
}

var midnight = time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)

// advance moves the clock to d after midnight and repeats that until no timer is due.
func advance(tw *timingwheel.TimingWheel, d time.Duration) {
	for tw.Advance(midnight.Add(d)) > 0 {
	}
}

// loggedRun has the times of a run in milliseconds since the start of its plan.
type loggedRun struct{ planned, started int }

// runLog records the runs of a plan.
type runLog struct {
	start time.Time
	mu    sync.Mutex // runs may overlap
	runs  []loggedRun
}

func (d *runLog) note(r *timingwheel.Run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs = append(d.runs, loggedRun{int(r.Planned.Sub(d.start) / ms), int(r.Started.Sub(d.start) / ms)})
}

// started returns the times at which the runs started.
func (d *runLog) started() (times []int) {
	for _, r := range d.runs {
		times = append(times, r.started)
	}
	return times
}

// ended returns the time of the next run in the way in which a plan of the wheel determines it when
// a run has ended. next is the result of Before.
func ended(c planner.Planner, next, finished time.Time) time.Time {
	next = c.After(next, finished)
	if isDue(next, finished) {
		next = c.Missed(next, finished)
	}
	return next
}

// Policies for late runs, and combinations of two policies.
func runOnce(s timingwheel.Scheduler) timingwheel.Scheduler { return WithMisfire(s, RunOnce) }
func runAll(s timingwheel.Scheduler) timingwheel.Scheduler  { return WithMisfire(s, RunAll) }

func runOnceMaxLate(late time.Duration) func(timingwheel.Scheduler) timingwheel.Scheduler {
	return func(s timingwheel.Scheduler) timingwheel.Scheduler { return MaxLate(runOnce(s), late) }
}

func runAllMaxLate(late time.Duration) func(timingwheel.Scheduler) timingwheel.Scheduler {
	return func(s timingwheel.Scheduler) timingwheel.Scheduler { return runAll(MaxLate(s, late)) }
}

// counting is a fixed rate that counts its calls.
type counting struct {
	planner.Every
	calls int
}

func (c *counting) Next(t time.Time) time.Time {
	c.calls++
	return c.Every.Next(t)
}

func (c *counting) First(now time.Time) time.Time { return c.Next(now) }

func (c *counting) Before(r planner.Run) planner.Step {
	return planner.Step{Next: c.Next(r.Planned)}
}

func (c *counting) Missed(missed, now time.Time) time.Time {
	c.calls++
	return c.Every.Missed(missed, now)
}
