package timingwheel

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryExecutorRunsEachCallbackOnceAndNeverEarly(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Executor: executor(t), WheelSize: 8, Levels: 2})
			const n = 2000
			var runs [n]atomic.Int32
			var early atomic.Int32
			for i := range n {
				d := rand.N(20 * time.Millisecond)
				armed := time.Now()
				tw.AfterFunc(d, func() {
					if time.Since(armed) < d {
						early.Add(1)
					}
					runs[i].Add(1)
				})
			}
			require.NoError(t, drainWheel(tw))
			for i := range runs {
				require.EqualValues(t, 1, runs[i].Load(), "timer %d", i)
			}
			assert.Zero(t, early.Load())
			verifyShards(t, tw.engine)
		})
	}
}

// A WaitGroup is an executor that also tells when all callbacks have returned.
func TestWaitGroupWaitsForCallbacks(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	tw := startWheel(t, Options{Executor: &wg})
	var done atomic.Int32
	for range 100 {
		tw.AfterFunc(0, func() {
			time.Sleep(time.Millisecond)
			done.Add(1)
		})
	}
	await(t, "all are claimed", func() bool { return tw.Len() == 0 })
	wg.Wait()
	assert.EqualValues(t, 100, done.Load())
}

// A pool bounds how many callbacks run at once; the rest waits, pending, and can still be stopped.
func TestBoundedPoolBoundsWhatRunsAtOnce(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Executor: startPool(t, 3), Shards: 1})
	gate := make(chan struct{})
	var running, most atomic.Int32
	timers := make([]Timer, 100)
	for i := range timers {
		timers[i] = tw.AfterFunc(time.Millisecond, func() {
			most.Store(max(most.Load(), running.Add(1)))
			<-gate
			running.Add(-1)
		})
	}
	await(t, "the pool is full", func() bool { return running.Load() == 3 })
	assert.Equal(t, 97, tw.Len(), "what waits in the pool's queue is not claimed")
	stopped := 0
	for _, timer := range timers[50:] {
		if timer.Stop() {
			stopped++
		}
	}
	close(gate)
	require.NoError(t, drainWheel(tw))
	await(t, "the pool is idle", func() bool { return running.Load() == 0 })
	assert.EqualValues(t, 100-stopped, tw.Stats().Fired)
	assert.LessOrEqual(t, most.Load(), int32(3))
	assert.GreaterOrEqual(t, stopped, 47)
}

func TestCallbacksOfOneBucketThatWaitForEachOtherAllRun(t *testing.T) {
	t.Parallel()
	for name, executor := range unbounded {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Executor: executor, Shards: 1})
			const n = 1000
			var here sync.WaitGroup
			here.Add(n)
			done := make(chan struct{}, n)
			at := time.Now().Add(5 * time.Millisecond)
			for range n {
				tw.AtFunc(at, func() {
					here.Done()
					here.Wait()
					done <- struct{}{}
				})
			}
			for range n {
				receive(t, done, "a callback that waits for all others")
			}
		})
	}
}

func TestBlockedCallbackDelaysNoOther(t *testing.T) {
	t.Parallel()
	for name, executor := range unbounded {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Executor: executor, Shards: 1})
			gate := make(chan struct{})
			defer close(gate)
			blocked, quick := make(chan struct{}), make(chan struct{})
			for range 5 {
				tw.AfterFunc(time.Millisecond, func() { blocked <- struct{}{}; <-gate })
				tw.AfterFunc(time.Millisecond, func() { quick <- struct{}{} })
				receive(t, blocked, "the callback that blocks")
				receive(t, quick, "its neighbour")
				tw.AfterFunc(0, func() { quick <- struct{}{} })
				receive(t, quick, "a later one")
			}
			await(t, "the quick ones return", func() bool { return tw.Stats().Running == 5 })
		})
	}
}

// In one bucket, with the quick callback at either end and in the middle of it.
func TestQuickCallbackAmongTwoThousandThatBlock(t *testing.T) {
	t.Parallel()
	for name, executor := range unbounded {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Executor: executor, Shards: 1})
			gate := make(chan struct{})
			defer close(gate)
			quick := make(chan struct{}, 3)
			at := time.Now().Add(10 * time.Millisecond)
			for i := range 2001 {
				f := func() { <-gate }
				if i%1000 == 0 {
					f = func() { quick <- struct{}{} }
				}
				tw.AtFunc(at, f)
			}
			for range 3 {
				receive(t, quick, "a quick callback")
			}
		})
	}
}

// Each of 64 callbacks of one bucket stops the 63 others: whoever it is, exactly one thing happens
// to each timer.
func TestCallbackStopsSiblingsOfItsOwnBucket(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Executor: executor(t), Shards: 1})
			for range 20 {
				const n = 64
				var timers [n]Timer
				var fates [n]atomic.Int32
				var armed sync.WaitGroup
				armed.Add(1)
				at := time.Now().Add(time.Millisecond)
				for i := range n {
					timers[i] = tw.AtFunc(at, func() {
						armed.Wait()
						fates[i].Add(1)
						for k := range n {
							if timers[k].Stop() {
								fates[k].Add(1)
							}
						}
					})
				}
				armed.Done()
				require.NoError(t, drainWheel(tw))
				for i := range fates {
					require.EqualValues(t, 1, fates[i].Load(), "timer %d", i)
				}
			}
			verifyShards(t, tw.engine)
		})
	}
}

// Callbacks run without a lock: each may call all of the API.
func TestCallbackMayCallEverything(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Executor: executor(t), Shards: 1})
			far := tw.AfterFunc(time.Hour, func() {})
			sibling := tw.AfterFunc(time.Hour, func() {})
			ran := make(chan string, 10)
			tw.AfterFunc(time.Millisecond, func() {
				assert.True(t, sibling.Stop())
				assert.True(t, far.Reschedule(time.Minute))
				assert.True(t, far.RescheduleAt(time.Now().Add(time.Hour)))
				_, ok := far.Deadline()
				assert.True(t, ok)
				assert.Equal(t, 1, tw.Len())
				_, ok = tw.Next()
				assert.True(t, ok)
				assert.Equal(t, 1, tw.Stats().Running)
				tw.AfterFunc(0, func() { ran <- "AfterFunc" })
				tw.AtFunc(tw.Now(), func() { ran <- "AtFunc" })
				tw.ScheduleFunc(Every(time.Hour), func() { ran <- "plan" })
				assert.GreaterOrEqual(t, tw.Flush(), 2) // far, plan, and what has not run yet
				tw.AfterFunc(time.Hour, func() {})
				ran <- "outer"
			})
			got := []string{}
			for range 4 {
				got = append(got, receive(t, ran, "what the callback armed"))
			}
			assert.ElementsMatch(t, []string{"AfterFunc", "AtFunc", "plan", "outer"}, got)
			await(t, "the flushed run", func() bool { return tw.Len() == 2 }) // the plan and the last one
			stopped := make(chan struct{})
			tw.AfterFunc(0, func() { tw.Stop(); close(stopped) })
			receive(t, stopped, "Stop from a callback")
			assert.Zero(t, tw.Len())
		})
	}
}
