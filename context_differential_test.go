package timingwheel

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

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
			n.kind = "overriding"
			n.ctx[i] = &overriding{parent, errParent}
		case 5:
			n.kind = "channel of its own"
			done := make(chan struct{})
			stop := context.AfterFunc(parent, func() { close(done) })
			own := &ownDone{parent, done, errChild}
			n.ctx[i] = own
			n.cancel[i] = func(error) {
				if stop() {
					close(done)
				}
			}
		case 6:
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
