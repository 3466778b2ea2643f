package timingwheel

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lockedContext is a context of a third package all of whose methods take its lock.
type lockedContext struct {
	mu   sync.Mutex
	done chan struct{}
	err  error
}

func newLockedContext() *lockedContext { return &lockedContext{done: make(chan struct{})} }

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

// Err, Done and Deadline take no lock of the parent: whoever calls them may hold it, before the
// parent's end and right after.
func TestParentThatIsLockedByTheCaller(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	for _, children := range []int{1, 3} { // an only child, and a family
		parent := newLockedContext()
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

// A context of a third package may end its children itself, by what the wheel gave it.
func TestParentThatCancelsItsChild(t *testing.T) {
	t.Parallel()
	asInPackageContext(t, func(t *testing.T, with withCause) {
		for _, siblings := range []int{0, 2} {
			parent := newPlainContext()
			for range siblings {
				_, cancel := with(parent, time.Hour, nil)
				defer cancel()
			}
			ctx, cancel := with(parent, time.Hour, errChild)
			parent.end()
			cancel()
			assertEnded(t, ctx, context.Canceled, context.Canceled)
			synctest.Wait()
			assertEnded(t, ctx, context.Canceled, context.Canceled)
		}
	})
}

// freshDone has another channel for each who asks. All are closed at its end.
type freshDone struct{ plainContext }

func (c *freshDone) Done() <-chan struct{} {
	fresh := make(chan struct{})
	context.AfterFunc(&c.plainContext, func() { close(fresh) })
	return fresh
}

func TestParentWithManyChannels(t *testing.T) {
	t.Parallel()
	asInPackageContext(t, func(t *testing.T, with withCause) {
		parent := &freshDone{plainContext{Context: context.Background(), done: make(chan struct{})}}
		var all []context.Context
		for i := range 20 {
			ctx, cancel := with(parent, time.Hour, errChild)
			defer cancel()
			if i%3 == 0 {
				cancel()
				continue
			}
			below, cancelBelow := context.WithCancel(ctx)
			defer cancelBelow()
			all = append(all, ctx, below)
		}
		assertGoesOn(t, all...)
		parent.end()
		synctest.Wait()
		assertAllEnded(t, all, context.Canceled, context.Canceled)
	})
}

// uncomparable cannot be the key of a map.
type uncomparable struct {
	context.Context
	_ []int
}

// hidden is comparable by its type, and is not by what it holds.
type hidden struct {
	context.Context
	held any
}

// ownDoneStruct is ownDone as a struct: a context of a third package by its channel.
type ownDoneStruct struct {
	*ownDone
	held any
}

func TestParentsThatCannotBeCompared(t *testing.T) {
	t.Parallel()
	asInPackageContext(t, func(t *testing.T, with withCause) {
		for _, around := range map[string]func(context.Context) context.Context{
			"type":  func(ctx context.Context) context.Context { return uncomparable{Context: ctx} },
			"value": func(ctx context.Context) context.Context { return hidden{ctx, []int{1}} },
			"third package": func(ctx context.Context) context.Context {
				done := make(chan struct{})
				context.AfterFunc(ctx, func() { close(done) })
				return ownDoneStruct{&ownDone{ctx, done, context.Canceled}, []int{1}}
			},
			"third package, alike": func(ctx context.Context) context.Context {
				done := make(chan struct{})
				context.AfterFunc(ctx, func() { close(done) })
				return ownDoneStruct{&ownDone{ctx, done, context.Canceled}, 1}
			},
		} {
			for _, std := range []bool{true, false} {
				top, end := context.WithCancel(context.Background())
				if !std {
					top, end = with(top, time.Hour, nil)
				}
				parent := around(top)
				var all []context.Context
				for range 5 {
					ctx, cancel := with(parent, time.Hour, nil)
					defer cancel()
					_, leave := with(parent, time.Hour, nil)
					leave()
					all = append(all, ctx)
				}
				assertGoesOn(t, all...)
				end()
				synctest.Wait()
				assertAllEnded(t, all, context.Canceled, context.Canceled)
			}
		}
	})
}
