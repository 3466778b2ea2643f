package timingwheel

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// The ways to hang a function onto a context of the wheel.
var afterFuncs = map[string]func(ctx context.Context, f func()) (stop func() bool){
	"context.AfterFunc": context.AfterFunc,
	"its method":        func(ctx context.Context, f func()) func() bool { return ctx.(*deadlineContext).AfterFunc(f) },
	"below a value": func(ctx context.Context, f func()) func() bool {
		return context.AfterFunc(context.WithValue(ctx, testKey(1), 1), f)
	},
	"around it": func(ctx context.Context, f func()) func() bool {
		return context.AfterFunc(struct{ context.Context }{ctx}, f)
	},
}

func eachAfterFunc(t *testing.T, test func(t *testing.T, ctx context.Context, cancel func(), after func(f func()) (stop func() bool))) {
	t.Helper()
	for name, after := range afterFuncs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			contextBubble(t, func(t *testing.T, tw *TimingWheel) {
				ctx, cancel := tw.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				test(t, ctx, cancel, func(f func()) func() bool { return after(ctx, f) })
			})
		})
	}
}

func TestAfterFuncOfAContext(t *testing.T) {
	t.Parallel()
	eachAfterFunc(t, func(t *testing.T, _ context.Context, cancel func(), after func(f func()) func() bool) {
		var stopped, ran atomic.Int32
		stop := after(func() { stopped.Add(1) })
		stopLate := after(func() { ran.Add(1) })
		after(func() { ran.Add(10) })
		synctest.Wait()
		assert.Zero(t, ran.Load(), "before the end")
		assert.True(t, stop(), "it has not run, and will not")
		assert.False(t, stop(), "it was stopped before")
		cancel()
		synctest.Wait()
		assert.EqualValues(t, 11, ran.Load(), "each of the others, once")
		assert.Zero(t, stopped.Load())
		assert.False(t, stop())
		assert.False(t, stopLate(), "it has run")

		stop = after(func() { ran.Add(100) })
		synctest.Wait()
		assert.EqualValues(t, 111, ran.Load(), "at once after the end")
		assert.False(t, stop())
	})
}

func TestAfterFuncAtTheDeadline(t *testing.T) {
	t.Parallel()
	eachAfterFunc(t, func(t *testing.T, ctx context.Context, _ func(), after func(f func()) func() bool) {
		var err error
		stop := after(func() { err = ctx.Err() })
		passDeadline(time.Minute)
		assert.Equal(t, context.DeadlineExceeded, err, "it finds the context ended")
		assert.False(t, stop())
	})
}

// Neither cancel nor stop waits for the function: it may want a lock that they are called with, or
// take its time.
func TestAfterFuncRunsInItsOwnGoroutine(t *testing.T) {
	t.Parallel()
	eachAfterFunc(t, func(t *testing.T, ctx context.Context, cancel func(), after func(f func()) func() bool) {
		var mu sync.Mutex
		begun, end, ran := make(chan struct{}), make(chan struct{}), make(chan struct{}, 2)
		mu.Lock()
		after(func() {
			mu.Lock()
			defer mu.Unlock()
			ran <- struct{}{}
		})
		stop := after(func() {
			close(begun)
			<-end
			ran <- struct{}{}
		})
		cancel()
		<-begun
		assert.False(t, stop(), "it is running")
		after(func() { // at once, and under the lock as well
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

// One of many is stopped, others run, in whatever order they came.
func TestAfterFuncsAreIndependent(t *testing.T) {
	t.Parallel()
	eachAfterFunc(t, func(t *testing.T, _ context.Context, cancel func(), after func(f func()) func() bool) {
		var ran [20]atomic.Int32
		var stops []func() bool
		for i := range ran {
			stops = append(stops, after(func() { ran[i].Add(1) }))
		}
		for i := 18; i >= 0; i -= 3 {
			assert.True(t, stops[i]())
		}
		cancel()
		synctest.Wait()
		for i := range ran {
			want := int32(1)
			if i%3 == 0 {
				want = 0
			}
			assert.Equal(t, want, ran[i].Load(), i)
			assert.False(t, stops[i]())
		}
	})
}

// The method is told of the end of a parent as well, whoever asks first.
func TestAfterFuncAfterTheParentsEnd(t *testing.T) {
	t.Parallel()
	for name, after := range afterFuncs {
		for _, before := range []bool{true, false} {
			contextBubble(t, func(t *testing.T, tw *TimingWheel) {
				parent, end := context.WithCancel(context.Background())
				ctx, cancel := tw.WithTimeout(parent, time.Minute)
				defer cancel()
				ran := false
				if before {
					after(ctx, func() { ran = true })
					end()
				} else {
					end()
					after(ctx, func() { ran = true })
				}
				synctest.Wait()
				assert.True(t, ran, name)
			})
		}
	}
}

// One function against stop and cancel: it runs exactly where stop is false.
func TestAfterFuncStoppedWhileTheContextEnds(t *testing.T) {
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
