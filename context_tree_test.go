package timingwheel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Parents and children of both packages: chains, wide trees, who ends with whom, and what is left.

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
				if p := ownParent(parent, parent.Done()); p != nil {
					assert.Zero(t, dependents(p))
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

// A single question is enough after the end of a parent of package context, whichever it is, and
// however far below.
func TestFirstQuestionAfterTheParentsEnd(t *testing.T) {
	t.Parallel()
	questions := map[string]func(t *testing.T, ctx context.Context){
		"Done":  func(t *testing.T, ctx context.Context) { assert.True(t, ended(ctx)) },
		"Err":   func(t *testing.T, ctx context.Context) { assert.Equal(t, context.Canceled, ctx.Err()) },
		"Cause": func(t *testing.T, ctx context.Context) { assert.Equal(t, errCause, context.Cause(ctx)) },
		"Cause of what is around it": func(t *testing.T, ctx context.Context) {
			assert.Equal(t, errCause, context.Cause(overriding{ctx, context.Canceled}))
		},
		"a child": func(t *testing.T, ctx context.Context) {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			assertEnded(t, child, context.Canceled, errCause)
		},
		"a child with a value": func(t *testing.T, ctx context.Context) {
			child, cancel := context.WithCancel(context.WithValue(ctx, testKey(1), 1))
			defer cancel()
			assertEnded(t, child, context.Canceled, errCause)
		},
	}
	for name, ask := range questions {
		for depth := range 4 {
			for _, siblings := range []int{0, 1, 2} { // an only child, and members of a family
				t.Run(fmt.Sprintf("%s/%d/%d", name, depth, siblings), func(t *testing.T) {
					t.Parallel()
					contextBubble(t, func(t *testing.T, tw *TimingWheel) {
						parent, end := context.WithCancelCause(context.Background())
						for range siblings {
							_, cancel := tw.WithTimeout(parent, time.Hour)
							defer cancel()
						}
						ctx := parent
						for range depth + 1 {
							var cancel func()
							ctx, cancel = tw.WithTimeout(ctx, time.Hour)
							defer cancel()
						}
						end(errCause)
						ask(t, ctx)
						assertEnded(t, ctx, context.Canceled, errCause)
					})
				})
			}
		}
	}
}

// A child with the deadline of its parent has a timer of its own, so it ends with its own cause.
func TestEqualDeadlinesOfParentAndChild(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"of the wheel", "of package context"} {
		contextBubble(t, func(t *testing.T, tw *TimingWheel) {
			at := time.Now().Add(time.Second)
			newParent := tw.WithDeadlineCause
			if kind == "of package context" {
				newParent = context.WithDeadlineCause
			}
			parent, end := newParent(t.Context(), at, errParent)
			defer end()
			before := tw.Len()
			child, cancel := tw.WithDeadlineCause(parent, at, errChild)
			defer cancel()
			assert.Equal(t, before+1, tw.Len(), "a timer of its own")
			deadline, ok := child.Deadline()
			assert.True(t, ok)
			assert.True(t, deadline.Equal(at))
			passDeadline(time.Second)
			assert.Equal(t, context.DeadlineExceeded, child.Err())
			assert.Contains(t, []error{errParent, errChild}, context.Cause(child), "whichever timer was first")
		})
	}
	// Where the parent never gets to it, the cause is the child's.
	start := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	one, other := startWheel(t, Options{Manual: true, Start: start}), startWheel(t, Options{Manual: true, Start: start})
	parent, end := one.WithTimeoutCause(context.Background(), time.Second, errParent)
	defer end()
	child, cancel := other.WithTimeoutCause(parent, time.Second, errChild)
	defer cancel()
	other.Advance(start.Add(time.Second))
	assertEnded(t, child, context.DeadlineExceeded, errChild)
	assertGoesOn(t, parent)
}

// A child whose parent's deadline is earlier needs no timer, and ends with the parent's error and
// cause.
func TestEarlierDeadlineNeedsNoTimer(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		parent, end := tw.WithTimeoutCause(context.Background(), time.Second, errCause)
		defer end()
		child, cancel := tw.WithTimeoutCause(parent, time.Second+1, errors.New("of the child"))
		defer cancel()
		below, cancelBelow := tw.WithTimeout(context.WithValue(child, testKey(1), 1), time.Hour)
		defer cancelBelow()
		assert.Equal(t, 1, tw.Len())
		early, _ := parent.Deadline()
		for _, ctx := range []context.Context{child, below} {
			deadline, ok := ctx.Deadline()
			assert.True(t, ok)
			assert.Equal(t, early, deadline)
		}
		passDeadline(time.Second)
		assertEnded(t, child, context.DeadlineExceeded, errCause)
		assertEnded(t, below, context.DeadlineExceeded, errCause)
	})
}

// goroutinesInBubble counts those in the bubble of the caller whose stack shows something.
func goroutinesInBubble(t *testing.T, something string) int {
	t.Helper()
	synctest.Wait()
	stacks := make([]byte, 64<<10)
	n := runtime.Stack(stacks, true)
	for n == len(stacks) {
		stacks = make([]byte, 2*len(stacks))
		n = runtime.Stack(stacks, true)
	}
	stacks = stacks[:n]
	bubble := regexp.MustCompile(`synctest bubble \d+`)
	own := bubble.Find(stacks) // the caller's goroutine is the first
	require.NotNil(t, own)
	count := 0
	for _, stack := range bytes.Split(stacks, []byte("\n\n")) {
		if bytes.Equal(bubble.Find(stack), own) && bytes.Contains(stack, []byte(something)) {
			count++
		}
	}
	return count
}

func TestLongChains(t *testing.T) {
	t.Parallel()
	depth := scaled(100_000)
	for _, kind := range []string{"the wheel", "package context", "deadline"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			contextBubble(t, func(t *testing.T, tw *TimingWheel) {
				ctx, end := context.WithCancelCause(context.Background())
				chain := make([]context.Context, 0, depth)
				cancels := make([]func(), 0, depth)
				for i := range depth {
					d := time.Hour
					if kind == "deadline" {
						d = time.Minute + time.Duration(i)
					}
					var cancel func()
					ctx, cancel = tw.WithTimeout(ctx, d)
					chain, cancels = append(chain, ctx), append(cancels, cancel)
				}
				last := chain[depth-1]
				assert.NoError(t, last.Err())
				assert.False(t, ended(last))
				assert.Nil(t, last.Value(testKey(1)))
				want := outcome{context.Canceled, context.Canceled}
				switch kind {
				case "the wheel":
					cancels[0]()
				case "package context":
					end(errCause)
					want.cause = errCause
				case "deadline":
					passDeadline(time.Minute)
					want = outcome{context.DeadlineExceeded, context.DeadlineExceeded}
				}
				assertEnded(t, last, want.err, want.cause)
				synctest.Wait()
				for _, ctx := range chain {
					require.Equal(t, want.err, ctx.Err())
				}
				assert.Zero(t, tw.Len())
				for _, cancel := range cancels {
					cancel()
				}
				end(nil)
			})
		})
	}
}

// From one package to the other, and back: contexts of the wheel have ended when cancel returns,
// and what hangs on the last of them follows.
func TestChangesOfPackageBelowACancel(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		first, cancel := tw.WithTimeoutCause(context.Background(), 3*time.Hour, errCause)
		second, cancelSecond := context.WithCancel(first)
		defer cancelSecond()
		third, cancelThird := tw.WithTimeout(second, 2*time.Hour)
		defer cancelThird()
		fourth, cancelFourth := tw.WithTimeout(third, time.Hour)
		defer cancelFourth()
		last, cancelLast := context.WithCancel(fourth)
		defer cancelLast()
		require.Equal(t, 3, tw.Len(), "all contexts of the wheel have timers")
		cancel()
		assertEnded(t, second, context.Canceled, context.Canceled)
		assertEnded(t, fourth, context.Canceled, context.Canceled)
		assert.Equal(t, context.Canceled, last.Err(), "the context above it was asked")
		assertEnded(t, third, context.Canceled, context.Canceled)
	})
}

// Many children of many children end together, and leave one by one.
func TestWideTrees(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		top, end := tw.WithTimeout(context.Background(), time.Hour)
		defer end()
		level := []context.Context{top}
		var cancels []func()
		for range 4 {
			var next []context.Context
			for _, parent := range level {
				for range 8 {
					ctx, cancel := tw.WithTimeout(parent, time.Hour)
					next, cancels = append(next, ctx), append(cancels, cancel)
				}
			}
			level = next
		}
		require.Len(t, level, 4096)
		for i := 0; i < len(cancels); i += 5 {
			cancels[i]()
		}
		end()
		for _, ctx := range level {
			require.Equal(t, context.Canceled, ctx.Err())
		}
		runtime.KeepAlive(cancels)
	})
}

// The end of a context of package context reaches all below, where contexts of both packages take
// turns, with its cause.
func TestContextsFarBelowOnePackageContextEnd(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	for _, depth := range []int{1, 2, 5} {
		for range 500 {
			top, end := context.WithCancelCause(t.Context())
			ctx, cancels := context.Context(top), []context.CancelFunc(nil)
			left := 24 * time.Hour
			sooner := func(parent context.Context) (context.Context, context.CancelFunc) {
				left -= time.Hour // else it would be context.WithCancel
				return tw.WithTimeout(parent, left)
			}
			for range depth {
				for _, with := range []func() (context.Context, context.CancelFunc){
					func() (context.Context, context.CancelFunc) { return sooner(ctx) },
					func() (context.Context, context.CancelFunc) {
						return context.WithCancel(context.WithValue(ctx, &depth, depth))
					},
				} {
					var cancel context.CancelFunc
					ctx, cancel = with()
					cancels = append(cancels, cancel)
				}
			}
			last, cancel := sooner(ctx)
			below, cancelBelow := sooner(last) // its parent is of the wheel
			cancels = append(cancels, cancel, cancelBelow)
			end(errParent)
			for _, c := range []context.Context{below, last} {
				receive(t, c.Done(), "the end")
				require.Equal(t, context.Canceled, c.Err())
				require.True(t, isClosed(c.Done()))
				require.Equal(t, errParent, context.Cause(c))
			}
			for _, cancel := range cancels {
				cancel()
			}
		}
	}
	await(t, "timers are gone", func() bool { return tw.Len() == 0 })
}

// twin is one context twice: in a tree of package context, and in one in which those with a
// deadline of most are of a wheel.
type twin struct {
	kind   string
	ctx    [2]context.Context
	cancel [2]func(cause error)
	called [2]*atomic.Int32 // how often a function of context.AfterFunc has run
}

// forest makes random trees of twins.
type forest struct {
	random *rand.Rand
	base   time.Time
	with   [2]func(context.Context, time.Time, error) (context.Context, context.CancelFunc)
	used   map[time.Duration]bool // deadlines, which differ, as nothing says which of two timers comes first
	twins  []*twin
}

func (f *forest) pick() *twin { return f.twins[f.random.IntN(len(f.twins))] }

// deadline is one that nobody has yet, in whole ms; some have passed.
func (f *forest) deadline() time.Time {
	for {
		d := time.Since(f.base).Truncate(ms) + time.Duration(f.random.IntN(300)-10)*ms
		if !f.used[d] {
			f.used[d] = true
			return f.base.Add(d)
		}
	}
}

// grow adds a twin below another one.
func (f *forest) grow() {
	up := f.pick()
	n := &twin{}
	kind, mixed, at := f.random.IntN(13), f.random.IntN(4) == 0, f.deadline()
	cause := []error{nil, errCause, fmt.Errorf("deadline %d", len(f.twins))}[f.random.IntN(3)]
	for i := range 2 {
		n.cancel[i] = func(error) {}
		parent := up.ctx[i]
		switch kind {
		case 0:
			n.kind = "value"
			n.ctx[i] = context.WithValue(parent, testKey(len(f.twins)), len(f.twins))
		case 1:
			n.kind = "cancel"
			ctx, cancel := context.WithCancelCause(parent)
			n.ctx[i], n.cancel[i] = ctx, cancel
		case 2:
			n.kind = "without"
			n.ctx[i] = context.WithoutCancel(parent)
		case 3:
			n.kind = "around"
			n.ctx[i] = struct{ context.Context }{parent}
		case 4:
			n.kind = "around by a pointer"
			n.ctx[i] = &struct{ context.Context }{parent}
		case 5, 6:
			n.kind = "watchable"
			w := newWatchable()
			stop := context.AfterFunc(parent, w.end)
			n.ctx[i] = w
			n.cancel[i] = func(error) {
				if stop() {
					w.end()
				}
			}
		case 7:
			n.kind = "function"
			n.ctx[i] = parent
			called := new(atomic.Int32)
			n.called[i] = called
			stop := context.AfterFunc(parent, func() { called.Add(1) })
			n.cancel[i] = func(error) {
				if stop() {
					called.Add(-1000)
				}
			}
		default:
			n.kind = "deadline"
			with := f.with[i]
			if mixed {
				n.kind, with = "deadline of package context", f.with[0]
			}
			ctx, cancel := with(parent, at, cause)
			n.ctx[i], n.cancel[i] = ctx, func(error) { cancel() }
		}
	}
	f.twins = append(f.twins, n)
}

// ask asks both what a program may ask, in any order, without waiting for anybody. It is what comes
// afterwards that is compared.
func (f *forest) ask() {
	n, question := f.pick(), f.random.IntN(4)
	for _, ctx := range n.ctx {
		switch question {
		case 0:
			_ = ctx.Done()
		case 1:
			_ = ctx.Err()
		case 2:
			_ = context.Cause(ctx)
		case 3:
			_ = ctx.Value(testKey(1))
		}
	}
}

func (f *forest) step() (did string) {
	switch k := f.random.IntN(10); {
	case k < 5:
		f.grow()
		return "grow " + f.twins[len(f.twins)-1].kind
	case k < 7:
		f.ask()
		return "ask"
	case k < 8:
		n, cause := f.pick(), []error{nil, errCause, errParent}[f.random.IntN(3)]
		for _, cancel := range n.cancel {
			cancel(cause)
		}
		return "cancel " + n.kind
	default:
		now := time.Since(f.base)
		time.Sleep(now.Truncate(ms) + time.Duration(f.random.IntN(30))*ms + ms/2 - now)
		return "wait"
	}
}

func (f *forest) compare(t *testing.T, where string) {
	t.Helper()
	for i, n := range f.twins {
		their, our := n.ctx[0], n.ctx[1]
		where := fmt.Sprintf("%s, context %d: %s", where, i, n.kind)
		require.Equal(t, their.Err(), our.Err(), where)
		require.Equal(t, context.Cause(their), context.Cause(our), where)
		require.Equal(t, their.Done() == nil, our.Done() == nil, where)
		require.Equal(t, ended(their), ended(our), where)
		theirDeadline, some := their.Deadline()
		ourDeadline, also := our.Deadline()
		require.Equal(t, some, also, where)
		require.True(t, theirDeadline.Equal(ourDeadline), where)
		key := testKey(f.random.IntN(i + 1))
		require.Equal(t, their.Value(key), our.Value(key), where)
		if n.called[0] != nil {
			require.Equal(t, n.called[0].Load(), n.called[1].Load(), where)
		}
	}
}

// The same calls, of trees of contexts of all kinds, have the same results as in package context.
func TestContextsDoWhatPackageContextDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(scaled(150)) {
		contextBubble(t, func(t *testing.T, tw *TimingWheel) {
			f := &forest{
				random: rand.New(rand.NewPCG(seed, 7)),
				base:   time.Now(),
				used:   map[time.Duration]bool{},
				twins:  []*twin{{kind: "background", ctx: [2]context.Context{context.Background(), context.Background()}, cancel: [2]func(error){func(error) {}, func(error) {}}}},
			}
			f.with[0], f.with[1] = context.WithDeadlineCause, tw.WithDeadlineCause
			if seed%2 == 0 {
				f.with[1] = func(parent context.Context, at time.Time, cause error) (context.Context, context.CancelFunc) {
					return tw.WithTimeoutCause(parent, time.Until(at), cause)
				}
			}
			every := 1 + int(seed%3)*3 // asking in each step would have nobody ever be told first
			for step := range 80 {
				did := f.step()
				synctest.Wait()
				if step%every == 0 {
					f.compare(t, fmt.Sprintf("seed %d, step %d, %s", seed, step, did))
				}
			}
			for _, n := range f.twins {
				for _, cancel := range n.cancel {
					cancel(nil)
				}
				synctest.Wait()
			}
			f.compare(t, fmt.Sprintf("seed %d, at the end", seed))
		})
	}
}

// waitersInPackageContext counts the goroutines that package context has started, in the bubble of
// the caller.
func waitersInPackageContext(t *testing.T) int {
	t.Helper()
	return goroutinesInBubble(t, "propagateCancel")
}

// childrenInPackageContext returns the number of children of a context of package context.
func childrenInPackageContext(t *testing.T, ctx context.Context) int {
	t.Helper()
	children := reflect.ValueOf(ctx).Elem().FieldByName("children")
	if !children.IsValid() {
		t.Skip("this Go has the children elsewhere")
	}
	lock := func() { // the map's lock is taken for a child that comes and goes
		_, cancel := context.WithCancel(ctx)
		cancel()
	}
	lock()
	defer lock()
	return children.Len()
}

// dependents returns the number of functions and contexts that end with a context of the wheel.
func dependents(ctx context.Context) (n int) {
	c := ctx.(*deadlineContext)
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.phase.Load(); p != nil {
		for d := p.dependents; d != nil; d = d.next {
			n++
		}
	}
	return n
}

// A context stands among its parent's children from the first call of Done until its end.
func TestContextLeavesItsParent(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(cancel func()){
		"cancel":   func(cancel func()) { cancel() },
		"deadline": func(func()) { passDeadline(time.Minute) },
	} {
		contextBubble(t, func(t *testing.T, tw *TimingWheel) {
			theirs, endTheirs := context.WithCancel(context.Background())
			defer endTheirs()
			ours, endOurs := tw.WithTimeout(theirs, time.Hour)
			defer endOurs()
			for range 3 {
				below, cancelBelow := tw.WithTimeout(theirs, time.Minute)
				child, cancelChild := tw.WithTimeout(ours, time.Minute)
				assert.NoError(t, below.Err())
				assert.NoError(t, child.Err())
				assert.Zero(t, dependents(ours), name)
				below.Done()
				child.Done()
				assert.Equal(t, 1, dependents(ours), name)
				assert.NotZero(t, childrenInPackageContext(t, theirs), name)
				end(func() { cancelBelow(); cancelChild() })
				assert.Zero(t, dependents(ours), name)
			}
			endOurs()
			assert.Zero(t, childrenInPackageContext(t, theirs), name)
		})
	}
}

// Contexts and functions of package context leave a context of the wheel one by one.
func TestChildrenOfPackageContextLeave(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		_, cancelChild := context.WithCancel(ctx)
		_, cancelTimeout := context.WithTimeout(ctx, time.Minute)
		stop := context.AfterFunc(ctx, func() {})
		late, cancelLate := context.WithTimeout(ctx, time.Second)
		defer cancelLate()
		assert.Equal(t, 4, dependents(ctx))
		cancelTimeout()
		cancelChild()
		assert.Equal(t, 2, dependents(ctx))
		assert.True(t, stop())
		passDeadline(time.Second)
		assert.Error(t, late.Err())
		assert.Zero(t, dependents(ctx))
	})
}

// Package context starts a goroutine for each of its contexts below a value below a context of the
// wheel, as the documents say, and for no other context.
func TestGoroutinesThatWaitForAContext(t *testing.T) {
	t.Parallel()
	const many = 100
	value := func(ctx context.Context) context.Context { return context.WithValue(ctx, testKey(1), 1) }
	for name, c := range map[string]struct {
		kind  string
		below func(ctx context.Context) context.Context
		want  int
	}{
		"ours":                 {"of the wheel", func(ctx context.Context) context.Context { return ctx }, 0},
		"theirs":               {"of package context", func(ctx context.Context) context.Context { return ctx }, 0},
		"theirs with deadline": {"with a deadline of package context", func(ctx context.Context) context.Context { return ctx }, 0},
		"ours below a value":   {"of the wheel", value, 0},
		"theirs below a value": {"of package context", value, many},
	} {
		for _, cancellable := range []bool{false, true} {
			contextBubble(t, func(t *testing.T, tw *TimingWheel) {
				parent := context.Background()
				if cancellable {
					ctx, cancel := context.WithCancel(parent)
					defer cancel()
					parent = ctx
				}
				ctx, cancel := tw.WithTimeout(parent, time.Hour)
				defer cancel()
				var all []context.Context
				for range many {
					child, cancelChild := children[c.kind](tw, c.below(ctx))
					defer cancelChild()
					child.Done()
					all = append(all, child)
				}
				assert.Equal(t, c.want, waitersInPackageContext(t), name)
				cancel()
				if c.want > 0 {
					synctest.Wait()
				}
				assertAllEnded(t, all, context.Canceled, context.Canceled)
			})
		}
	}
}
