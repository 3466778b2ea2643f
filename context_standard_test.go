package timingwheel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// withCause is WithTimeoutCause of a wheel or of package context.
type withCause = func(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc)

// asInPackageContext runs a test with the contexts of a wheel, and with those of package context:
// what it expects is what they do, too.
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

// passDeadline lets d pass, and what then is due happen.
func passDeadline(d time.Duration) {
	time.Sleep(d + defaultTick)
	synctest.Wait()
}

// together runs f n times at once, as closely as it can be done.
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

// Whoever finds an error finds Done closed, also by a channel that was taken long before.
func TestErrIsNilUntilDoneIsClosed(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Tick: 50 * time.Microsecond})
	for name, newContext := range map[string]func() (ctx context.Context, end func()){
		"cancelled": func() (context.Context, func()) { return tw.WithTimeout(context.Background(), time.Hour) },
		"parent of the wheel": func() (context.Context, func()) {
			parent, end := tw.WithTimeout(context.Background(), time.Hour)
			ctx, _ := tw.WithTimeout(parent, time.Hour) // it ends with its parent
			return ctx, end
		},
		"parent of package context": func() (context.Context, func()) {
			parent, end := context.WithCancel(context.Background())
			ctx, _ := tw.WithTimeout(parent, time.Hour) // it ends with its parent
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
				require.Fail(t, "an error before Done was closed", name)
			}
			end()
		}
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

func TestErrorsOfContexts(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true})
	late, cancel := tw.WithTimeout(context.Background(), 0)
	defer cancel()
	var network net.Error
	require.ErrorAs(t, late.Err(), &network)
	assert.True(t, network.Timeout())
	var temporary interface{ Temporary() bool }
	require.ErrorAs(t, late.Err(), &temporary)
	assert.True(t, temporary.Temporary())
	assert.ErrorIs(t, late.Err(), context.DeadlineExceeded)
	assert.NotErrorIs(t, late.Err(), context.Canceled)

	left, cancel := tw.WithTimeout(context.Background(), time.Hour)
	cancel()
	assert.ErrorIs(t, left.Err(), context.Canceled)
	assert.NotErrorIs(t, left.Err(), context.DeadlineExceeded)
	assert.False(t, errors.As(left.Err(), &network), "who is cancelled is not late")
}

func TestNamesOfContexts(t *testing.T) {
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
		child, cancelChild := context.WithCancel(ctx)
		assert.Equal(t, want+".WithCancel", fmt.Sprint(child))
		cancelChild()
		cancel()
		assert.Equal(t, want, fmt.Sprint(ctx), "also afterwards")
	}
}

type namedKey struct{}

func (namedKey) String() string { return "the key" }

// The channel of a context that has ended costs nothing, and is the one that it keeps.
func TestDoneAfterTheEnd(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	parent, end := context.WithCancel(context.Background())
	for _, question := range []func(ctx context.Context){
		func(ctx context.Context) { assert.Equal(t, context.Canceled, context.Cause(ctx)) },
		func(ctx context.Context) { context.AfterFunc(ctx, func() {}) },
		func(ctx context.Context) { ctx.(*deadlineContext).AfterFunc(func() {}) },
		func(ctx context.Context) { _, cancel := context.WithCancel(ctx); cancel() },
	} {
		ctx, cancel := tw.WithTimeout(parent, time.Hour)
		cancel()
		done := ctx.Done()
		receive(t, done, "the end")
		require.Nil(t, ctx.(*deadlineContext).standIn.Load())
		question(ctx)
		assert.Equal(t, done, ctx.Done())
	}
	ctx, cancel := tw.WithTimeout(parent, time.Hour)
	defer cancel()
	end()
	receive(t, ctx.Done(), "the parent's end")
	assert.Nil(t, ctx.(*deadlineContext).standIn.Load())
}

// askedWhenAsked is a parent that has ended. Somebody gets the channel of its child while the
// parent is asked how.
type askedWhenAsked struct {
	context.Context
	child *deadlineContext
	done  <-chan struct{}
}

func (a *askedWhenAsked) Err() error {
	if a.done == nil {
		a.done = a.child.standing().ctx.Done()
	}
	return context.Canceled
}

// Whoever finds out that the context has ended has the channel of those who asked for it just
// before.
func TestDoneAfterOneThatCameBeforeTheEnd(t *testing.T) {
	t.Parallel()
	c := &deadlineContext{parent: context.Background()}
	parent := &askedWhenAsked{Context: context.Background(), child: c}
	c.tie = &tie{to: parent, done: closed, forget: stay, known: new(families)}
	require.True(t, c.made(&tiedAlone))
	done := c.Done()
	require.NotNil(t, parent.done)
	assert.Equal(t, parent.done, done)
	assert.True(t, isClosed(done))
}

// Two have found that the context goes on, and then it ends. One of them has made the stand-in, and
// has not let it follow yet. The other has the channel of those who came in between, and it is
// closed, as they may have told that the context has ended.
func TestDoneOfOneThatComesLateAfterTheEnd(t *testing.T) {
	t.Parallel()
	c := &deadlineContext{parent: context.Background()}
	require.True(t, c.made(&endless))
	c.endWith(&cancelled)
	between := c.Done()
	require.Error(t, c.Err())
	s := c.standing()
	late := c.channel(nil)
	assert.True(t, isClosed(late))
	assert.Equal(t, between, late)
	s.follow()
	assert.Equal(t, between, c.Done())
}

// Some ask for the channel while the context ends: all have the same.
func TestDoneWhileTheContextEnds(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	for i := range scaled(5000) {
		ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
		var channels [3]<-chan struct{}
		together(len(channels)+1, func(k int) {
			for n := 0; n < i%50*k; n++ { // so that each moment has its turn
				_ = ctx.(*deadlineContext).end.Load()
			}
			switch {
			case k == len(channels):
				cancel()
			case k == 0 && i%2 == 0:
				ctx.(*deadlineContext).AfterFunc(func() {})
				channels[k] = ctx.Done()
			default:
				channels[k] = ctx.Done()
			}
		})
		for _, done := range channels {
			require.Equal(t, ctx.Done(), done)
			require.True(t, isClosed(done))
		}
	}
}

// There is one channel, whoever asks first.
func TestFirstCallsOfDoneAtTheSameTime(t *testing.T) {
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

// Everybody who cancels may rely on the children in package context having ended.
func TestCancelsAtTheSameTime(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	for range scaled(100) {
		ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
		var below []context.Context
		for i := range 300 {
			parent := ctx
			if i%2 == 0 {
				parent = context.WithValue(ctx, testKey(i), i)
			}
			child, cancelChild := context.WithCancel(parent)
			defer cancelChild()
			below = append(below, child)
		}
		together(2, func(int) {
			cancel()
			for _, child := range below {
				if child.Err() == nil {
					assert.Fail(t, "a child goes on after cancel")
					return
				}
			}
		})
	}
}
