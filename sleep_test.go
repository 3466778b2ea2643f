package timingwheel

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSleepReturnsAtItsDeadline(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		begin := time.Now()
		for _, ctx := range []context.Context{context.Background(), t.Context()} {
			for _, d := range []time.Duration{1, ms, 1500 * time.Microsecond, time.Hour, 400 * day} {
				due := roundUp(tw, time.Since(begin)+d)
				require.NoError(t, tw.Sleep(ctx, d))
				assert.Equal(t, due, time.Since(begin), "%v", d)
			}
		}
		before := time.Now()
		for _, d := range []time.Duration{0, -1, math.MinInt64} {
			require.NoError(t, tw.Sleep(t.Context(), d))
		}
		assert.Equal(t, before, time.Now(), "a zero or negative duration took time")
		assert.Zero(t, tw.Len())
	})
}

func TestSleepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		begin := time.Now()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(errCause) })
		assert.Equal(t, context.Canceled, tw.Sleep(ctx, time.Hour), "Sleep must return ctx.Err() and not the cause")
		assert.Equal(t, time.Minute, time.Since(begin))
		assert.Zero(t, tw.Len(), "the timer is still pending")

		for _, d := range []time.Duration{time.Hour, 0, -1} {
			assert.Equal(t, context.Canceled, tw.Sleep(ctx, d), "the context has ended, %v", d)
		}
		short, cancelShort := context.WithTimeout(t.Context(), time.Minute)
		defer cancelShort()
		assert.Equal(t, context.DeadlineExceeded, tw.Sleep(short, math.MaxInt64))
		assert.Equal(t, 2*time.Minute, time.Since(begin))

		for range 100 { // an earlier use of a sleeper must not wake it
			d := rand.N(time.Minute)
			ctx, cancel := tw.WithTimeout(t.Context(), rand.N(time.Minute))
			begin := time.Now()
			if tw.Sleep(ctx, d) == nil {
				assert.GreaterOrEqual(t, time.Since(begin), d)
			} else {
				assert.Error(t, ctx.Err())
				assert.Less(t, time.Since(begin), d+time.Duration(tw.engine.config.ticks.Length()))
			}
			cancel()
		}
		assert.Zero(t, tw.Len())
	})
}

// passed is a context that ends, and lets a Manual wheel's clock pass, when Sleep asks for Done.
type passed struct {
	context.Context
	end context.CancelFunc
	tw  *TimingWheel
}

func (c passed) Done() <-chan struct{} {
	c.tw.Advance(c.tw.Now().Add(time.Minute))
	c.end()
	return c.Context.Done()
}

// If both d has passed and ctx has ended, Sleep returns nil.
func TestSleepReturnsNilIfBothHaveEnded(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true})
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, tw.Sleep(passed{ctx, cancel, tw}, time.Minute))
		require.Equal(t, context.Canceled, tw.Sleep(passed{ctx, cancel, tw}, time.Hour))
		require.Zero(t, tw.Len())
	}
}

// The wheel's Stop wakes all sleepers, on whatever level their timers are, and runs no callback.
func TestStopWakesSleepersAndRunsNoCallback(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		var called atomic.Int64
		call := func() { called.Add(1) }
		errs := make(chan error, 5000) // so many timers take several pages
		for i := range cap(errs) {
			d := time.Hour + rand.N(400*day)
			go func() { errs <- tw.Sleep(context.Background(), d) }()
			timer := tw.AfterFunc(rand.N(400*day)+time.Hour, call)
			if i%3 == 0 {
				timer.Stop()
			}
			if i%100 == 0 {
				tw.ScheduleFunc(Every(time.Hour), call)
				tw.NewChannelTimer(d)
				tw.NewTicker(d)
			}
		}
		pass(time.Minute)
		assert.Empty(t, errs)
		tw.Stop()
		synctest.Wait()
		assert.Len(t, errs, cap(errs), "a call to Sleep has not returned")
		for range len(errs) {
			require.ErrorIs(t, <-errs, ErrStopped)
		}
		tw.Stop()
		ctx, cancel := context.WithCancel(t.Context())
		assert.Equal(t, ErrStopped, tw.Sleep(ctx, ms))
		assert.NoError(t, tw.Sleep(ctx, 0), "a zero duration on a stopped wheel")
		cancel()
		assert.Equal(t, context.Canceled, tw.Sleep(ctx, ms), "the error of the context comes first")
		pass(500 * day)
		assert.Zero(t, called.Load(), "a callback ran on a stopped wheel")
	})
}

// Goroutines begin to sleep and are cancelled while the wheel is being stopped. Each call returns.
func TestRaceSleepReturnsWhenTheWheelStops(t *testing.T) {
	t.Parallel()
	for round := range scaled(300) + 3 {
		tw := startWheel(t, Options{Tick: minTick, Shards: 2, Executor: []Executor{nil, Goroutines, Inline}[round%3]})
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for i := range 20 {
			with := ctx
			if i%2 == 0 {
				with = context.Background()
			}
			all.Go(func() {
				for {
					d := rand.N(100 * time.Microsecond)
					if rand.IntN(4) == 0 {
						d = time.Hour
					}
					begin := time.Now()
					err := tw.Sleep(with, d)
					switch err {
					case nil:
						assert.GreaterOrEqual(t, time.Since(begin), d, "woken early")
						continue
					case context.Canceled:
						assert.Same(t, ctx, with)
					default:
						assert.Equal(t, ErrStopped, err)
					}
					return
				}
			})
		}
		time.Sleep(rand.N(300 * time.Microsecond))
		if rand.IntN(2) == 0 {
			go cancel()
		}
		all.Go(tw.Stop)
		tw.Stop()
		all.Wait()
		cancel()
	}
}
