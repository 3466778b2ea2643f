package timingwheel

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type testKey int

// plainContext is a context of another package that offers nothing but what it must.
type plainContext struct {
	context.Context
	mu   sync.Mutex
	done chan struct{}
	err  error
}

func newPlainContext() *plainContext {
	return &plainContext{Context: context.Background(), done: make(chan struct{})}
}

func (c *plainContext) Done() <-chan struct{} { return c.done }

func (c *plainContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *plainContext) end() { c.endWith(context.Canceled) }

func (c *plainContext) endWith(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.done)
	}
}

// parents are contexts that a test can end, with the cause that the children then have.
var parents = map[string]func(tw *TimingWheel) (parent context.Context, end func(), cause error){
	"of the wheel": func(tw *TimingWheel) (context.Context, func(), error) {
		parent, end := tw.WithTimeout(context.Background(), time.Hour)
		return parent, end, context.Canceled
	},
	"of package context": func(*TimingWheel) (context.Context, func(), error) {
		parent, end := context.WithCancelCause(context.Background())
		return parent, func() { end(errCause) }, errCause
	},
	"below one of the wheel": func(tw *TimingWheel) (context.Context, func(), error) {
		top, end := tw.WithTimeout(context.Background(), time.Hour)
		parent, cancel := context.WithCancel(top)
		return parent, func() { end(); cancel() }, context.Canceled
	},
	"with values": func(tw *TimingWheel) (context.Context, func(), error) {
		top, end := tw.WithTimeout(context.Background(), time.Hour)
		return context.WithValue(context.WithValue(top, testKey(1), 1), errCause, 2), end, context.Canceled
	},
	"of neither": func(*TimingWheel) (context.Context, func(), error) {
		c := newPlainContext()
		return c, func() { c.end(); synctest.Wait() }, context.Canceled // its children wait until they are told
	},
}

// children hang something onto a context, and return what tells that it has ended.
var children = map[string]func(tw *TimingWheel, parent context.Context) (child context.Context, cancel func()){
	"of the wheel": func(tw *TimingWheel, parent context.Context) (context.Context, func()) {
		return tw.WithTimeout(parent, time.Minute)
	},
	"of package context": func(_ *TimingWheel, parent context.Context) (context.Context, func()) {
		return context.WithCancel(parent)
	},
	"with a deadline of package context": func(_ *TimingWheel, parent context.Context) (context.Context, func()) {
		return context.WithTimeout(parent, time.Minute)
	},
	"a function": func(_ *TimingWheel, parent context.Context) (context.Context, func()) {
		child, cancel := context.WithCancelCause(context.Background())
		stop := context.AfterFunc(parent, func() { cancel(context.Cause(parent)) })
		return child, func() { stop(); cancel(nil) }
	},
}

func init() {
	for _, name := range []string{"of the wheel", "of package context"} {
		child := children[name]
		children["with values, "+name] = func(tw *TimingWheel, parent context.Context) (context.Context, func()) {
			return child(tw, context.WithValue(parent, errCause, 1))
		}
	}
}

func eachFamily(t *testing.T, test func(t *testing.T, tw *TimingWheel, parent, child context.Context, end, cancel func(), cause error)) {
	t.Helper()
	for parentName, newParent := range parents {
		for childName, newChild := range children {
			t.Run(parentName+"/"+childName, func(t *testing.T) {
				t.Parallel()
				contextBubble(t, func(t *testing.T, tw *TimingWheel) {
					top, end, cause := newParent(tw)
					defer end()
					parent, cancelParent := tw.WithTimeout(top, 30*time.Minute)
					defer cancelParent()
					child, cancel := newChild(tw, parent)
					defer cancel()
					assertGoesOn(t, child)
					test(t, tw, parent, child, end, cancel, cause)
				})
			})
		}
	}
}

func TestContextEndsWithItsParent(t *testing.T) {
	t.Parallel()
	eachFamily(t, func(t *testing.T, _ *TimingWheel, parent, child context.Context, end, _ func(), cause error) {
		end()
		assertEnded(t, parent, context.Canceled, cause) // at once, although nobody has told it yet
		synctest.Wait()
		assertEnded(t, child, context.Canceled, cause)
	})
}

func TestContextEndsAlone(t *testing.T) {
	t.Parallel()
	eachFamily(t, func(t *testing.T, _ *TimingWheel, parent, child context.Context, _, cancel func(), _ error) {
		cancel()
		assertEnded(t, child, context.Canceled, context.Canceled)
		assertGoesOn(t, parent)
	})
}

// Where a context of the wheel is cancelled its children have ended when that returns.
func TestCancelEndsTheChildrenAtOnce(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"of the wheel", "of package context", "with a deadline of package context"} {
		contextBubble(t, func(t *testing.T, tw *TimingWheel) {
			parent, cancel := tw.WithTimeout(t.Context(), time.Hour)
			child, cancelChild := children[name](tw, parent)
			defer cancelChild()
			grandchild, cancelGrandchild := tw.WithTimeout(child, time.Second)
			defer cancelGrandchild()
			cancel()
			assertEnded(t, child, context.Canceled, context.Canceled)
			assertEnded(t, grandchild, context.Canceled, context.Canceled)
		})
	}
}

// A deadline is passed on with its error and its cause.
func TestDeadlineEndsTheChildren(t *testing.T) {
	t.Parallel()
	for name, newChild := range children {
		contextBubble(t, func(t *testing.T, tw *TimingWheel) {
			parent, cancel := tw.WithTimeoutCause(t.Context(), time.Second, errCause)
			defer cancel()
			child, cancelChild := newChild(tw, parent)
			defer cancelChild()
			time.Sleep(time.Second + defaultTick)
			synctest.Wait()
			if name == "a function" {
				assertEnded(t, child, context.Canceled, errCause)
				return
			}
			assertEnded(t, child, context.DeadlineExceeded, errCause)
		})
	}
}

// Children of a context that has ended have ended.
func TestChildrenOfAnEndedContext(t *testing.T) {
	t.Parallel()
	for name, newChild := range children {
		contextBubble(t, func(t *testing.T, tw *TimingWheel) {
			parent, cancel := tw.WithTimeout(t.Context(), time.Second)
			cancel()
			child, cancelChild := newChild(tw, parent)
			defer cancelChild()
			synctest.Wait()
			assert.True(t, ended(child), name)
		})
	}
}

// A context that goes on whatever becomes of its parent keeps its values only.
func TestContextWithoutCancel(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		parent, cancel := tw.WithTimeoutCause(context.WithValue(t.Context(), errCause, 1), time.Hour, errCause)
		child := context.WithoutCancel(parent)
		ours, cancelOurs := tw.WithTimeout(child, time.Hour)
		defer cancelOurs()
		cancel()
		assert.NoError(t, child.Err())
		assert.NoError(t, context.Cause(child))
		assertGoesOn(t, ours)
		assert.Equal(t, 1, ours.Value(errCause))
	})
}

// Nobody who has left is remembered, and no goroutine waits.
func TestContextsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	for name, newParent := range parents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			contextBubble(t, func(t *testing.T, tw *TimingWheel) {
				parent, end, _ := newParent(tw)
				defer end()
				before := goroutinesInBubble(t, "") // those of other tests come and go
				var cancels []func()
				for range 1000 {
					_, cancel := tw.WithTimeout(parent, time.Minute)
					cancels = append(cancels, cancel)
				}
				if name != "of neither" { // package context has a goroutine for such a parent
					assert.Less(t, goroutinesInBubble(t, ""), before+500)
				}
				rand.Shuffle(len(cancels), func(i, j int) { cancels[i], cancels[j] = cancels[j], cancels[i] })
				for _, cancel := range cancels {
					cancel()
				}
				if p := above(parent).ours; p != nil {
					assert.Nil(t, p.familyOfChildren().members)
				}
				for i := range tw.families.stripes {
					assert.Empty(t, tw.families.stripes[i].by)
				}
				ours, cancelOurs := tw.WithTimeout(parent, time.Minute)
				for range 10 {
					_, cancel := context.WithCancel(ours)
					cancel()
				}
				cancelOurs()
			})
		})
	}
}

// A chain of contexts of all kinds ends from where it is cancelled, or where its time is over,
// downwards.
func TestChainsOfContexts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		contextBubble(t, func(t *testing.T, tw *TimingWheel) {
			const length = 30
			chain := make([]context.Context, 0, length)
			cancels := make([]func(), 0, length)
			ctx := context.Background()
			timeout := random.IntN(2) == 0
			at := random.IntN(length)
			for i := range length {
				cancel := func() {}
				switch n := random.IntN(4); {
				case i == at:
					ctx, cancel = tw.WithTimeoutCause(ctx, time.Second, errCause)
				case n == 0:
					ctx, cancel = context.WithCancel(ctx)
				case n == 1:
					ctx = context.WithValue(ctx, testKey(i), i)
				default:
					ctx, cancel = tw.WithTimeout(ctx, time.Hour)
				}
				chain, cancels = append(chain, ctx), append(cancels, cancel)
			}
			err, cause := context.Canceled, context.Canceled
			if timeout {
				err, cause = context.DeadlineExceeded, errCause
				time.Sleep(time.Second + 2*defaultTick)
			} else {
				cancels[at]()
			}
			synctest.Wait()
			for i, ctx := range chain {
				if i >= at {
					assertEnded(t, ctx, err, cause)
				} else {
					assert.NoError(t, ctx.Err(), "%d of %d", i, at)
				}
			}
			for _, cancel := range cancels {
				cancel()
			}
		})
	}
}

// Contexts of a family are made, ended and asked by many at once. Each ends once, in one way, and
// nothing is left.
func TestContextsEndAtTheSameTime(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Tick: 50 * time.Microsecond})
	for round := range 200 {
		top, end := context.WithCancelCause(context.Background())
		shared, cancelShared := tw.WithTimeout(top, time.Duration(round%40)*10*time.Microsecond)
		var all sync.WaitGroup
		for k := range 8 {
			all.Go(func() {
				parent := []context.Context{top, shared}[k%2]
				ctx, cancel := tw.WithTimeoutCause(parent, time.Duration((round+k)%20)*20*time.Microsecond, errCause)
				child, cancelChild := context.WithCancel(ctx)
				defer cancelChild()
				if k%3 == 0 {
					runtime.Gosched()
					cancel()
				}
				<-child.Done()
				<-ctx.Done()
				err := ctx.Err()
				assert.Error(t, err, "after Done")
				assert.Equal(t, err, child.Err())
				cancel()
				assert.Equal(t, err, ctx.Err())
			})
		}
		all.Go(func() {
			if round%2 == 0 {
				end(errCause)
			}
		})
		all.Go(func() {
			if round%4 == 1 {
				cancelShared()
			}
		})
		all.Wait()
		cancelShared()
		end(nil)
	}
	await(t, "timers are gone", func() bool { return tw.Len() == 0 })
	for i := range tw.families.stripes {
		s := &tw.families.stripes[i]
		await(t, "families are gone", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.by) == 0
		})
	}
}

// Many goroutines ask one context while it ends: whoever has seen one sign of the end sees all.
func TestSignsOfTheEndAgree(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	for i := range 500 {
		parent, end := context.WithCancelCause(context.Background())
		ctx, cancel := tw.WithTimeout(parent, time.Hour)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for ctx.Err() == nil {
					runtime.Gosched()
				}
				assert.True(t, ended(ctx))
				assert.Error(t, context.Cause(ctx))
			})
			all.Go(func() {
				<-ctx.Done()
				assert.Error(t, ctx.Err())
			})
		}
		if i%2 == 0 {
			cancel()
		} else {
			end(errCause)
		}
		all.Wait()
		cancel()
		end(nil)
	}
}

// A timer of one allocation, its closures, and nothing for a channel that nobody has asked for.
func TestAllocationsOfContexts(t *testing.T) {
	if underRace {
		t.Skip("the race detector allocates")
	}
	tw := startWheel(t, Options{})
	parent, end := context.WithCancel(context.Background())
	defer end()
	for range 2 { // the first watches its parent alone, the second has a family
		_, cancel := tw.WithTimeout(parent, time.Hour)
		defer cancel()
	}
	for name, parent := range map[string]context.Context{"background": context.Background(), "a shared parent": parent} {
		ours := testing.AllocsPerRun(1000, func() { _, cancel := tw.WithTimeout(parent, time.Hour); cancel() })
		theirs := testing.AllocsPerRun(1000, func() { _, cancel := context.WithTimeout(parent, time.Hour); cancel() })
		require.LessOrEqual(t, ours, 3.0, name)
		require.Less(t, ours, theirs, fmt.Sprint(name))
	}
}
