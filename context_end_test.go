package timingwheel

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Tests of the end of a context: errors, causes, and concurrent cancels.

var (
	errParent = errors.New("of the parent")
	errChild  = errors.New("of the child")
)

// errMap has a type that is not comparable.
var errMap error = mapError{"odd": 1}

// outcome is how a context has ended.
type outcome struct{ err, cause error }

// mapError is an error whose type is not comparable.
type mapError map[string]int

func (mapError) Error() string { return "a map" }

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
