package timingwheel

import (
	"bytes"
	"context"
	"reflect"
	"regexp"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// childrenInPackageContext is how many children a context of package context has. It looks into
// that package's context, whose map has been there under this name since Go 1.7.
func childrenInPackageContext(t *testing.T, ctx context.Context) int {
	t.Helper()
	own, ok := ctx.Value(cancelKey).(context.Context)
	require.True(t, ok)
	children := reflect.ValueOf(own).Elem().FieldByName("children")
	if !children.IsValid() {
		t.Skip("this Go has its children elsewhere")
	}
	lock := func() { // the map's lock is taken where a child comes and goes
		_, cancel := context.WithCancel(own)
		cancel()
	}
	lock()
	defer lock()
	return children.Len()
}

// Whoever ends leaves the parent at once, in whichever way it ends.
func TestChildrenLeaveTheirParent(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(ctx context.Context, cancel func()){
		"cancel":   func(_ context.Context, cancel func()) { cancel() },
		"deadline": func(context.Context, func()) { passDeadline(time.Minute) },
		"asked first": func(ctx context.Context, cancel func()) {
			ctx.Done()
			cancel()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			contextBubble(t, func(t *testing.T, tw *TimingWheel) {
				parent, end := context.WithCancel(context.Background())
				defer end()
				for _, siblings := range []int{0, 3} {
					var cancels []func()
					for range siblings {
						_, cancel := tw.WithTimeout(parent, time.Hour)
						cancels = append(cancels, cancel)
					}
					watches := childrenInPackageContext(t, parent)
					assert.Equal(t, min(siblings, 2), watches, "one alone, and one for the family")
					ctx, cancel := tw.WithTimeout(parent, time.Minute)
					defer cancel()
					assert.Equal(t, min(siblings+1, 2), childrenInPackageContext(t, parent))
					leave(ctx, cancel)
					assert.Equal(t, watches, childrenInPackageContext(t, parent))
					for _, cancel := range cancels {
						cancel()
					}
					assert.Zero(t, childrenInPackageContext(t, parent))
				}
			})
		})
	}
}

// Children in package context leave a context of the wheel as they leave one of their own.
func TestChildrenOfPackageContextLeave(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		around := context.WithValue(struct{ context.Context }{ctx}, testKey(1), 1)
		_, cancelChild := context.WithCancel(around)
		_, cancelTimeout := context.WithTimeout(around, time.Minute)
		stop := context.AfterFunc(around, func() {})
		late, cancelLate := context.WithTimeout(ctx, time.Second)
		defer cancelLate()
		assert.Equal(t, 4, childrenInPackageContext(t, ctx))
		cancelChild()
		cancelTimeout()
		assert.Equal(t, 2, childrenInPackageContext(t, ctx))
		assert.True(t, stop())
		passDeadline(time.Second)
		assert.Error(t, late.Err())
		assert.Zero(t, childrenInPackageContext(t, ctx))
	})
}

// waitersInPackageContext counts the goroutines that package context has started, in the bubble of
// the caller.
func waitersInPackageContext(t *testing.T) int {
	t.Helper()
	return goroutinesInBubble(t, "propagateCancel")
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

// The test of the next one: a context of a third package does cost a goroutine.
func TestAGoroutineWaitsForAThirdPackage(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		parent := newPlainContext()
		for i := range 10 {
			_, cancel := tw.WithTimeout(parent, time.Hour)
			defer cancel()
			assert.Equal(t, min(i+1, 2), waitersInPackageContext(t), "one for the first, one for all others")
		}
	})
}

// No goroutine waits for the end of a context of the wheel, whatever hangs onto it.
func TestNoGoroutineWaitsForAContext(t *testing.T) {
	t.Parallel()
	const many = 1000
	for name, around := range map[string]func(ctx context.Context) context.Context{
		"directly":   func(ctx context.Context) context.Context { return ctx },
		"a value":    func(ctx context.Context) context.Context { return context.WithValue(ctx, testKey(1), 1) },
		"a struct":   func(ctx context.Context) context.Context { return struct{ context.Context }{ctx} },
		"overriding": func(ctx context.Context) context.Context { return overriding{ctx, nil} },
		"all of these": func(ctx context.Context) context.Context {
			return context.WithValue(overriding{struct{ context.Context }{context.WithValue(ctx, testKey(1), 1)}, nil}, testKey(2), 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			contextBubble(t, func(t *testing.T, tw *TimingWheel) {
				ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				var all []context.Context
				for i := range many {
					child, cancelChild := children[[]string{"of package context", "of the wheel", "with a deadline of package context"}[i%3]](tw, around(ctx))
					defer cancelChild()
					all = append(all, child)
				}
				context.AfterFunc(around(ctx), func() {})
				assert.Zero(t, waitersInPackageContext(t))
				cancel()
				for _, child := range all {
					require.Equal(t, context.Canceled, child.Err())
				}
			})
		})
	}
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

// A context has a stand-in where somebody has asked for Done, and not before. It is as the context
// is.
func TestStandIns(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		ctx, cancel := tw.WithTimeout(context.WithValue(context.Background(), testKey(1), "one"), time.Hour)
		c := ctx.(*deadlineContext)
		_, cancelChild := tw.WithTimeout(ctx, time.Minute)
		cancelChild()
		assert.NoError(t, c.Err())
		assert.NoError(t, context.Cause(context.WithValue(ctx, testKey(2), "two")))
		assert.Equal(t, context.Canceled, context.Cause(overriding{ctx, context.Canceled}))
		assert.Nil(t, c.standIn.Load())
		done := c.Done()
		theirs := c.Value(cancelKey).(context.Context)
		assert.Equal(t, done, theirs.Done())
		want, _ := c.Deadline()
		deadline, ok := theirs.Deadline()
		assert.True(t, ok)
		assert.Equal(t, want, deadline)
		assert.Equal(t, "one", theirs.Value(testKey(1)))
		assert.Same(t, c, theirs.Value(deadlineKey))
		assertGoesOn(t, theirs)
		cancel()
		assertEnded(t, theirs, context.Canceled, context.Canceled)
		assert.Nil(t, c.standIn.Load().Value(cancelKey), "who has no cause needs nothing that holds it")
	})
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

// TestContextsFarBelowOnePackageContextHaveEnded has a parent of package context, below which those
// of both packages take turns. Whoever asks one of the wheel's when the parent's cancel has
// returned learns that it has ended, though the goroutines that tell it may not have run.
func TestContextsFarBelowOnePackageContextHaveEnded(t *testing.T) {
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
