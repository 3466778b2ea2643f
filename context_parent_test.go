package timingwheel

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Tests with parents of third packages.

// watchable is a context of a third package with a method AfterFunc.
type watchable struct {
	plainContext
	mu       sync.Mutex
	watchers map[*int]func()
}

func (w *watchable) AfterFunc(f func()) (stop func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := new(int)
	w.watchers[key] = f
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		_, ok := w.watchers[key]
		delete(w.watchers, key)
		return ok
	}
}

func (w *watchable) end() {
	w.plainContext.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, f := range w.watchers {
		delete(w.watchers, key)
		go f()
	}
}

// overriding wraps a context and has its channel. The other methods are its own.
type overriding struct {
	context.Context
	err error
}

func (o overriding) Err() error                  { return o.err }
func (o overriding) Deadline() (time.Time, bool) { return time.Time{}, false }

func (o overriding) Value(key any) any {
	if key == testKey(1) {
		return "own"
	}
	return o.Context.Value(key)
}

// If the parent has ended before, the child has the error of the parent's own methods, even if the
// parent has the channel of another context.
func TestChildOfAnEndedParentHasItsError(t *testing.T) {
	t.Parallel()
	asInPackageContext(t, func(t *testing.T, with withCause) {
		cancelledBy := func(cause error) context.Context {
			ctx, cancel := context.WithCancelCause(context.Background())
			cancel(cause)
			return ctx
		}
		lateBy := func(cause error) context.Context {
			ctx, cancel := with(context.Background(), 0, cause)
			cancel()
			return ctx
		}
		left, leave := with(context.Background(), time.Hour, errCause)
		leave()
		errOwn := errors.New("own")
		for name, test := range map[string]struct {
			parent context.Context
			want   outcome
		}{
			"one cause":            {cancelledBy(errParent), outcome{context.Canceled, errParent}},
			"another cause":        {cancelledBy(errChild), outcome{context.Canceled, errChild}},
			"no cause":             {cancelledBy(nil), outcome{context.Canceled, context.Canceled}},
			"late":                 {lateBy(errParent), outcome{context.DeadlineExceeded, errParent}},
			"late without a cause": {lateBy(nil), outcome{context.DeadlineExceeded, context.DeadlineExceeded}},
			"cancelled":            {left, outcome{context.Canceled, context.Canceled}},
			"around one":           {overriding{cancelledBy(errParent), errOwn}, outcome{errOwn, errParent}},
			"around a late one":    {overriding{lateBy(errParent), errOwn}, outcome{errOwn, errParent}},
			"with the channel of another context": {
				&ownDone{Context: left, done: cancelledBy(errParent).Done(), err: errOwn}, outcome{errOwn, context.Canceled},
			},
		} {
			for _, d := range []time.Duration{time.Hour, 0} {
				ctx, cancel := with(test.parent, d, errors.New("not this"))
				assert.Equal(t, test.want.err, ctx.Err(), name)
				assert.Equal(t, test.want.cause, context.Cause(ctx), name)
				assert.True(t, ended(ctx), name)
				cancel()
				assert.Equal(t, test.want.err, ctx.Err(), name)
			}
		}
	})
}

// ownDone wraps a context and has its own channel.
type ownDone struct {
	context.Context
	done <-chan struct{}
	err  error
}

func (o *ownDone) Done() <-chan struct{} { return o.done }

func (o *ownDone) Err() error {
	select {
	case <-o.done:
		return o.err
	default:
		return nil
	}
}

// The channel of the wrapper determines the end, even around a context of the wheel. The cause is
// the wrapped context's cause if it has ended.
func TestWrapperWithItsOwnChannelDeterminesTheEnd(t *testing.T) {
	t.Parallel()
	errOwn := errors.New("own")
	asInPackageContext(t, func(t *testing.T, with withCause) {
		for _, first := range []string{"own", "below", "below only"} {
			below, cancelBelow := with(context.Background(), time.Minute, errParent)
			done := make(chan struct{})
			parent := &ownDone{below, done, errOwn}
			var all []context.Context
			for range 3 {
				ctx, cancel := with(parent, 30*time.Second, errChild)
				defer cancel()
				grandchild, cancelGrandchild := context.WithCancel(ctx)
				defer cancelGrandchild()
				all = append(all, ctx, grandchild)
			}
			want := outcome{errOwn, errOwn}
			switch first {
			case "own":
				close(done)
			case "below": // the wrapped context has ended first, so it has the cause
				cancelBelow()
				synctest.Wait()
				assertGoesOn(t, all...)
				close(done)
				want = outcome{errOwn, context.Canceled}
			case "below only":
				cancelBelow()
				passDeadline(30 * time.Second)
				want = outcome{context.DeadlineExceeded, errChild}
			}
			synctest.Wait()
			assertAllEnded(t, all, want.err, want.cause)
			cancelBelow()
		}
	})
}

// lockedContext is a context of a third package. All its methods take its lock.
type lockedContext struct {
	mu   sync.Mutex
	done chan struct{}
	err  error
}

func (c *lockedContext) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Time{}, false
}

func (c *lockedContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

func (c *lockedContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *lockedContext) Value(any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return nil
}

// end ends the context and calls f, under the lock.
func (c *lockedContext) end(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = context.Canceled
	close(c.done)
	f()
}

// Err, Done and Deadline take no lock of the parent. Their caller may hold the parent's lock,
// before the parent's end and immediately afterwards.
func TestMethodsDoNotTakeTheParentsLock(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	for _, children := range []int{1, 3} { // without and with siblings
		parent := &lockedContext{done: make(chan struct{})}
		var all []context.Context
		for range children {
			ctx, cancel := tw.WithTimeout(parent, time.Hour)
			defer cancel()
			below, cancelBelow := tw.WithTimeout(ctx, time.Hour)
			defer cancelBelow()
			std, cancelStd := context.WithCancel(below)
			defer cancelStd()
			all = append(all, ctx, below, std)
		}
		ask := func() {
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				for _, ctx := range all {
					_ = ctx.Err()
					_ = ctx.Done()
					_, ok := ctx.Deadline()
					assert.True(t, ok)
				}
			}()
			receive(t, asked, "the answers")
		}
		parent.mu.Lock()
		ask()
		parent.mu.Unlock()
		parent.end(ask)
		for _, ctx := range all {
			receive(t, ctx.Done(), "the end")
			require.Equal(t, context.Canceled, ctx.Err())
		}
	}
}

// freshDone returns a new channel from each call to Done. All are closed at its end.
type freshDone struct{ plainContext }

func (c *freshDone) Done() <-chan struct{} {
	fresh := make(chan struct{})
	if c.Err() != nil {
		close(fresh)
	} else {
		context.AfterFunc(&c.plainContext, func() { close(fresh) })
	}
	return fresh
}

// uncomparable is a context whose type is not comparable.
type uncomparable struct {
	context.Context
	_ []int
}

// hidden is a context whose type is comparable and whose value may not be.
type hidden struct {
	context.Context
	held any
}

// ownDoneStruct is ownDone as a struct that may not be comparable.
type ownDoneStruct struct {
	*ownDone
	held any
}

// The cause of an ended context stays although a context above its foreign parent ends later.
func TestCauseOfAForeignParentIsFixedAtTheEnd(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	for _, observed := range []bool{false, true} {
		up, cancelUp := context.WithCancelCause(t.Context())
		parent := newPlainContext()
		parent.Context = up
		own, cancel := tw.WithTimeout(parent, time.Hour)
		defer cancel()
		if observed {
			own.Done()
		}
		parent.endWith(context.DeadlineExceeded)
		<-own.Done()
		require.ErrorIs(t, context.Cause(own), context.DeadlineExceeded)
		cancelUp(io.EOF)
		require.ErrorIs(t, context.Cause(own), context.DeadlineExceeded, observed)
	}
}
