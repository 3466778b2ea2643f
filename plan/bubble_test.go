package plan

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/course"
)

const ms = time.Millisecond

// bubble runs a test on fake time, with a wheel of one shard.
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

// pass lets d of fake time pass and then whatever is due at its end come to rest.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// manual is a wheel that is driven by hand, from midnight of a day in 2030.
func newManualWheel(t *testing.T) *timingwheel.TimingWheel {
	t.Helper()
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: midnight})
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	return tw
}

var midnight = time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)

// advance moves the clock to d after midnight, and again until nothing more is due there.
func advance(tw *timingwheel.TimingWheel, d time.Duration) {
	for tw.Advance(midnight.Add(d)) > 0 {
	}
}

// begun is a run as the tests look at it, in milliseconds since its plan began.
type loggedRun struct{ planned, started int }

// diary notes the runs of a plan.
type runLog struct {
	start time.Time
	mu    sync.Mutex // of note; runs may overlap
	runs  []loggedRun
}

func (d *runLog) note(r *timingwheel.Run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs = append(d.runs, loggedRun{int(r.Planned.Sub(d.start) / ms), int(r.Started.Sub(d.start) / ms)})
}

// started are the times at which the runs began.
func (d *runLog) started() (times []int) {
	for _, r := range d.runs {
		times = append(times, r.started)
	}
	return times
}

// ended returns the time of the further run, as a plan of the wheel asks for it when a run has
// ended. next is the answer of Before.
func ended(c course.Course, next, finished time.Time) time.Time {
	next = c.After(next, finished)
	if isDue(next, finished) {
		next = c.Missed(next, finished)
	}
	return next
}

// The pairs of policies for late runs.
func runOnce(s timingwheel.Scheduler) timingwheel.Scheduler { return WithMisfire(s, RunOnce) }
func runAll(s timingwheel.Scheduler) timingwheel.Scheduler  { return WithMisfire(s, RunAll) }

func runOnceMaxLate(late time.Duration) func(timingwheel.Scheduler) timingwheel.Scheduler {
	return func(s timingwheel.Scheduler) timingwheel.Scheduler { return MaxLate(runOnce(s), late) }
}

func runAllMaxLate(late time.Duration) func(timingwheel.Scheduler) timingwheel.Scheduler {
	return func(s timingwheel.Scheduler) timingwheel.Scheduler { return runAll(MaxLate(s, late)) }
}

// counting is a fixed rate that counts how often it is asked.
type counting struct {
	course.Every
	calls int
}

func (c *counting) Next(t time.Time) time.Time {
	c.calls++
	return c.Every.Next(t)
}

func (c *counting) First(now time.Time) time.Time { return c.Next(now) }

func (c *counting) Before(r course.Run) course.Step {
	return course.Step{Next: c.Next(r.Planned)}
}

func (c *counting) Missed(missed, now time.Time) time.Time {
	c.calls++
	return c.Every.Missed(missed, now)
}
