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

// Each method may be called after Stop and returns its documented result.
func TestCallsAfterStopReturnTheirDocumentedResults(t *testing.T) {
	t.Parallel()
	for _, manual := range []bool{false, true} {
		tw := startWheel(t, Options{Manual: manual, Shards: 2})
		fail := func() { t.Error("ran after Stop") }
		timer := tw.AfterFunc(time.Hour, fail)
		plan := tw.ScheduleFunc(Every(time.Hour), fail)
		tw.Stop()
		tw.Stop()
		for _, old := range []Timer{timer, plan} {
			assert.False(t, old.Stop())
			assert.False(t, old.Reschedule(0))
			assert.False(t, old.RescheduleAt(time.Now()))
			_, ok := old.Deadline()
			assert.False(t, ok)
		}
		assert.Equal(t, Timer{}, tw.AfterFunc(0, fail))
		assert.Equal(t, Timer{}, tw.AtFunc(time.Now(), fail))
		assert.Equal(t, Timer{}, tw.ScheduleFunc(Every(ms), fail))
		assert.Zero(t, tw.Len())
		assert.Zero(t, tw.Flush())
		_, ok := tw.Next()
		assert.False(t, ok)
		assert.Zero(t, tw.Stats().Pending)
		assert.Zero(t, tw.Stats().Buckets)
		assert.EqualValues(t, 2, tw.Stats().Armed)
		if manual {
			assert.Zero(t, tw.Advance(tw.Now().Add(24*time.Hour)))
		}
		assert.False(t, tw.Now().IsZero())
		assert.NoError(t, tw.Shutdown(t.Context()))
		assert.NoError(t, tw.Shutdown(t.Context()))
	}
}

func TestCallsAfterStopOfTimeoutsReturnTheirDocumentedResults(t *testing.T) {
	t.Parallel()
	w, err := NewTimeouts(Options{Shards: 2}, func([]int) { t.Error("expired after Stop") })
	require.NoError(t, err)
	timer := w.Add(time.Hour, 1)
	w.Stop()
	w.Stop()
	assert.False(t, timer.Stop())
	assert.False(t, timer.Reschedule(0))
	assert.Equal(t, Timer{}, w.Add(0, 2))
	assert.Equal(t, Timer{}, w.AddAt(time.Now(), 3))
	assert.Empty(t, w.RemoveAll())
	assert.Zero(t, w.Len())
	_, ok := w.Next()
	assert.False(t, ok)
	assert.NoError(t, w.Shutdown(t.Context()))
}

// Stop discards pending timers. Running callbacks continue, and Stop does not wait for them.
func TestStopDiscardsPendingTimersAndLetsCallbacksRun(t *testing.T) {
	t.Parallel()
	for name, executor := range unbounded {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Executor: executor, Shards: 3})
			gate, started, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
			for range 10 {
				tw.AfterFunc(0, func() { started <- struct{}{}; <-gate; ended <- struct{}{} })
			}
			for range 10 {
				receive(t, started, "a callback")
			}
			for range 100 {
				tw.AfterFunc(time.Hour, func() { t.Error("ran after Stop") })
			}
			tw.Stop()
			assert.Zero(t, tw.Len())
			assert.Equal(t, 10, tw.Stats().Running)

			ctx, cancel := context.WithTimeout(t.Context(), 5*ms)
			defer cancel()
			require.ErrorIs(t, tw.Shutdown(ctx), context.DeadlineExceeded, "callbacks still run")
			waited := make(chan error, 2)
			for range 2 { // several callers may wait
				go func() { waited <- tw.Shutdown(t.Context()) }()
			}
			close(gate)
			for range 10 {
				receive(t, ended, "the end of a callback")
			}
			require.NoError(t, receive(t, waited, "Shutdown"))
			require.NoError(t, receive(t, waited, "the other Shutdown"))
			assert.Zero(t, tw.Stats().Running)
		})
	}
}

// When Shutdown has returned nil, no callback runs, and none begins later.
func TestNoCallbackRunsAfterShutdown(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := executor(t)
			for range max(scaled(100), 5) {
				tw, err := New(withLimit(Options{Executor: e, Shards: 2, Tick: minTick}))
				require.NoError(t, err)
				var running, ran atomic.Int32
				for range 200 {
					tw.AfterFunc(rand.N(300*time.Microsecond), func() {
						running.Add(1)
						runtime.Gosched()
						ran.Add(1)
						running.Add(-1)
					})
				}
				spin(rand.N(300 * time.Microsecond))
				require.NoError(t, tw.Shutdown(t.Context()))
				require.Zero(t, running.Load())
				total := ran.Load()
				require.EqualValues(t, total, tw.Stats().Fired, "each claimed timer has run")
				runtime.Gosched()
				require.Equal(t, total, ran.Load())
			}
		})
	}
}

// In a callback, Shutdown waits for this callback, so it returns when ctx ends. Stop does not wait.
func TestShutdownInACallbackWaitsForItsContext(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Executor: executor(t), Shards: 2})
			result := make(chan error, 1)
			tw.AfterFunc(0, func() {
				ctx, cancel := context.WithTimeout(context.Background(), 5*ms)
				defer cancel()
				tw.Stop()
				result <- tw.Shutdown(ctx)
			})
			require.ErrorIs(t, receive(t, result, "Shutdown"), context.DeadlineExceeded)
			require.NoError(t, tw.Shutdown(t.Context()), "from another goroutine it waits for the callback only")
		})
	}
}

// With an ended context, Shutdown stops the wheel. It returns nil if no callback runs, otherwise
// the error of the context.
func TestShutdownWithAnEndedContextStopsTheWheel(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	tw := startWheel(t, Options{})
	timer := tw.AfterFunc(time.Hour, func() {})
	assert.NoError(t, tw.Shutdown(ended))
	assert.False(t, timer.Stop())
	assert.Equal(t, Timer{}, tw.AfterFunc(0, func() {}))

	tw = startWheel(t, Options{})
	gate, started := make(chan struct{}), make(chan struct{})
	tw.AfterFunc(0, func() { close(started); <-gate })
	receive(t, started, "the callback")
	cause, abandon := context.WithCancelCause(t.Context())
	abandon(assert.AnError)
	assert.ErrorIs(t, tw.Shutdown(cause), context.Canceled)
	assert.Equal(t, Timer{}, tw.AfterFunc(0, func() {}), "the wheel is stopped")
	close(gate)
	assert.NoError(t, tw.Shutdown(t.Context()))
}

// Stop and Shutdown are called while other goroutines call all other methods. Each timer ends at
// most once.
func TestRaceStopOfTheWheelEndsEachTimerAtMostOnce(t *testing.T) {
	t.Parallel()
	for _, opts := range tiny {
		t.Run(optionName(opts), func(t *testing.T) {
			t.Parallel()
			for round := range max(scaled(30), 3) {
				tw, err := New(withLimit(opts))
				require.NoError(t, err)
				s := &pairState{tw: tw, l: newLedger()}
				s.l.mayBeEarly = true
				for i := range s.board {
					s.board[i].Store(s.l.arm(tw, s.delay()))
				}
				for i := range s.plans {
					s.plans[i].Store(new(Timer))
				}
				var all sync.WaitGroup
				for _, op := range pairOps {
					all.Go(func() {
						for range 30 {
							op.call(s)
						}
					})
				}
				for range 3 {
					all.Go(func() {
						spin(rand.N(300 * time.Microsecond))
						if round%2 == 0 {
							tw.Stop()
						}
						assert.NoError(t, tw.Shutdown(context.Background()))
					})
				}
				all.Wait()
				s.l.account(t)
				require.Zero(t, tw.Len())
				require.Zero(t, tw.Stats().Running)
				require.False(t, s.overlap.Load(), "runs overlapped")
			}
		})
	}
}

// gated is an executor whose Go sends on entered and then blocks until the test sends on gate.
type gated struct{ entered, gate chan struct{} }

func (g gated) Go(f func()) {
	g.entered <- struct{}{}
	<-g.gate
	go f()
}

// A program may close its pool when Shutdown has returned: no call to the executor's Go is in
// progress then, and none follows.
func TestShutdownWaitsForTheExecutorsGo(t *testing.T) {
	t.Parallel()
	g := gated{entered: make(chan struct{}), gate: make(chan struct{})}
	tw := startWheel(t, Options{Executor: g, Shards: 1})
	at := time.Now().Add(ms)
	for range 3 {
		tw.AtFunc(at, func() {})
	}
	receive(t, g.entered, "Go")
	ctx, cancel := context.WithTimeout(t.Context(), 20*ms)
	defer cancel()
	assert.ErrorIs(t, tw.Shutdown(ctx), context.DeadlineExceeded, "a call to Go is in progress")
	g.gate <- struct{}{}
	require.NoError(t, tw.Shutdown(t.Context()))
	select {
	case <-g.entered:
		assert.Fail(t, "Go was called after Shutdown")
		g.gate <- struct{}{}
	case <-time.After(5 * ms):
	}
}

// Workers and drivers end when the wheel is stopped, and also when no timer is due.
func TestNoGoroutineRemainsWithoutDueTimersOrAfterStop(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, executor := range []Executor{nil, Goroutines, Inline} {
		var wheels []*TimingWheel
		for range 5 {
			tw, err := New(Options{Executor: executor, Shards: 4})
			require.NoError(t, err)
			wheels = append(wheels, tw)
		}
		goroutinesReturnTo(t, before) // no goroutine without an armed timer
		for _, tw := range wheels {
			for range 1000 {
				tw.AfterFunc(rand.N(3*ms), func() { time.Sleep(rand.N(200 * time.Microsecond)) })
			}
			tw.AfterFunc(time.Hour, func() {})
		}
		wheels[0].Stop() // while callbacks run
		for _, tw := range wheels[1:] {
			await(t, "all timers but one have fired", func() bool { return tw.Len() == 1 })
		}
		goroutinesReturnTo(t, before) // no goroutine for a timer that is not due
		for _, tw := range wheels {
			tw.AfterFunc(0, func() {})
			tw.ScheduleFunc(Every(ms), func() {})
			tw.Stop()
		}
		goroutinesReturnTo(t, before)
	}
}

// When the wheel's Stop has returned, no timer is claimed, dropped or discarded any more, even if
// goroutines of the wheel are preempted.
func TestCountsAreFinalWhenStopReturns(t *testing.T) {
	// Not parallel, because busy takes all processors.
	busy(t, 16)
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := executor(t)
			for range max(scaled(8), 3) {
				tw, err := New(withLimit(Options{Executor: e, Shards: 2, Tick: minTick}))
				require.NoError(t, err)
				var ran, stopped atomic.Uint64
				var all sync.WaitGroup
				for range 4 {
					all.Go(func() {
						for range 200 {
							timer := tw.AfterFunc(rand.N(200*time.Microsecond), func() { ran.Add(1) })
							tw.AfterFunc(0, func() { ran.Add(1) })
							if rand.N(2) == 0 && timer.Stop() {
								stopped.Add(1)
							}
						}
					})
				}
				tw.ScheduleFunc(Every(10*time.Microsecond), func() { ran.Add(1) })
				spin(rand.N(400 * time.Microsecond))
				tw.Stop()
				before := tw.Stats()
				all.Wait()
				require.NoError(t, tw.Shutdown(t.Context()))
				after := tw.Stats()
				require.Equal(t, before.Fired, after.Fired, "claimed or dropped after Stop")
				// A run of the plan that was claimed shortly before Stop is counted and does not
				// begin.
				require.Contains(t, []uint64{0, 1}, after.Fired-ran.Load(), "each claimed timer has run")
				require.Equal(t, stopped.Load(), after.Stopped)
				require.Equal(t, after.Armed, after.Fired+after.Stopped+after.Discarded)
			}
		})
	}
}
