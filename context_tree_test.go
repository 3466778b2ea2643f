package timingwheel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// Tests of parents and children of both packages: chains, wide trees, and what is left of them.

type testKey int

// plainContext is a context of another package with only the methods of the interface.
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

// parents are contexts that a test can end.
var parents = map[string]func(tw *TimingWheel) (parent context.Context, end func()){
	"of the wheel": func(tw *TimingWheel) (context.Context, func()) {
		return tw.WithTimeout(context.Background(), time.Hour)
	},
	"of package context": func(*TimingWheel) (context.Context, func()) {
		return context.WithCancel(context.Background())
	},
	"below one of the wheel": func(tw *TimingWheel) (context.Context, func()) {
		top, end := tw.WithTimeout(context.Background(), time.Hour)
		parent, cancel := context.WithCancel(top)
		return parent, func() { end(); cancel() }
	},
	"with values": func(tw *TimingWheel) (context.Context, func()) {
		top, end := tw.WithTimeout(context.Background(), time.Hour)
		return context.WithValue(context.WithValue(top, testKey(1), 1), errCause, 2), end
	},
	"of neither": func(*TimingWheel) (context.Context, func()) {
		c := newPlainContext()
		return c, func() { c.end(); synctest.Wait() } // a goroutine ends its children
	},
}

// children make a context below parent. child ends with parent.
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
}

// When cancel of a context of the wheel returns, its children have ended, even if contexts of both
// packages alternate. A goroutine of package context may still be ending the last one.
func TestCancelEndsTheChildrenAtOnce(t *testing.T) {
	t.Parallel()
	for _, newChild := range children {
		contextBubble(t, func(t *testing.T, tw *TimingWheel) {
			parent, cancel := tw.WithTimeout(t.Context(), time.Hour)
			child, cancelChild := newChild(tw, parent)
			defer cancelChild()
			grandchild, cancelGrandchild := tw.WithTimeout(child, time.Second)
			defer cancelGrandchild()
			below, cancelBelow := tw.WithTimeout(grandchild, ms)
			defer cancelBelow()
			last, cancelLast := context.WithCancel(below)
			defer cancelLast()
			cancel()
			assertAllEnded(t, []context.Context{child, below}, context.Canceled, context.Canceled)
			synctest.Wait()
			assert.Equal(t, context.Canceled, last.Err())
			assertEnded(t, grandchild, context.Canceled, context.Canceled)
		})
	}
}

// After their cancel, children are no longer registered and no goroutine waits for them.
func TestCancelledContextsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	for name, newParent := range parents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			contextBubble(t, func(t *testing.T, tw *TimingWheel) {
				parent, end := newParent(tw)
				defer end()
				before := goroutinesInBubble(t, "") // goroutines of other tests come and go
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
				if p, ok := parent.Value(&ownKey).(*deadlineContext); ok && p.Done() == parent.Done() {
					assert.Zero(t, dependents(p))
				}
				own, cancelOwn := tw.WithTimeout(parent, time.Minute)
				for range 10 {
					_, cancel := context.WithCancel(own)
					cancel()
				}
				cancelOwn()
			})
		})
	}
}

// After the end of a parent of package context, the first call to any method of a context of the
// wheel shows the end, however far below the parent it is.
func TestFirstCallAfterTheParentsEndShowsTheEnd(t *testing.T) {
	t.Parallel()
	calls := map[string]func(t *testing.T, ctx context.Context){
		"Done":  func(t *testing.T, ctx context.Context) { assert.True(t, ended(ctx)) },
		"Err":   func(t *testing.T, ctx context.Context) { assert.Equal(t, context.Canceled, ctx.Err()) },
		"Cause": func(t *testing.T, ctx context.Context) { assert.Equal(t, errCause, context.Cause(ctx)) },
		"Cause of a wrapper": func(t *testing.T, ctx context.Context) {
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
	for name, call := range calls {
		for depth := range 4 {
			for _, siblings := range []int{0, 1, 2} {
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
						call(t, ctx)
						assertEnded(t, ctx, context.Canceled, errCause)
					})
				})
			}
		}
	}
}

// A child with the same deadline as its parent has its own timer, so it may end with its own cause.
func TestChildWithEqualDeadlineHasItsOwnTimer(t *testing.T) {
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
			assert.Equal(t, before+1, tw.Len(), "the child has no timer")
			deadline, ok := child.Deadline()
			assert.True(t, ok)
			assert.True(t, deadline.Equal(at))
			passDeadline(time.Second)
			assert.Equal(t, context.DeadlineExceeded, child.Err())
			assert.Contains(t, []error{errParent, errChild}, context.Cause(child)) // of the timer that was first
		})
	}
	// If the parent's deadline does not come, the cause is the child's.
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

// A child whose parent has an earlier deadline has no timer, and ends with the parent's error and
// cause.
func TestChildOfAnEarlierDeadlineHasNoTimer(t *testing.T) {
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

// goroutinesInBubble counts the goroutines in the caller's bubble whose stack contains a string.
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
	own := bubble.Find(stacks) // the caller's goroutine comes first
	require.NotNil(t, own)
	count := 0
	for _, stack := range bytes.Split(stacks, []byte("\n\n")) {
		if bytes.Equal(bubble.Find(stack), own) && bytes.Contains(stack, []byte(something)) {
			count++
		}
	}
	return count
}

func TestLongChainEndsFromTheTop(t *testing.T) {
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

// twin is a pair of contexts: one in a tree of package context, and one at the same position in a
// tree in which most contexts with deadlines belong to a wheel.
type twin struct {
	kind   string
	ctx    [2]context.Context
	cancel [2]func(cause error)
	called [2]*atomic.Int32 // how often the function of context.AfterFunc has run
}

// forest makes random trees of twins.
type forest struct {
	random *rand.Rand
	base   time.Time
	with   [2]func(context.Context, time.Time, error) (context.Context, context.CancelFunc)
	used   map[time.Duration]bool // deadlines; all differ, because the order of equal deadlines is open
	twins  []*twin
}

func (f *forest) pick() *twin { return f.twins[f.random.IntN(len(f.twins))] }

// deadline returns a new deadline in whole ms. Some deadlines have passed.
func (f *forest) deadline() time.Time {
	for {
		d := time.Since(f.base).Truncate(ms) + time.Duration(f.random.IntN(300)-10)*ms
		if !f.used[d] {
			f.used[d] = true
			return f.base.Add(d)
		}
	}
}

// grow adds a twin below a random one.
func (f *forest) grow() {
	up := f.pick()
	n := &twin{}
	kind, mixed, at := f.random.IntN(20), f.random.IntN(4) == 0, f.deadline()
	cause := []error{nil, errCause, fmt.Errorf("deadline %d", len(f.twins)), errMap}[f.random.IntN(4)]
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
			w := &watchable{plainContext: plainContext{Context: context.Background(), done: make(chan struct{})}, watchers: map[*int]func(){}}
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
		case 8, 9, 10, 11, 12, 13:
			n.odd(kind-8, i, parent)
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

// odd makes one of two contexts of a third package.
func (n *twin) odd(kind, i int, parent context.Context) {
	done := make(chan struct{})
	end := sync.OnceFunc(func() { close(done) })
	// Around a context, its cause would be the wrapped one's, whose end may not be known yet.
	switch own := (&ownDone{context.WithoutCancel(parent), done, errChild}); kind {
	case 0:
		n.kind = "with a channel of its own"
		n.ctx[i], n.cancel[i] = own, func(error) { end() }
	case 1:
		n.kind = "the same, not comparable"
		context.AfterFunc(parent, end)
		n.ctx[i], n.cancel[i] = ownDoneStruct{own, []int{1}}, func(error) { end() }
	case 2:
		n.kind = "with fresh channels"
		c := &freshDone{plainContext{Context: context.Background(), done: done}}
		context.AfterFunc(parent, c.end)
		n.ctx[i], n.cancel[i] = c, func(error) { c.end() }
	case 3:
		n.kind = "not comparable"
		n.ctx[i] = uncomparable{Context: parent}
	case 4:
		n.kind = "with an error that is not comparable"
		c := newPlainContext()
		context.AfterFunc(parent, func() { c.endWith(errMap) })
		n.ctx[i], n.cancel[i] = c, func(error) { c.endWith(errMap) }
	default:
		n.kind = "with a value that is not comparable"
		n.ctx[i] = hidden{parent, []int{1}}
	}
}

// ask calls a method of both contexts of a twin. It ignores the results, because later calls are
// compared.
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
		n, cause := f.pick(), []error{nil, errCause, errParent, errMap}[f.random.IntN(4)]
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
		std, own := n.ctx[0], n.ctx[1]
		where := fmt.Sprintf("%s, context %d: %s", where, i, n.kind)
		require.Equal(t, std.Err(), own.Err(), where)
		require.Equal(t, context.Cause(std), context.Cause(own), where)
		require.Equal(t, std.Done() == nil, own.Done() == nil, where)
		require.Equal(t, ended(std), ended(own), where)
		stdDeadline, some := std.Deadline()
		ownDeadline, also := own.Deadline()
		require.Equal(t, some, also, where)
		require.True(t, stdDeadline.Equal(ownDeadline), where)
		key := testKey(f.random.IntN(i + 1))
		require.Equal(t, std.Value(key), own.Value(key), where)
		if n.called[0] != nil {
			require.Equal(t, n.called[0].Load(), n.called[1].Load(), where)
		}
	}
}

// The same calls on trees of contexts of all kinds have the same results as in package context.
func TestModelContextsBehaveLikePackageContext(t *testing.T) {
	t.Parallel()
	for seed := range scaledSeeds(150) {
		contextBubble(t, func(t *testing.T, tw *TimingWheel) {
			f := &forest{
				random: rand.New(rand.NewPCG(seed, 7)),
				base:   time.Now(),
				used:   map[time.Duration]bool{},
				twins:  []*twin{{kind: "background", ctx: [2]context.Context{context.Background(), context.Background()}, cancel: [2]func(error){func(error) {}, func(error) {}}}},
			}
			wheels := []*TimingWheel{tw, startWheel(t, Options{})}
			f.with[0] = context.WithDeadlineCause
			f.with[1] = func(parent context.Context, at time.Time, cause error) (context.Context, context.CancelFunc) {
				tw := wheels[f.random.IntN(2)]
				if seed%2 == 0 {
					return tw.WithTimeoutCause(parent, time.Until(at), cause)
				}
				return tw.WithDeadlineCause(parent, at, cause)
			}
			every := 1 + int(seed%3)*3 // if all methods were called in each step, no notification would come first
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
			require.Zero(t, wheels[1].Len())
		})
	}
}

// waitersInPackageContext counts the goroutines that package context has started in the caller's
// bubble.
func waitersInPackageContext(t *testing.T) int {
	t.Helper()
	return goroutinesInBubble(t, "propagateCancel")
}

// dependents returns the number of functions and contexts that are registered with a context of the
// wheel.
func dependents(ctx context.Context) (n int) {
	c := ctx.(*deadlineContext)
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.phase.Load(); p != nil && p.dependents != nil {
		n = p.dependents.Len()
	}
	return n
}

// Package context starts a goroutine for each of its contexts below a value below a context of the
// wheel, as documented, and for no other context.
func TestOnlyPackageContextsBelowAValueCostAGoroutine(t *testing.T) {
	t.Parallel()
	const many = 100
	value := func(ctx context.Context) context.Context { return context.WithValue(ctx, testKey(1), 1) }
	for name, c := range map[string]struct {
		kind  string
		below func(ctx context.Context) context.Context
		want  int
	}{
		"of the wheel":                       {"of the wheel", func(ctx context.Context) context.Context { return ctx }, 0},
		"of package context":                 {"of package context", func(ctx context.Context) context.Context { return ctx }, 0},
		"with a deadline of package context": {"with a deadline of package context", func(ctx context.Context) context.Context { return ctx }, 0},
		"of the wheel below a value":         {"of the wheel", value, 0},
		"of package context below a value":   {"of package context", value, many},
	} {
		for _, how := range []string{"running", "cancellable", "stopped"} {
			contextBubble(t, func(t *testing.T, tw *TimingWheel) {
				parent := context.Background()
				if how == "stopped" {
					tw.Stop()
				}
				if how == "cancellable" {
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
