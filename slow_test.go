package timingwheel

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowLog collects the calls of OnSlow.
type slowLog struct {
	mu    sync.Mutex
	calls []SlowCallback
}

func (l *slowLog) add(c SlowCallback) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, c)
}

// take returns the calls since the last take.
func (l *slowLog) take() []SlowCallback {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := l.calls
	l.calls = nil
	return calls
}

func napOneSecond() { time.Sleep(time.Second) }

// eachExecutorInBubble runs a test on fake time with each executor.
func eachExecutorInBubble(t *testing.T, body func(t *testing.T, executor Executor)) {
	for name, executor := range map[string]Executor{"default": nil, "Inline": Inline, "Goroutines": Goroutines} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { body(t, executor) })
		})
	}
}

// OnSlow is called once when a running callback becomes slow, and once when the callback returns.
func TestSlowCallbackIsReportedWhileItRunsAndAfterwards(t *testing.T) {
	t.Parallel()
	eachExecutorInBubble(t, func(t *testing.T, executor Executor) {
		var log slowLog
		tw := startWheel(t, Options{Executor: executor, OnSlow: log.add, SlowAfter: 300 * time.Millisecond, Name: "w"})
		tw.AfterFunc(0, napOneSecond)
		time.Sleep(299 * time.Millisecond)
		synctest.Wait()
		require.Empty(t, log.take())
		require.Zero(t, tw.Stats().SlowRunning)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		calls := log.take()
		require.Len(t, calls, 1)
		c := calls[0]
		assert.True(t, c.Running)
		assert.Equal(t, 300*time.Millisecond, c.Took)
		assert.Equal(t, "w", c.Wheel)
		assert.Equal(t, 1, c.Payloads)
		assert.Equal(t, "github.com/timingwheel-go/timingwheel.napOneSecond", c.Func)
		assert.True(t, strings.HasSuffix(c.File, "slow_test.go"), c.File)
		assert.Positive(t, c.Line)
		st := tw.Stats()
		assert.EqualValues(t, 1, st.Slow, "counted before the callback returns")
		assert.Equal(t, 1, st.SlowRunning)

		time.Sleep(time.Second)
		synctest.Wait()
		calls = log.take()
		require.Len(t, calls, 1)
		assert.False(t, calls[0].Running)
		assert.Equal(t, time.Second, calls[0].Took)
		assert.Equal(t, c.Func, calls[0].Func)
		st = tw.Stats()
		assert.EqualValues(t, 1, st.Slow, "counted once")
		assert.Zero(t, st.SlowRunning)
		time.Sleep(time.Hour)
		require.Empty(t, log.take())
	})
}

// No quick callback is reported, even if many quick callbacks together take long.
func TestQuickCallbacksAreNotReported(t *testing.T) {
	t.Parallel()
	eachExecutorInBubble(t, func(t *testing.T, executor Executor) {
		var log slowLog
		tw := startWheel(t, Options{Executor: executor, OnSlow: log.add, SlowAfter: 50 * time.Millisecond, Shards: 1})
		for i := range 200 {
			tw.AfterFunc(time.Duration(i%10)*time.Millisecond, func() { time.Sleep(20 * time.Millisecond) })
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.EqualValues(t, 200, tw.Stats().Fired)
		require.Empty(t, log.take())
		require.Zero(t, tw.Stats().Slow)
	})
}

// Some callbacks begin while others are already reported as slow.
func TestEachOfManySlowCallbacksIsReported(t *testing.T) {
	t.Parallel()
	eachExecutorInBubble(t, func(t *testing.T, executor Executor) {
		var log slowLog
		tw := startWheel(t, Options{Executor: executor, OnSlow: log.add, SlowAfter: 100 * time.Millisecond, Shards: 1})
		const n = 60
		for i := range n {
			long := i%3 == 0
			tw.AfterFunc(time.Duration(i)*37*time.Millisecond, func() {
				if long {
					time.Sleep(time.Second)
				}
			})
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		running, done := 0, 0
		for _, c := range log.take() {
			if c.Running {
				running++
				require.Equal(t, 100*time.Millisecond, c.Took)
				continue
			}
			done++
			require.Equal(t, time.Second, c.Took)
		}
		require.Equal(t, n/3, running)
		require.Equal(t, n/3, done)
		require.EqualValues(t, n/3, tw.Stats().Slow)
	})
}

// A panic and runtime.Goexit end a slow callback as a return does.
func TestSlowCallbackThatEndsByPanicOrGoexitIsReported(t *testing.T) {
	t.Parallel()
	eachExecutorInBubble(t, func(t *testing.T, executor Executor) {
		var log slowLog
		tw := startWheel(t, Options{Executor: executor, OnSlow: log.add, OnPanic: func(any, []byte) {}, Shards: 1})
		tw.AfterFunc(0, func() { time.Sleep(time.Second); panic("late") })
		tw.AfterFunc(time.Minute, func() { time.Sleep(time.Second); runtime.Goexit() })
		tw.AfterFunc(2*time.Minute, func() { panic("quick") })
		time.Sleep(time.Hour)
		synctest.Wait()
		calls := log.take()
		require.Len(t, calls, 4)
		for i, c := range calls {
			require.Equal(t, i%2 == 0, c.Running)
			if !c.Running {
				require.Equal(t, time.Second, c.Took)
			}
		}
		require.EqualValues(t, 2, tw.Stats().Slow)
		require.EqualValues(t, 2, tw.Stats().Panics)
		require.Zero(t, tw.Stats().SlowRunning)
	})
}

func TestSlowCallbackIsReportedAfterTheWheelsStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log slowLog
		tw := startWheel(t, Options{OnSlow: log.add})
		tw.AfterFunc(0, napOneSecond)
		synctest.Wait()
		tw.Stop()
		require.NoError(t, tw.Shutdown(t.Context()))
		require.Len(t, log.take(), 2)
		require.EqualValues(t, 1, tw.Stats().Slow)
	})
}

// OnSlow may call methods of the wheel, and may block. Meanwhile other slow callbacks are reported.
func TestOnSlowMayBlockAndCallTheWheel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log slowLog
		release := make(chan struct{})
		var tw *TimingWheel
		tw = startWheel(t, Options{Shards: 1, OnSlow: func(c SlowCallback) {
			log.add(c)
			tw.AfterFunc(time.Hour, func() {}).Stop()
			tw.Stats()
			if c.Running {
				<-release
			}
		}})
		tw.AfterFunc(0, napOneSecond)
		tw.AfterFunc(time.Minute, napOneSecond)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, log.take(), 4)
		close(release)
	})
}

func TestSlowCallbacksAreCountedWithoutOnSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tw := startWheel(t, Options{SlowAfter: time.Second})
		tw.AfterFunc(0, func() { time.Sleep(time.Minute) })
		time.Sleep(2 * time.Second)
		st := tw.Stats()
		require.Equal(t, 1, st.SlowRunning)
		require.EqualValues(t, 1, st.Slow)
		require.EqualValues(t, 1, tw.Stats().Slow, "counted once")
		time.Sleep(time.Hour)
		st = tw.Stats()
		require.EqualValues(t, 1, st.Slow)
		require.Zero(t, st.SlowRunning)
	})
}

// In Manual mode callbacks are measured by the real clock, and reported only when they have ended.
func TestSlowCallbackInManualModeIsReportedByTheRealClock(t *testing.T) {
	t.Parallel()
	for _, start := range []time.Time{{}, time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)} {
		synctest.Test(t, func(t *testing.T) {
			var log slowLog
			tw := startWheel(t, Options{Manual: true, Start: start, OnSlow: log.add})
			during := -1
			tw.AfterFunc(time.Hour, func() {
				time.Sleep(time.Second)
				during = tw.Stats().SlowRunning
			})
			tw.AfterFunc(time.Hour, func() {})
			require.Equal(t, 2, tw.Advance(tw.Now().Add(2*time.Hour)), "two hours of the wheel's clock do not count")
			calls := log.take()
			require.Len(t, calls, 1)
			require.False(t, calls[0].Running)
			require.Equal(t, time.Second, calls[0].Took)
			require.Equal(t, 1, during)
		})
	}
}

// Timeouts measure a whole batch. The reported function is the one that receives the batches.
func TestSlowBatchIsReportedAsOneCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log slowLog
		w, err := NewTimeouts(Options{Shards: 1, OnSlow: log.add}, napForEach)
		require.NoError(t, err)
		defer w.Stop()
		at := time.Now().Add(time.Second)
		for range 10 {
			w.AddAt(at, 20)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		calls := log.take()
		require.Len(t, calls, 2)
		require.Equal(t, 200*time.Millisecond, calls[1].Took)
		require.Equal(t, 10, calls[1].Payloads)
		require.Equal(t, "github.com/timingwheel-go/timingwheel.napForEach", calls[1].Func)
	})
}

// napForEach sleeps for each of the durations, which are in milliseconds.
func napForEach(naps []int) {
	for _, n := range naps {
		time.Sleep(time.Duration(n) * time.Millisecond)
	}
}

// Values of a Timeouts may be functions. The reported function is nevertheless the one that
// receives the batches.
func TestSlowBatchOfFunctionsIsReportedByItsReceiver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log slowLog
		w, err := NewTimeouts(Options{OnSlow: log.add}, callEach)
		require.NoError(t, err)
		defer w.Stop()
		w.Add(0, napOneSecond)
		time.Sleep(time.Hour)
		synctest.Wait()
		for _, c := range log.take() {
			require.Equal(t, "github.com/timingwheel-go/timingwheel.callEach", c.Func)
		}
		require.EqualValues(t, 1, w.Stats().Slow)
	})
}

func callEach(funcs []func()) {
	for _, f := range funcs {
		f()
	}
}

// Many workers run quick callbacks on the real clock.
func TestQuickCallbacksUnderLoadAreNotReported(t *testing.T) {
	t.Parallel()
	var log slowLog
	tw := startWheel(t, Options{OnSlow: log.add, SlowAfter: 30 * time.Second})
	var done sync.WaitGroup
	const n = 20_000
	done.Add(n)
	for i := range n {
		tw.AfterFunc(time.Duration(i%50)*time.Millisecond, func() {
			if i%1000 == 0 {
				time.Sleep(time.Millisecond)
			}
			done.Done()
		})
	}
	done.Wait()
	require.NoError(t, tw.Shutdown(t.Context()))
	require.EqualValues(t, n, tw.Stats().Fired)
	require.Empty(t, log.take(), "no callback took half a minute")
}

// Stats.Slow includes each slow callback in Stats.SlowRunning, even before the watchdog finds it.
func TestSlowRunningIsIncludedInSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log slowLog
		tw := startWheel(t, Options{Shards: 1, OnSlow: log.add, SlowAfter: 80 * time.Millisecond})
		tw.AfterFunc(0, napOneSecond)
		time.Sleep(time.Millisecond)
		tw.AfterFunc(0, napOneSecond)
		time.Sleep(84 * time.Millisecond)
		synctest.Wait()
		require.Len(t, log.take(), 1, "the watchdog looks again at 90 ms")
		st := tw.Stats()
		require.Equal(t, 2, st.SlowRunning)
		require.EqualValues(t, 2, st.Slow)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		require.Len(t, log.take(), 1, "the second one")
		time.Sleep(time.Hour)
		require.EqualValues(t, 2, tw.Stats().Slow)
	})
}

// OnSlow is called while a callback runs, and blocks after the callback has returned. Shutdown
// waits for this call of OnSlow.
func TestShutdownWaitsForOnSlow(t *testing.T) {
	t.Parallel()
	eachExecutorInBubble(t, func(t *testing.T, executor Executor) {
		release := make(chan struct{})
		inside := 0
		tw := startWheel(t, Options{Executor: executor, OnSlow: func(c SlowCallback) {
			if c.Running {
				inside++
				<-release
				inside--
			}
		}})
		tw.AfterFunc(0, napOneSecond)
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, tw.Shutdown(ctx), context.DeadlineExceeded)
		time.AfterFunc(time.Hour, func() { close(release) })
		began := time.Now()
		require.NoError(t, tw.Shutdown(t.Context()))
		require.Equal(t, time.Hour, time.Since(began))
		require.Zero(t, inside)
		require.NoError(t, tw.Shutdown(t.Context()), "called again")
	})
}

func TestSlowCallbackLogsItsFields(t *testing.T) {
	t.Parallel()
	c := SlowCallback{Wheel: "w", Func: "main.f", File: "main.go", Line: 7, Took: time.Second, Running: true, Payloads: 1}
	require.Equal(t, map[string]any{
		"wheel": "w", "func": "main.f", "took": 1e9, "running": true, "payloads": 1.0,
		"source": map[string]any{"function": "main.f", "file": "main.go", "line": 7.0},
	}, logged(t, c))
	c.Wheel = ""
	require.NotContains(t, logged(t, c), "wheel")
}
