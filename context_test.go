package timingwheel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Tests of a single context: its deadline, methods, channel, functions and wheel.

var errCause = errors.New("the cause")

// contextBubble runs a test with a wheel on fake time. When the test ends, no timer may be pending.
func contextBubble(t *testing.T, body func(t *testing.T, tw *TimingWheel)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tw := startWheel(t, Options{})
		body(t, tw)
		synctest.Wait()
		assert.Zero(t, tw.Len(), "timers are still pending")
	})
}

func ended(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// assertEnded asserts that a context has ended with err and cause, and that all its methods agree.
func assertEnded(t *testing.T, ctx context.Context, err, cause error) {
	t.Helper()
	assert.Equal(t, err, ctx.Err())
	assert.ErrorIs(t, ctx.Err(), err)
	assert.Equal(t, cause, context.Cause(ctx))
	assert.True(t, ended(ctx), "Done is not closed")
}

func assertAllEnded(t *testing.T, all []context.Context, err, cause error) {
	t.Helper()
	for _, ctx := range all {
		assertEnded(t, ctx, err, cause)
	}
}

func assertGoesOn(t *testing.T, all ...context.Context) {
	t.Helper()
	for _, ctx := range all {
		assert.NoError(t, ctx.Err())
		assert.NoError(t, context.Cause(ctx))
		assert.False(t, ended(ctx))
	}
}

// withCause is WithTimeoutCause of a wheel or of package context.
type withCause = func(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc)

// asInPackageContext runs a test with contexts of a wheel and with contexts of package context, so
// the test's expectations hold for both.
func asInPackageContext(t *testing.T, test func(t *testing.T, with withCause)) {
	t.Helper()
	t.Run("the wheel's", func(t *testing.T) {
		t.Parallel()
		contextBubble(t, func(t *testing.T, tw *TimingWheel) { test(t, tw.WithTimeoutCause) })
	})
	t.Run("package context's", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { test(t, context.WithTimeoutCause) })
	})
}

// passDeadline lets d and a tick pass, and waits until the bubble is idle.
func passDeadline(d time.Duration) {
	time.Sleep(d + defaultTick)
	synctest.Wait()
}

// together makes n calls to f at the same time, as closely as possible.
func together(n int, f func(k int)) {
	var ready atomic.Int32
	var all sync.WaitGroup
	for k := range n {
		all.Go(func() {
			ready.Add(1)
			for spins := 0; ready.Load() < int32(n); spins++ {
				if spins > 1000 {
					runtime.Gosched()
				}
			}
			f(k)
		})
	}
	all.Wait()
}

func TestContextEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]struct {
		make  func(tw *TimingWheel, d time.Duration) (context.Context, context.CancelFunc)
		cause error
	}{
		"WithTimeout": {func(tw *TimingWheel, d time.Duration) (context.Context, context.CancelFunc) {
			return tw.WithTimeout(context.Background(), d)
		}, context.DeadlineExceeded},
		"WithTimeoutCause": {func(tw *TimingWheel, d time.Duration) (context.Context, context.CancelFunc) {
			return tw.WithTimeoutCause(context.Background(), d, errCause)
		}, errCause},
		"WithTimeoutCause of nil": {func(tw *TimingWheel, d time.Duration) (context.Context, context.CancelFunc) {
			return tw.WithTimeoutCause(context.Background(), d, nil)
		}, context.DeadlineExceeded},
		"WithDeadline": {func(tw *TimingWheel, d time.Duration) (context.Context, context.CancelFunc) {
			return tw.WithDeadline(context.TODO(), time.Now().Add(d))
		}, context.DeadlineExceeded},
		"WithDeadline of a date": {func(tw *TimingWheel, d time.Duration) (context.Context, context.CancelFunc) {
			return tw.WithDeadline(context.TODO(), time.Now().Add(d).Round(0))
		}, context.DeadlineExceeded},
		"WithDeadlineCause": {func(tw *TimingWheel, d time.Duration) (context.Context, context.CancelFunc) {
			return tw.WithDeadlineCause(context.Background(), time.Now().Add(d), errCause)
		}, errCause},
	} {
		for _, d := range []time.Duration{1, time.Millisecond, 1500 * time.Microsecond, time.Minute, oneYear} {
			contextBubble(t, func(t *testing.T, tw *TimingWheel) {
				start := time.Now()
				ctx, cancel := with.make(tw, d)
				defer cancel()
				assertGoesOn(t, ctx)
				deadline, ok := ctx.Deadline()
				assert.True(t, ok)
				assert.True(t, deadline.Equal(start.Add(d)), name)
				time.Sleep(d - 1)
				assertGoesOn(t, ctx)
				<-ctx.Done()
				assert.GreaterOrEqual(t, time.Since(start), d, name)
				assert.LessOrEqual(t, time.Since(start), d+defaultTick, name)
				assertEnded(t, ctx, context.DeadlineExceeded, with.cause)
				cancel()
				assertEnded(t, ctx, context.DeadlineExceeded, with.cause)
			})
		}
	}
}

func TestCancelEndsTheContextAndReleasesItsTimer(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		ctx, cancel := tw.WithTimeoutCause(t.Context(), time.Hour, errCause)
		done := ctx.Done()
		assert.Equal(t, done, ctx.Done(), "Done must always return the same channel")
		assert.Equal(t, 1, tw.Len())
		cancel()
		assert.Zero(t, tw.Len(), "cancel must release the timer immediately")
		assertEnded(t, ctx, context.Canceled, context.Canceled)
		cancel()
		time.Sleep(2 * time.Hour)
		assertEnded(t, ctx, context.Canceled, context.Canceled)
		deadline, ok := ctx.Deadline()
		assert.True(t, ok, "Deadline after the end")
		assert.False(t, deadline.IsZero())
	})
}

func TestContextWithAPastDeadlineHasEnded(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		for _, d := range []time.Duration{0, -1, math.MinInt64} {
			ctx, cancel := tw.WithTimeoutCause(t.Context(), d, errCause)
			assertEnded(t, ctx, context.DeadlineExceeded, errCause)
			cancel()
			assertEnded(t, ctx, context.DeadlineExceeded, errCause)
		}
		ctx, cancel := tw.WithDeadline(t.Context(), time.Time{})
		defer cancel()
		assertEnded(t, ctx, context.DeadlineExceeded, context.DeadlineExceeded)
	})
}

func TestContextWithADistantDeadlineDoesNotEnd(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		timeout, cancelTimeout := tw.WithTimeout(t.Context(), math.MaxInt64)
		defer cancelTimeout()
		deadline, cancelDeadline := tw.WithDeadline(t.Context(), time.Unix(1<<40, 0))
		defer cancelDeadline()
		time.Sleep(oneYear)
		assertGoesOn(t, timeout, deadline)
	})
}

func TestNilContextsPanic(t *testing.T) {
	t.Parallel()
	tw, w := startWheel(t, Options{}), startTimeouts(t, Options{}, func([]int) {})
	var q DelayQueue[int]
	var none context.Context
	for message, calls := range map[string][]func(){
		"context with a nil parent": {
			func() { _, _ = tw.WithTimeout(none, time.Hour) }, func() { _, _ = tw.WithDeadline(none, time.Now()) },
		},
		"Shutdown with a nil context":           {func() { _ = tw.Shutdown(none) }, func() { _ = w.Shutdown(none) }},
		"Sleep with a nil context":              {func() { _ = tw.Sleep(none, 0) }},
		"StopWait with a nil context":           {func() { _ = new(FuncTimer).StopWait(none) }},
		"DelayQueue.Channel with a nil context": {func() { q.Channel(none, 1) }}, // not the feeder
		"DelayQueue.Take with a nil context":    {func() { _, _ = q.Take(none) }},
		"DelayQueue.All with a nil context":     {func() { q.All(none) }},
	} {
		for _, call := range calls {
			assert.PanicsWithValue(t, "timingwheel: "+message, call)
		}
	}
	assert.True(t, tw.AfterFunc(time.Hour, func() {}).Stop(), "the wheel is not stopped")
	assert.True(t, w.Add(time.Hour, 1).Stop())
}

// If Err returns an error, the channel is closed, even if Done was called long before.
func TestErrIsNilUntilDoneIsClosed(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Tick: 50 * time.Microsecond})
	for name, newContext := range map[string]func() (ctx context.Context, end func()){
		"cancelled": func() (context.Context, func()) { return tw.WithTimeout(context.Background(), time.Hour) },
		"parent of the wheel": func() (context.Context, func()) {
			parent, end := tw.WithTimeout(context.Background(), time.Hour)
			ctx, _ := tw.WithTimeout(parent, time.Hour) // ends with its parent
			return ctx, end
		},
		"parent of package context": func() (context.Context, func()) {
			parent, end := context.WithCancel(context.Background())
			ctx, _ := tw.WithTimeout(parent, time.Hour) // ends with its parent
			return ctx, end
		},
		"deadline": func() (context.Context, func()) {
			return tw.WithTimeout(context.Background(), 100*time.Microsecond)
		},
	} {
		for range scaled(500) {
			ctx, end := newContext()
			done := ctx.Done()
			if name != "deadline" {
				go end()
			}
			for ctx.Err() == nil {
				runtime.Gosched()
			}
			select {
			case <-done:
			default:
				require.Fail(t, "Err returned an error before Done was closed", name)
			}
			end()
		}
	}
}

func TestContextStringNamesParentAndDeadline(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true})
	for name, parent := range map[string]context.Context{
		"context.Background":                         context.Background(),
		"context.TODO":                               context.TODO(),
		"context.Background.WithoutCancel":           context.WithoutCancel(context.Background()),
		"context.Background.WithValue(the key, 1st)": context.WithValue(context.Background(), namedKey{}, "1st"),
		"*timingwheel.plainContext":                  newPlainContext(),
	} {
		ctx, cancel := tw.WithTimeout(parent, time.Hour)
		deadline, _ := ctx.Deadline()
		want := name + ".WithDeadline(" + deadline.String() + ")"
		assert.Equal(t, want, fmt.Sprint(ctx))
		cancel()
		assert.Equal(t, want, fmt.Sprint(ctx), "String after the end")
	}
}

type namedKey struct{}

func (namedKey) String() string { return "the key" }

// Concurrent first calls to Done return the same channel.
func TestRaceFirstCallsOfDoneReturnOneChannel(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	for i := range scaled(2000) {
		ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
		var channels [2]<-chan struct{}
		var children [2]context.Context
		var cancels [2]func()
		together(len(channels), func(k int) {
			if i%2 == 0 {
				channels[k] = ctx.Done()
			} else {
				children[k], cancels[k] = context.WithCancel(ctx)
			}
		})
		cancel()
		for k := range channels {
			if i%2 == 0 {
				require.Equal(t, ctx.Done(), channels[k])
			} else {
				require.Equal(t, context.Canceled, children[k].Err())
				cancels[k]()
			}
		}
	}
}

// afterFuncs are the ways to register a function with a context of the wheel.
var afterFuncs = map[string]func(ctx context.Context, f func()) (stop func() bool){
	"context.AfterFunc": context.AfterFunc,
	"below a value": func(ctx context.Context, f func()) func() bool {
		return context.AfterFunc(context.WithValue(ctx, testKey(1), 1), f)
	},
	"wrapped": func(ctx context.Context, f func()) func() bool {
		return context.AfterFunc(struct{ context.Context }{ctx}, f)
	},
}

// Neither cancel nor stop waits for the function. It may take a lock that the callers of cancel and
// stop hold, or may be slow.
func TestAfterFuncRunsInItsOwnGoroutine(t *testing.T) {
	t.Parallel()
	for _, after := range afterFuncs {
		contextBubble(t, func(t *testing.T, tw *TimingWheel) {
			ctx, cancel := tw.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var mu sync.Mutex
			begun, end, ran := make(chan struct{}), make(chan struct{}), make(chan struct{}, 2)
			mu.Lock()
			after(ctx, func() {
				mu.Lock()
				defer mu.Unlock()
				ran <- struct{}{}
			})
			stop := after(ctx, func() {
				close(begun)
				<-end
				ran <- struct{}{}
			})
			cancel()
			<-begun
			assert.False(t, stop(), "the function is running")
			after(ctx, func() { // starts immediately and takes the lock
				mu.Lock()
				defer mu.Unlock()
				ran <- struct{}{}
			})
			assert.Equal(t, context.Canceled, ctx.Err())
			mu.Unlock()
			<-ran
			<-ran
			close(end)
			<-ran
		})
	}
}

// stop and cancel race. The function runs if and only if stop returns false.
func TestRaceAfterFuncRunsUnlessStopReturnsTrue(t *testing.T) {
	t.Parallel()
	for name, after := range afterFuncs {
		for range 50 {
			contextBubble(t, func(t *testing.T, tw *TimingWheel) {
				ctx, cancel := tw.WithTimeout(context.Background(), time.Minute)
				ran := false
				stop := after(ctx, func() { ran = true })
				go cancel()
				stopped := stop()
				synctest.Wait()
				assert.Equal(t, stopped, !ran, name)
			})
		}
	}
}

// Flush ends all contexts as if their deadlines had passed, with their causes, and the contexts
// below them.
func TestFlushEndsContexts(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		std, end := context.WithCancel(context.Background())
		defer end()
		var all []context.Context
		for _, parent := range []context.Context{context.Background(), std, std, std} {
			ctx, cancel := tw.WithTimeoutCause(parent, time.Hour, errCause)
			defer cancel()
			child, cancelChild := context.WithCancel(ctx)
			defer cancelChild()
			below, cancelBelow := tw.WithTimeoutCause(child, 2*time.Hour, errChild)
			defer cancelBelow()
			all = append(all, ctx, child, below)
		}
		tw.Flush()
		synctest.Wait()
		for _, ctx := range all {
			assertEnded(t, ctx, context.DeadlineExceeded, errCause)
		}
		assertGoesOn(t, std)
		later, cancel := tw.WithTimeout(std, time.Hour)
		assertGoesOn(t, later)
		cancel()
	})
}
