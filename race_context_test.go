package timingwheel

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Contexts of two wheels and of package context hang below each other and are made, asked,
// cancelled, flushed and outlive a wheel that is stopped, all at once. Whatever happens, the end of
// the root is the end of all, and nothing is left.
func TestContextsOfAllKindsAtTheSameTime(t *testing.T) {
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
