package timingwheel

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stopWait calls StopWait with a context that does not end. If StopWait never returns, the deadlock
// check of the bubble fails the test.
func stopWait(t *testing.T, ft *FuncTimer) {
	t.Helper()
	require.NoError(t, ft.StopWait(context.Background()))
}

// requireNoneInFlight checks that the wheel knows of no call in flight.
func requireNoneInFlight(t *testing.T, tw *TimingWheel) {
	t.Helper()
	waits := &tw.engine.funcTimers.waits
	waits.mu.Lock()
	defer waits.mu.Unlock()
	require.Empty(t, waits.channels)
	require.Zero(t, waits.waiting.Load())
	require.Zero(t, tw.engine.claiming.Load())
}

// If the function is not running, StopWait stops the timer and returns nil immediately, even if the
// context has ended.
func TestStopWaitWithoutACallInFlightReturnsAtOnce(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(context.Background())
	end()
	require.NoError(t, new(FuncTimer).StopWait(ended), "not initialised")
	calls := new(held)
	for name, prepare := range map[string]func(tw *TimingWheel, ft *FuncTimer){
		"never armed":     func(*TimingWheel, *FuncTimer) {},
		"armed":           func(_ *TimingWheel, ft *FuncTimer) { ft.Reset(time.Hour) },
		"stopped":         func(_ *TimingWheel, ft *FuncTimer) { ft.Reset(time.Hour); ft.Stop() },
		"due":             func(_ *TimingWheel, ft *FuncTimer) { ft.Reset(ms); pass(2 * ms) },
		"stopped wheel":   func(tw *TimingWheel, ft *FuncTimer) { ft.Reset(time.Hour); tw.Stop() },
		"on the wheel":    func(tw *TimingWheel, ft *FuncTimer) { ft.Reset(time.Hour); tw.Len() },
		"touched and due": func(_ *TimingWheel, ft *FuncTimer) { ft.Reset(2 * ms); pass(ms); ft.Touch(); pass(2 * ms) },
	} {
		bubble(t, Options{Executor: calls}, func(t *testing.T, tw *TimingWheel) {
			ft := new(FuncTimer)
			ft.InitStopped(tw, boom)
			prepare(tw, ft)
			assert.NoError(t, ft.StopWait(ended), name)
			pass(2 * time.Hour)
			calls.release()
			assert.Zero(t, tw.Len(), name)
		})
	}
}

// StopWait is a durable wait of synctest, so fake time passes until the call has ended.
func TestStopWaitReturnsWhenTheCallHasEnded(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(){"return": func() {}, "panic": boom, "Goexit": runtime.Goexit} {
		for _, executor := range []Executor{nil, Goroutines, Inline} {
			opts := Options{Executor: executor, OnPanic: func(any, []byte) {}}
			bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
				watch := newStopwatch()
				ft := tw.NewFuncTimer(10*ms, func() { time.Sleep(50 * ms); watch.note(); leave() })
				pass(20 * ms)
				stopWait(t, ft)
				assert.Equal(t, []int{60}, watch.noted(), name)
				assert.Equal(t, 60, watch.elapsed(), name)
				requireNoneInFlight(t, tw)
				assert.False(t, ft.Reset(5*ms))
				pass(5 * ms)
				assert.True(t, tw.Stats().Running > 0, "Reset after StopWait arms the timer")
				stopWait(t, ft)
				assert.Equal(t, []int{60, 115}, watch.noted(), name)
			})
		}
	}
}

func TestStopWaitWaitsForAllOverlappingCalls(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		ended := newStopwatch()
		var calls atomic.Int64
		ft := tw.NewFuncTimer(0, func() {
			time.Sleep(time.Duration(100-10*calls.Add(1)) * ms) // the first takes longest
			ended.note()
		})
		for range 5 {
			pass(ms)
			assert.False(t, ft.Reset(0))
		}
		pass(ms) // calls began at 0, 1, 2, 3, 4 and 5 ms
		assert.Equal(t, 6, tw.Stats().Running)
		var all sync.WaitGroup
		for range 3 { // several callers
			all.Go(func() {
				stopWait(t, ft)
				assert.Equal(t, 90, ended.elapsed())
			})
		}
		all.Wait()
		assert.Len(t, ended.noted(), 6)
		requireNoneInFlight(t, tw)
		pass(time.Hour)
		assert.Len(t, ended.noted(), 6)
	})
}

func TestStopWaitReturnsTheErrorOfItsContext(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ft *FuncTimer, enough *atomic.Bool){
		"takes long": func(*FuncTimer, *atomic.Bool) { time.Sleep(100 * ms) },
		"waits for itself": func(ft *FuncTimer, _ *atomic.Bool) {
			ctx, cancel := context.WithTimeout(context.Background(), 100*ms)
			defer cancel()
			ft.Reset(ms)
			assert.ErrorIs(t, ft.StopWait(ctx), context.DeadlineExceeded)
		},
		"begins again before it ends": func(ft *FuncTimer, enough *atomic.Bool) {
			time.Sleep(30 * ms)
			if !enough.Load() {
				ft.Reset(0)
			}
			time.Sleep(ms)
		},
	} {
		bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
			watch := newStopwatch()
			var ft FuncTimer
			var enough atomic.Bool
			ft.InitStopped(tw, func() { watch.note(); call(&ft, &enough) })
			ft.Reset(10 * ms)
			pass(20 * ms)
			if name == "takes long" {
				ft.Reset(50 * ms)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 30*ms)
			defer cancel()
			require.ErrorIs(t, ft.StopWait(ctx), context.DeadlineExceeded, name)
			assert.Equal(t, 50, watch.elapsed(), name)
			enough.Store(true)
			stopWait(t, &ft)
			assert.False(t, ft.Stop(), name)
			requireNoneInFlight(t, tw)
			if name != "begins again before it ends" {
				assert.Equal(t, 110, watch.elapsed(), name)
				pass(time.Hour)
				assert.Equal(t, []int{10}, watch.noted(), "%s: StopWait stopped the timer", name)
			}
		})
	}
}

// Another goroutine calls Reset while StopWait waits. StopWait stops the timer, or waits for its
// call.
func TestStopWaitCoversResetsWhileItWaits(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		watch := newStopwatch()
		ft := tw.NewFuncTimer(10*ms, func() { time.Sleep(100 * ms); watch.note() })
		pass(20 * ms)
		var all sync.WaitGroup
		all.Go(func() {
			stopWait(t, ft)
			assert.Equal(t, 135, watch.elapsed())
			assert.Equal(t, []int{110, 135}, watch.noted())
		})
		pass(10 * ms)
		ft.Reset(5 * ms) // runs from 35 to 135 ms
		pass(10 * ms)
		ft.Reset(time.Hour) // is stopped
		all.Wait()
		pass(2 * time.Hour)
		assert.Len(t, watch.noted(), 2)
	})
}

// The executor delays a call. StopWait does not wait for a call that has not begun, and prevents
// it.
func TestStopWaitPreventsACallThatTheExecutorDelays(t *testing.T) {
	t.Parallel()
	calls := new(held)
	bubble(t, Options{Executor: calls}, func(t *testing.T, tw *TimingWheel) {
		watch := newStopwatch()
		ft := tw.NewFuncTimer(10*ms, func() { time.Sleep(50 * ms); watch.note() })
		pass(20 * ms)
		assert.Equal(t, 1, calls.len())
		stopWait(t, ft) // returns immediately: the call has not begun
		calls.release()
		assert.Empty(t, watch.noted())
		ft.Reset(10 * ms)
		pass(10 * ms)
		go calls.release()
		synctest.Wait()
		stopWait(t, ft)
		assert.Equal(t, []int{80}, watch.noted())
		ft.Reset(time.Hour)
		assert.Equal(t, 1, tw.Flush())
		pass(0)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, ft.StopWait(ended), context.Canceled, "a call that Flush has made is under way")
		calls.release()
		assert.NoError(t, ft.StopWait(ended))
	})
}

func TestStopWaitWaitsForACallInsideAdvance(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Manual: true}, func(t *testing.T, tw *TimingWheel) {
		watch := newStopwatch()
		ft := tw.NewFuncTimer(10*ms, func() { time.Sleep(50 * ms); watch.note() })
		other := tw.NewFuncTimer(10*ms, func() { watch.note() })
		go tw.Advance(tw.Now().Add(time.Second))
		synctest.Wait()
		stopWait(t, other) // due, but not begun
		stopWait(t, ft)
		assert.Equal(t, []int{50}, watch.noted())
		synctest.Wait()
		assert.Len(t, watch.noted(), 1)
	})
}

// A Reset and its call come between the Stop and the wait of a StopWait.
func TestStopWaitSeesACallThatEndsBeforeItWaits(t *testing.T) {
	t.Parallel()
	tw, begun, gate := startWheel(t, Options{}), make(chan bool), make(chan bool)
	ft := tw.NewFuncTimer(0, func() { begun <- true; <-gate })
	<-begun
	waits, done := &tw.engine.funcTimers.waits, make(chan error, 1)
	waits.mu.Lock()
	go func() { done <- ft.StopWait(context.Background()) }()
	time.Sleep(20 * ms) // StopWait waits for the lock
	ft.Reset(0)
	<-begun
	close(gate)
	await(t, "the end of both calls", func() bool { return ft.timer.over.Load() == 2 })
	waits.mu.Unlock()
	require.NoError(t, receive(t, done, "StopWait"))
}

// Several goroutines call StopWait on the same timers, with contexts that end, while the wheel is
// stopped.
func TestRaceStopWaitAgainstTheWheelsStop(t *testing.T) {
	t.Parallel()
	for round := range scaled(200) {
		tw := startWheel(t, Options{Tick: minTick, Shards: 1 + round%2})
		var running atomic.Int64
		var fts [4]FuncTimer
		for k := range fts {
			fts[k].InitStopped(tw, func() {
				running.Add(1)
				spin(10 * time.Microsecond)
				running.Add(-1)
			})
			fts[k].Reset(time.Duration(k) * 10 * time.Microsecond)
		}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(100))*time.Microsecond)
				defer cancel()
				for k := range fts {
					_ = fts[k].StopWait(ctx)
					fts[k].Reset(0)
				}
			})
		}
		spin(time.Duration(rand.IntN(100)) * time.Microsecond)
		tw.Stop()
		all.Wait()
		for k := range fts {
			assert.NoError(t, fts[k].StopWait(context.Background()))
		}
		assert.Zero(t, running.Load())
		requireNoneInFlight(t, tw)
	}
}
