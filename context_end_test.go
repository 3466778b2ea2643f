package timingwheel

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// How a context ends: by whom, with which cause, and what others see meanwhile.

var (
	errParent = errors.New("of the parent")
	errChild  = errors.New("of the child")
)

// outcome is how a context has ended.
type outcome struct{ err, cause error }

func assertOutcome(t *testing.T, ctx context.Context, want outcome) {
	t.Helper()
	if want.err == nil {
		assertGoesOn(t, ctx)
		return
	}
	assertEnded(t, ctx, want.err, want.cause)
}

// Who has ended first keeps its error and its cause, and passes them on to those below that have
// not.
func TestCausesOfParentAndChild(t *testing.T) {
	t.Parallel()
	// Both are made with deadlines and causes of their own, and cancelled by cancelParent and
	// cancelChild. wait takes a second.
	const soon, later, far = time.Second, 2 * time.Second, time.Hour
	cancelledBy := func(cause error) outcome { return outcome{context.Canceled, cause} }
	late := func(cause error) outcome { return outcome{context.DeadlineExceeded, cause} }
	for name, test := range map[string]struct {
		parent, child           time.Duration // 0: context.WithCancelCause
		steps                   string        // p and c cancel, w waits
		parentEnded, childEnded outcome
		andThen                 string // nothing changes the outcomes
	}{
		"nothing":                                 {parent: far, child: far, andThen: "w"},
		"parent is cancelled":                     {parent: far, child: later, steps: "p", parentEnded: cancelledBy(context.Canceled), childEnded: cancelledBy(context.Canceled), andThen: "cwww"},
		"parent with a cause is cancelled":        {child: soon, steps: "p", parentEnded: cancelledBy(errParent), childEnded: cancelledBy(errParent), andThen: "cwwp"},
		"parent, then the child at once":          {child: far, steps: "pc", parentEnded: cancelledBy(errParent), childEnded: cancelledBy(errParent), andThen: "wc"},
		"child of ours is cancelled with a cause": {parent: far, steps: "c", childEnded: cancelledBy(errChild), andThen: "w"},
		"child first, then the parent's deadline": {parent: soon, steps: "cw", childEnded: cancelledBy(errChild), parentEnded: late(errParent), andThen: "wpc"},
		"parent's deadline, then the child":       {parent: soon, steps: "wc", childEnded: late(errParent), parentEnded: late(errParent), andThen: "wpc"},
		"child's deadline, then the parent":       {child: soon, steps: "wp", childEnded: late(errChild), parentEnded: cancelledBy(errParent), andThen: "wpc"},
		"child's deadline":                        {child: soon, steps: "w", childEnded: late(errChild), andThen: "wc"},
		"child's deadline, then the parent's":     {parent: later, child: soon, steps: "ww", childEnded: late(errChild), parentEnded: late(errParent), andThen: "wpc"},
		"parent's deadline is earlier":            {parent: soon, child: later, steps: "w", childEnded: late(errParent), parentEnded: late(errParent), andThen: "wpc"},
		"child is cancelled, then the parent":     {parent: later, child: soon, steps: "cp", childEnded: cancelledBy(context.Canceled), parentEnded: cancelledBy(context.Canceled), andThen: "www"},
		"child is cancelled, then parent's cause": {child: soon, steps: "cp", childEnded: cancelledBy(context.Canceled), parentEnded: cancelledBy(errParent), andThen: "www"},
	} {
		for _, around := range []string{"alone", "shared", "with a value", "of both"} {
			t.Run(name+"/"+around, func(t *testing.T) {
				t.Parallel()
				asInPackageContext(t, func(t *testing.T, with withCause) {
					contextOf := func(parent context.Context, d time.Duration, cause error) (context.Context, func()) {
						if d != 0 {
							return with(parent, d, cause)
						}
						ctx, cancel := context.WithCancelCause(parent)
						return ctx, func() { cancel(cause) }
					}
					parent, cancelParent := contextOf(context.Background(), test.parent, errParent)
					defer cancelParent()
					top := parent
					if around == "with a value" || around == "of both" {
						top = context.WithValue(parent, testKey(1), 1)
					}
					if around == "shared" || around == "of both" {
						for range 2 {
							_, cancel := with(top, far, nil)
							defer cancel()
						}
					}
					child, cancelChild := contextOf(top, test.child, errChild)
					defer cancelChild()
					do := func(steps string) {
						for _, step := range steps {
							switch step {
							case 'p':
								cancelParent()
							case 'c':
								cancelChild()
							case 'w':
								passDeadline(time.Second)
							}
						}
						synctest.Wait()
					}
					do(test.steps)
					for range 2 {
						assertOutcome(t, parent, test.parentEnded)
						assertOutcome(t, child, test.childEnded)
						assertOutcome(t, context.WithValue(child, testKey(2), 2), test.childEnded)
						do(test.andThen)
					}
				})
			})
		}
	}
}

func TestStackedCauses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		left time.Duration
		want outcome
	}{
		"has passed":            {0, outcome{context.DeadlineExceeded, errChild}},
		"is cancelled above it": {time.Hour, outcome{context.Canceled, errParent}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asInPackageContext(t, func(t *testing.T, with withCause) {
				parent, end := context.WithCancelCause(context.Background())
				ctx, cancel := with(parent, test.left, errChild)
				defer cancel()
				below, cancelBelow := with(ctx, time.Hour, errCause)
				defer cancelBelow()
				apart := context.WithoutCancel(below)
				end(errParent)
				synctest.Wait()
				assertEnded(t, ctx, test.want.err, test.want.cause)
				assertEnded(t, below, test.want.err, test.want.cause)
				assert.NoError(t, context.Cause(apart))
				assert.NoError(t, apart.Err())
			})
		})
	}
}

// mapError is an error of a type that cannot be compared.
type mapError map[string]int

func (mapError) Error() string { return "a map" }

// Errors and causes may be of types that == panics for.
func TestCausesThatCannotBeCompared(t *testing.T) {
	t.Parallel()
	odd := mapError{"odd": 1}
	asInPackageContext(t, func(t *testing.T, with withCause) {
		late, cancelLate := with(context.Background(), time.Second, odd)
		defer cancelLate()
		lateBelow, cancelLateBelow := with(late, time.Hour, nil)
		defer cancelLateBelow()
		passDeadline(time.Second)
		assertEnded(t, late, context.DeadlineExceeded, odd)
		assertEnded(t, lateBelow, context.DeadlineExceeded, odd)

		for _, siblings := range []int{0, 2} {
			parent, end := context.WithCancelCause(context.Background())
			custom := newPlainContext()
			for range siblings {
				_, cancel := with(parent, time.Hour, nil)
				defer cancel()
				_, cancel = with(custom, time.Hour, nil)
				defer cancel()
			}
			ctx, cancel := with(parent, time.Hour, nil)
			defer cancel()
			below, cancelBelow := with(ctx, time.Hour, nil)
			defer cancelBelow()
			end(odd)
			synctest.Wait()
			assertEnded(t, ctx, context.Canceled, odd)
			assertEnded(t, below, context.Canceled, odd)

			ctx, cancel = with(custom, time.Hour, nil)
			defer cancel()
			below, cancelBelow = context.WithCancel(ctx)
			defer cancelBelow()
			custom.endWith(odd)
			synctest.Wait()
			assertEnded(t, ctx, odd, odd)
			assertEnded(t, below, odd, odd)
		}
	})
}

// Many ask for the cause while it is set: it is nil, and then always the same.
func TestCauseWhileTheContextEnds(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Tick: 50 * time.Microsecond})
	for i := range scaled(500) {
		parent, end := context.WithCancelCause(context.Background())
		d := []time.Duration{100 * time.Microsecond, time.Hour}[i%2]
		ctx, cancel := tw.WithTimeoutCause(parent, d, errChild)
		below, cancelBelow := context.WithCancel(ctx)
		want := outcome{context.DeadlineExceeded, errChild}
		var all sync.WaitGroup
		if i%2 == 1 {
			want = outcome{context.Canceled, errParent}
			all.Go(func() { end(errParent) })
		}
		for _, asked := range []context.Context{ctx, ctx, below} {
			all.Go(func() {
				cause := context.Cause(asked)
				for cause == nil {
					runtime.Gosched()
					cause = context.Cause(asked)
				}
				assert.Equal(t, want.cause, cause)
				assert.Equal(t, want.err, asked.Err())
			})
		}
		all.Wait()
		cancelBelow()
		cancel()
		end(nil)
	}
}

// Whoever finds that a context goes on, and looks further above when it has ended and left, learns
// how it has ended.
func TestContextThatEndsBetweenTwoLooks(t *testing.T) {
	t.Parallel()
	for name, newParent := range parents {
		contextBubble(t, func(t *testing.T, tw *TimingWheel) {
			parent, end, _ := newParent(tw)
			defer end()
			for range 3 {
				ctx, cancel := tw.WithTimeout(parent, time.Minute)
				c := ctx.(*deadlineContext)
				require.Nil(t, c.look(), name)
				cancel()
				assert.Same(t, &cancelled, c.above(), name)
				assert.Equal(t, context.Canceled, c.Err(), name)
			}
		})
	}
}

// Where somebody has begun to end a context in the middle, cancel of one above ends what is below
// it all the same, as in package context.
func TestCancelAboveOneThatIsBeingEnded(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		var cancels []func()
		ctx := context.Background()
		var chain [4]*deadlineContext
		var theirs [4]context.Context
		for i := range chain {
			var cancel, cancelTheirs func()
			ctx, cancel = tw.WithTimeout(ctx, time.Hour)
			chain[i] = ctx.(*deadlineContext)
			theirs[i], cancelTheirs = context.WithCancel(ctx)
			cancels = append(cancels, cancel, cancelTheirs)
		}
		require.True(t, chain[1].end.CompareAndSwap(nil, &timedOut))
		chain[0].cancel()
		for i, c := range chain[1:] { // nobody is asked
			require.Same(t, &timedOut, c.end.Load(), i)
			assert.Equal(t, context.DeadlineExceeded, theirs[i+1].Err(), i)
		}
		assert.Equal(t, context.Canceled, theirs[0].Err())
		chain[1].timer.Stop()
		for _, cancel := range cancels {
			cancel()
		}
	})
}

// Whoever cancels a context that another is ending, or one above it, returns when all that is below
// has ended.
func TestSecondCancelWaitsForAllBelow(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]int{"the same": 0, "below": 1} {
		tw := startWheel(t, Options{})
		var chain [3]context.Context
		var cancels [3]context.CancelFunc
		parent := context.Background()
		for i := range chain {
			chain[i], cancels[i] = tw.WithTimeout(parent, time.Hour)
			parent = chain[i]
		}
		theirs, cancelTheirs := context.WithCancel(parent)
		s := parent.(*deadlineContext).standIn.Load()
		cancel, begun, proceed := s.cancel, make(chan struct{}), make(chan struct{})
		var calls atomic.Int32
		s.cancel = func() { // as slow as if there were a million children
			if calls.Add(1) == 1 {
				close(begun)
				<-proceed
			}
			cancel()
		}
		returned := make(chan struct{})
		go func() {
			cancels[first]()
			close(returned)
		}()
		receive(t, begun, "the first cancel")
		// It waits for this. If it came back before, nothing would have ended.
		time.AfterFunc(20*time.Millisecond, func() { close(proceed) })
		cancels[0]()
		assert.Equal(t, context.Canceled, theirs.Err(), name)
		receive(t, returned, "the return of the first cancel")
		assert.EqualValues(t, 1, calls.Load(), name)
		cancelTheirs()
		for _, cancel := range cancels {
			cancel()
		}
	}
}

// halfEnded is a context that somebody is ending: how is decided, and nothing else has been done.
func halfEnded(t *testing.T, tw *TimingWheel, e *ending, asked bool) *deadlineContext {
	t.Helper()
	ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
	t.Cleanup(cancel)
	c := ctx.(*deadlineContext)
	if asked {
		require.False(t, ended(c))
	}
	require.True(t, c.end.CompareAndSwap(nil, e))
	c.timer.Stop()
	return c
}

// Whoever asks a context that is being ended does what is still to be done for the answer.
func TestQuestionsWhileAContextIsBeingEnded(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		for name, question := range map[string]func(t *testing.T, c *deadlineContext){
			"Err": func(t *testing.T, c *deadlineContext) {
				s := c.standIn.Load()
				assert.Equal(t, context.DeadlineExceeded, c.Err())
				if s != nil {
					select {
					case <-s.ctx.Done():
					default:
						assert.Fail(t, "an error, and the channel is open")
					}
				}
			},
			"Done":  func(t *testing.T, c *deadlineContext) { assert.True(t, ended(c)) },
			"Cause": func(t *testing.T, c *deadlineContext) { assert.Equal(t, errCause, context.Cause(c)) },
			"a child": func(t *testing.T, c *deadlineContext) {
				child, cancel := context.WithCancel(c)
				defer cancel()
				assertEnded(t, child, context.DeadlineExceeded, errCause)
			},
			"a cause above": func(t *testing.T, c *deadlineContext) {
				assert.Equal(t, errCause, context.Cause(overriding{c, context.Canceled}))
			},
			"AfterFunc": func(t *testing.T, c *deadlineContext) {
				ran := make(chan struct{})
				stop := c.AfterFunc(func() { close(ran) })
				<-ran
				assert.False(t, stop())
			},
			"a child of the wheel": func(t *testing.T, c *deadlineContext) {
				child := &deadlineContext{parent: c}
				c.adopt(child)
				assertEnded(t, child, context.DeadlineExceeded, errCause)
				assert.Nil(t, c.children.Load().members)
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				contextBubble(t, func(t *testing.T, tw *TimingWheel) {
					c := halfEnded(t, tw, timedOutBy(errCause), asked)
					question(t, c)
					assertEnded(t, c, context.DeadlineExceeded, errCause)
				})
			})
		}
	}
}

// slowToEnd makes the end of what hangs onto a context in package context as slow as if that were a
// million children: it comes when proceed is closed.
func slowToEnd(ctx context.Context) (proceed chan struct{}) {
	s := ctx.(*deadlineContext).standIn.Load()
	theirs, lock := s.cancel, make(chan struct{}, 1)
	proceed = make(chan struct{})
	s.cancel = func() {
		lock <- struct{}{}
		<-proceed
		theirs()
		<-lock
	}
	return proceed
}

// A second cancel returns when the first has ended what hangs onto the context in package context,
// not earlier.
func TestSecondCancelWaits(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
		child, cancelChild := context.WithCancel(ctx)
		defer cancelChild()
		proceed := slowToEnd(ctx)
		var returned atomic.Int32
		for range 3 {
			go func() {
				cancel()
				assert.Error(t, child.Err())
				returned.Add(1)
			}()
		}
		synctest.Wait()
		assert.Zero(t, returned.Load())
		close(proceed)
		synctest.Wait()
		assert.EqualValues(t, 3, returned.Load())
	})
}

// The channel of a context is closed before those of its children, as in package context.
func TestChannelsAreClosedFromAbove(t *testing.T) {
	t.Parallel()
	contextBubble(t, func(t *testing.T, tw *TimingWheel) {
		parent, cancel := tw.WithTimeout(context.Background(), time.Hour)
		done := parent.Done()
		child, cancelChild := tw.WithTimeout(parent, time.Minute)
		defer cancelChild()
		require.False(t, ended(child))
		s := child.(*deadlineContext).standIn.Load()
		theirs, closed := s.cancel, false
		s.cancel = func() {
			select {
			case <-done:
				closed = true
			default:
			}
			theirs()
		}
		cancel()
		assert.True(t, ended(child))
		assert.True(t, closed)
	})
}

// endsWhenAsked is a parent that has ended. Its child ends otherwise while the parent is asked how.
type endsWhenAsked struct {
	context.Context
	child *deadlineContext
}

func (e *endsWhenAsked) Err() error {
	e.child.endWith(&timedOut)
	return context.Canceled
}

// Whoever finds the parent ended, and comes second with that, says what the first has set.
func TestContextThatEndsWhileItIsAsked(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	close(done)
	c := &deadlineContext{parent: context.Background()}
	c.tie = &tie{to: &endsWhenAsked{context.Background(), c}, done: done, forget: func() bool { return true }, known: new(families)}
	require.True(t, c.made(&tiedAlone))
	assert.Equal(t, context.DeadlineExceeded, c.Err())
	assertEnded(t, c, context.DeadlineExceeded, context.DeadlineExceeded)
}

// Many end a context: one of them has done it, and it has ended as that one says.
func TestOneEndsTheContext(t *testing.T) {
	t.Parallel()
	for range scaled(3000) {
		c := &deadlineContext{parent: context.Background()}
		var winner atomic.Pointer[ending]
		var won atomic.Int32
		together(2, func(int) {
			e := timedOutBy(errCause)
			if c.finish(e) {
				won.Add(1)
				winner.Store(e)
			}
		})
		require.EqualValues(t, 1, won.Load())
		require.Same(t, winner.Load(), c.look())
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

// Contexts of two wheels and of package context hang below each other and are made, asked,
// cancelled, flushed and outlive a wheel that is stopped, all at once. Whatever happens, the end of
// the root is the end of all, and nothing is left.
func TestRaceContextsOfAllKinds(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]Options{
		"default":    {},
		"inline":     {Executor: Inline, Shards: 2},
		"goroutines": {Executor: Goroutines, Shards: 1},
		"slow":       {SlowAfter: time.Microsecond, ProfileLabels: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts.Tick = 20 * time.Microsecond
			for round := range scaled(60) {
				stays, goes := startWheel(t, opts), startWheel(t, opts)
				root, end := context.WithCancelCause(context.Background())
				shared := []context.Context{root}
				for i := range 6 { // a few that all have children below
					tw := []*TimingWheel{stays, goes}[i%2]
					ctx, cancel := tw.WithTimeout(shared[rand.IntN(len(shared))], time.Duration(1+rand.IntN(400))*10*time.Microsecond)
					defer cancel()
					shared = append(shared, ctx)
				}
				var all sync.WaitGroup
				for k := range 6 {
					all.Go(func() { liveAndDie(t, shared, []*TimingWheel{stays, goes}, uint64(round*10+k)) })
				}
				all.Go(func() {
					for range 5 {
						runtime.Gosched()
						goes.Flush()
					}
					goes.Stop()
				})
				all.Go(func() {
					time.Sleep(rand.N(500 * time.Microsecond))
					end(errCause)
				})
				all.Wait()
				for _, ctx := range shared {
					receive(t, ctx.Done(), "the end")
					assert.Error(t, ctx.Err())
				}
				await(t, "timers are gone", func() bool { return stays.Len() == 0 })
				await(t, "families are gone", func() bool { return noFamilies(stays) && noFamilies(goes) })
			}
		})
	}
}

// liveAndDie makes chains below the shared contexts and ends some of them, from one of each or from
// below. For others it waits.
func liveAndDie(t *testing.T, shared []context.Context, wheels []*TimingWheel, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	for range 20 {
		ctx := shared[random.IntN(len(shared))]
		var chain []context.Context
		var cancels []context.CancelFunc
		for range 1 + random.IntN(4) {
			if random.IntN(4) == 0 {
				ctx = context.WithValue(ctx, testKey(1), 1)
			}
			var cancel context.CancelFunc
			switch n := random.IntN(5); n {
			case 0:
				ctx, cancel = context.WithCancel(ctx)
			case 1:
				ctx, cancel = wheels[0].WithTimeoutCause(ctx, time.Duration(random.IntN(100))*5*time.Microsecond, errChild)
			default:
				ctx, cancel = wheels[n%2].WithTimeout(ctx, time.Hour)
			}
			chain, cancels = append(chain, ctx), append(cancels, cancel)
			if random.IntN(3) == 0 {
				_ = ctx.Done()
			}
		}
		switch k := random.IntN(len(chain)); random.IntN(3) {
		case 0:
			cancels[k]()
			assert.Error(t, chain[k].Err())
		case 1:
			<-ctx.Done() // at the latest that of the root
			assert.Error(t, ctx.Err())
			assert.Error(t, context.Cause(ctx))
		}
		for i, cancel := range cancels {
			cancel()
			assert.True(t, ended(chain[i]))
		}
	}
}
