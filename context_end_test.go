package timingwheel

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Tests of the end of a context: errors, causes, and concurrent cancels.

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

// A context that has ended keeps its error and its cause, and passes them on to the contexts below
// that have not ended.
func TestFirstEndDeterminesErrorAndCause(t *testing.T) {
	t.Parallel()
	// Parent and child have their own deadlines and causes.
	const soon, later, far = time.Second, 2 * time.Second, time.Hour
	cancelledBy := func(cause error) outcome { return outcome{context.Canceled, cause} }
	late := func(cause error) outcome { return outcome{context.DeadlineExceeded, cause} }
	for name, test := range map[string]struct {
		parent, child           time.Duration // 0: context.WithCancelCause
		steps                   string        // p and c cancel parent and child, w waits for a second
		parentEnded, childEnded outcome
		andThen                 string // further steps, which must not change the outcomes
	}{
		"nothing":                                 {parent: far, child: far, andThen: "w"},
		"parent is cancelled":                     {parent: far, child: later, steps: "p", parentEnded: cancelledBy(context.Canceled), childEnded: cancelledBy(context.Canceled), andThen: "cwww"},
		"parent with a cause is cancelled":        {child: soon, steps: "p", parentEnded: cancelledBy(errParent), childEnded: cancelledBy(errParent), andThen: "cwwp"},
		"parent, then the child at once":          {child: far, steps: "pc", parentEnded: cancelledBy(errParent), childEnded: cancelledBy(errParent), andThen: "wc"},
		"child is cancelled with a cause":         {parent: far, steps: "c", childEnded: cancelledBy(errChild), andThen: "w"},
		"child first, then the parent's deadline": {parent: soon, steps: "cw", childEnded: cancelledBy(errChild), parentEnded: late(errParent), andThen: "wpc"},
		"parent's deadline, then the child":       {parent: soon, steps: "wc", childEnded: late(errParent), parentEnded: late(errParent), andThen: "wpc"},
		"child's deadline, then the parent":       {child: soon, steps: "wp", childEnded: late(errChild), parentEnded: cancelledBy(errParent), andThen: "wpc"},
		"child's deadline":                        {child: soon, steps: "w", childEnded: late(errChild), andThen: "wc"},
		"child's deadline, then the parent's":     {parent: later, child: soon, steps: "ww", childEnded: late(errChild), parentEnded: late(errParent), andThen: "wpc"},
		"parent's deadline is earlier":            {parent: soon, child: later, steps: "w", childEnded: late(errParent), parentEnded: late(errParent), andThen: "wpc"},
		"child is cancelled, then the parent":     {parent: later, child: soon, steps: "cp", childEnded: cancelledBy(context.Canceled), parentEnded: cancelledBy(context.Canceled), andThen: "www"},
		"child is cancelled, then parent's cause": {child: soon, steps: "cp", childEnded: cancelledBy(context.Canceled), parentEnded: cancelledBy(errParent), andThen: "www"},
	} {
		for _, around := range []string{"alone", "siblings", "value", "siblings and value"} {
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
					if strings.Contains(around, "value") {
						top = context.WithValue(parent, testKey(1), 1)
					}
					if strings.Contains(around, "siblings") {
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

func TestContextsBelowGetErrorAndCauseOfTheFirstEnd(t *testing.T) {
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

// mapError is an error whose type is not comparable.
type mapError map[string]int

func (mapError) Error() string { return "a map" }

// Errors and causes may have types that are not comparable.
func TestErrorsThatAreNotComparable(t *testing.T) {
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

// Goroutines ask for the cause while the context ends. It is nil first, and then never changes.
func TestRaceCauseIsNilOrFinal(t *testing.T) {
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

// The channel is closed when cancel returns, even if another goroutine cancels at the same time.
func TestRaceSecondCancelWaitsForTheChannel(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	for range scaled(20_000) {
		parent, end := context.WithCancel(context.Background())
		ctx, cancel := tw.WithTimeout(parent, time.Hour)
		done := ctx.Done()
		together(2, func(int) {
			cancel()
			assert.True(t, isClosed(done), "cancel has returned and the channel is open")
		})
		end()
	}
}

// A second cancel returns only after the first cancel has called all dependents of the context.
func TestSecondCancelWaitsForDependents(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
	begun, proceed := make(chan struct{}), make(chan struct{})
	ctx.(*deadlineContext).AfterFunc(func() { // as slow as the end of a million children
		close(begun)
		<-proceed
	})
	go cancel()
	receive(t, begun, "the first cancel")
	time.AfterFunc(20*time.Millisecond, func() { close(proceed) })
	cancel()
	assert.True(t, isClosed(proceed))
}

// The children in package context have ended when cancel returns, even if another goroutine cancels
// at the same time.
func TestRaceSecondCancelWaitsForTheChildren(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	for range scaled(100) {
		ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
		var below []context.Context
		for range 300 {
			child, cancelChild := context.WithCancel(ctx)
			defer cancelChild()
			below = append(below, child)
		}
		together(2, func(int) {
			cancel()
			for _, child := range below {
				if child.Err() == nil {
					assert.Fail(t, "a child has not ended after cancel")
					return
				}
			}
		})
	}
}

// Contexts of two wheels and of package context are made below each other, used, cancelled and
// flushed at the same time, and one of the wheels is stopped. The end of the root ends all
// contexts, and no timer is left.
func TestRaceContextsOfAllKindsEndWithTheRoot(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]Options{
		"default":    {},
		"inline":     {Executor: Inline, Shards: 2},
		"goroutines": {Executor: Goroutines, Shards: 1},
		"around":     {Around: func(_ Call, run func()) { run() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts.Tick = minTick
			for round := range scaled(60) {
				running, stopping := startWheel(t, opts), startWheel(t, opts)
				root, end := context.WithCancelCause(context.Background())
				shared := []context.Context{root}
				for i := range 6 { // parents that the goroutines share
					tw := []*TimingWheel{running, stopping}[i%2]
					ctx, cancel := tw.WithTimeout(shared[rand.IntN(len(shared))], time.Duration(1+rand.IntN(400))*10*time.Microsecond)
					defer cancel()
					shared = append(shared, ctx)
				}
				var all sync.WaitGroup
				for k := range 6 {
					all.Go(func() { useContexts(t, shared, []*TimingWheel{running, stopping}, uint64(round*10+k)) })
				}
				all.Go(func() {
					for range 5 {
						runtime.Gosched()
						stopping.Flush()
					}
					stopping.Stop()
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
				await(t, "the release of all timers", func() bool { return running.Len() == 0 })
			}
		})
	}
}

// useContexts makes chains of contexts below the shared ones. It cancels some of them and waits for
// the end of others.
func useContexts(t *testing.T, shared []context.Context, wheels []*TimingWheel, seed uint64) {
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
			<-ctx.Done() // ends with the root at the latest
			assert.Error(t, ctx.Err())
			assert.Error(t, context.Cause(ctx))
		}
		for i, cancel := range cancels {
			cancel()
			assert.True(t, ended(chain[i]))
		}
	}
}
