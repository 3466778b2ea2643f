package timingwheel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// A plan that is armed during a Flush, on a shard that the Flush has left, runs at its time and not
// at its next look at the wall clock.
func TestPlanArmedDuringAFlushIsNotEarly(t *testing.T) {
	tw, err := New(Options{Shards: 2})
	require.NoError(t, err)
	defer tw.Stop()
	compare := clock.Compare
	clock.Compare = 50 * time.Millisecond
	defer func() { clock.Compare = compare }()
	first, second := tw.engine.shards[0], tw.engine.shards[1]

	second.wheelMu.Lock()
	flushed := make(chan int)
	go func() { flushed <- tw.Flush() }() // walks over the first shard, and waits for the second one
	time.Sleep(50 * time.Millisecond)
	second.armMu.Lock()
	at := time.Now().Add(time.Hour).Round(0)
	ran := make(chan struct{})
	plan := tw.ScheduleRun(only(at), func(*Run) { close(ran) }) // armed on the first shard
	second.armMu.Unlock()
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
	require.Zero(t, first.owner.counters.flushed)
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
	defer tw.Stop()
	block, began := make(chan struct{}), make(chan struct{})
	tw.AfterFunc(0, func() { close(began); <-block })
	receive(t, began, "the callback")
	second := tw.engine.shards[1]

	second.armMu.Lock()
	ran := make(chan struct{})
	plan := tw.ScheduleRun(only(time.Now().Add(time.Hour).Round(0)), func(*Run) { close(ran) })
	second.armMu.Unlock()
	await(t, "the timer of the plan is queued", func() bool { return tw.engine.dues[0].Stats().Queued == 1 })
	second.wheelMu.Lock()
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
