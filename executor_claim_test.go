package timingwheel

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What an executor has been given but not begun is pending: it is claimed when the call begins, and
// a call whose timer is gone does nothing.
func TestHandedOverIsStillPending(t *testing.T) {
	t.Parallel()
	h := &held{}
	tw := startWheel(t, Options{Executor: h, Shards: 1})
	ran := 0
	timers := make([]Timer, 10)
	at := time.Now().Add(time.Millisecond)
	for i := range timers {
		timers[i] = tw.AtFunc(at, func() { ran++ })
	}
	await(t, "all are handed over", func() bool { return h.len() == len(timers) })
	assert.Equal(t, 10, tw.Len())
	for _, timer := range timers[:4] {
		_, pending := timer.Deadline()
		assert.True(t, pending)
		assert.True(t, timer.Stop())
	}
	assert.Equal(t, 6, tw.Len())
	assert.Equal(t, 10, h.release())
	assert.Equal(t, 6, ran)
	assert.Zero(t, tw.Len())
	for _, timer := range timers {
		assert.False(t, timer.Stop())
	}
	verifyShards(t, tw.engine)
}

// Calls that found nothing to run must leave the shard able to run what comes later.
func TestTimersFireAfterACallThatFoundNothing(t *testing.T) {
	t.Parallel()
	h := &held{}
	tw := startWheel(t, Options{Executor: h, Shards: 1})
	ran := 0
	for round := range 5 {
		timer := tw.AfterFunc(0, func() { ran++ })
		await(t, "the timer is handed over", func() bool { return h.len() > 0 })
		require.True(t, timer.Stop())
		h.release()
		tw.AfterFunc(0, func() { ran++ })
		await(t, "the next one runs", func() bool { h.release(); return ran == round+1 })
	}
	assert.Zero(t, tw.Len())
}

// A timer that is postponed while its call waits in the executor's queue runs at its new time, with
// a call of its own.
func TestPostponedWhileItsCallWaits(t *testing.T) {
	t.Parallel()
	h := &held{}
	tw := startWheel(t, Options{Executor: h, Shards: 1})
	const n = 600 // several quanta
	ran := 0
	start := time.Now()
	timers := make([]Timer, n)
	for i := range timers {
		timers[i] = tw.AfterFunc(0, func() {
			ran++
			assert.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond)
		})
	}
	await(t, "all are handed over", func() bool { return h.len() >= n })
	start = time.Now()
	for _, timer := range timers {
		require.True(t, timer.Reschedule(50*time.Millisecond))
	}
	await(t, "all run", func() bool { h.release(); return ran == n })
	assert.Zero(t, tw.Len())
	verifyShards(t, tw.engine)
}

// The reverse: a timer whose call waits is hastened, or moved to a point in time that has passed.
func TestHastenedWhileItsCallWaits(t *testing.T) {
	t.Parallel()
	h := &held{}
	tw := startWheel(t, Options{Executor: h, Shards: 1})
	ran := 0
	timer := tw.AfterFunc(0, func() { ran++ })
	await(t, "it is handed over", func() bool { return h.len() > 0 })
	require.True(t, timer.Reschedule(time.Hour))
	require.True(t, timer.Reschedule(0))
	require.True(t, timer.RescheduleAt(time.Now().Add(-time.Hour)))
	await(t, "it runs", func() bool { h.release(); return ran == 1 })
	time.Sleep(5 * time.Millisecond)
	h.release()
	assert.Equal(t, 1, ran)
	assert.Zero(t, tw.Len())
}

// Calls that the executor begins after the wheel's Stop do nothing.
func TestCallsAfterTheWheelsStopDoNothing(t *testing.T) {
	t.Parallel()
	h := &held{}
	tw := startWheel(t, Options{Executor: h, Shards: 1})
	for range 100 {
		tw.AfterFunc(0, func() { t.Error("ran after Stop") })
	}
	await(t, "all are handed over", func() bool { return h.len() == 100 })
	tw.Stop()
	assert.Equal(t, 100, h.release())
	assert.Zero(t, tw.Stats().Fired)
	require.NoError(t, tw.Shutdown(t.Context()), "nothing runs")
}

// Flush hands over what is pending at the call. Reschedule takes a timer out of the flush. Stop
// prevents the callback.
func TestFlushedIsPendingUntilItStarts(t *testing.T) {
	t.Parallel()
	h := &held{}
	tw := startWheel(t, Options{Executor: h, Shards: 1, WheelSize: 4, Levels: 2})
	var ran []string
	note := func(name string) func() { return func() { ran = append(ran, name) } }
	tw.AfterFunc(time.Hour, note("flushed"))
	later := tw.AfterFunc(2*time.Hour, note("later"))
	longer := tw.AfterFunc(time.Minute, note("longer"))
	soon := tw.AfterFunc(3*time.Hour, note("soon"))
	stopped := tw.AfterFunc(4*time.Hour, note("stopped"))
	require.Equal(t, 5, tw.Flush())
	assert.Equal(t, 5, tw.Len())
	tw.AfterFunc(time.Hour, note("armed after the flush"))
	require.True(t, later.Reschedule(time.Hour), "earlier than before, but not now")
	require.True(t, longer.Reschedule(time.Hour))
	require.True(t, soon.Reschedule(time.Millisecond))
	require.True(t, stopped.Stop())
	await(t, "the flushed one and the soon one run", func() bool { h.release(); return len(ran) == 2 })
	assert.ElementsMatch(t, []string{"flushed", "soon"}, ran)
	assert.Equal(t, 3, tw.Len())
	verifyShards(t, tw.engine)

	require.Equal(t, 3, tw.Flush(), "a rescheduled timer can be flushed again")
	await(t, "the rest run", func() bool { h.release(); return len(ran) == 5 })
	assert.Zero(t, tw.Len())
}

// What a Flush has handed to the executor is pending until the call begins. Reschedule takes it
// back.
func TestRescheduleTakesBackWhatAFlushHasHanded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &held{}
		tw, err := New(Options{Executor: h, Shards: 1})
		require.NoError(t, err)
		defer tw.Stop()
		var ran []string
		note := func(name string) func() { return func() { ran = append(ran, name) } }
		a, b := tw.AfterFunc(time.Hour, note("a")), tw.AfterFunc(time.Hour, note("b"))
		tw.AfterFunc(time.Minute, note("c"))
		require.Equal(t, 3, tw.Flush())
		synctest.Wait()
		require.True(t, a.Reschedule(2*time.Hour))
		require.True(t, b.Reschedule(time.Second))
		h.release()
		require.Equal(t, []string{"c"}, ran)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		h.release()
		require.Equal(t, []string{"c", "b", "a"}, ran)
	})
}
