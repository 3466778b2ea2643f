package timingwheel

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The Stop of a wheel wakes those who sleep, wherever their timers stand, and calls nothing else.
func TestStopWakesSleepersAndNobodyElse(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		var called atomic.Int64
		call := func() { called.Add(1) }
		errs := make(chan error, 5000) // several pages of the slab
		for i := range cap(errs) {
			d := time.Hour + rand.N(400*oneDay)
			go func() { errs <- tw.Sleep(context.Background(), d) }()
			timer := tw.AfterFunc(rand.N(400*oneDay)+time.Hour, call)
			if i%3 == 0 {
				timer.Stop()
			}
			if i%100 == 0 {
				tw.ScheduleFunc(Every(time.Hour), call)
				tw.NewTimer(d)
				tw.NewTicker(d)
			}
		}
		pass(time.Minute)
		assert.Empty(t, errs)
		tw.Stop()
		synctest.Wait()
		assert.Len(t, errs, cap(errs), "somebody sleeps on")
		for range len(errs) {
			require.ErrorIs(t, <-errs, ErrStopped)
		}
		tw.Stop()
		pass(500 * oneDay)
		assert.Zero(t, called.Load(), "a callback of a stopped wheel")
	})
}

// A flush wakes those who sleep, as it does all that waits.
func TestSleepersAreFlushed(t *testing.T) {
	t.Parallel()
	eachChannelShape(t, func(t *testing.T, tw *TimingWheel) {
		slept := make(chan error, 1)
		go func() { slept <- tw.Sleep(t.Context(), time.Hour) }()
		synctest.Wait()
		assert.Equal(t, 1, tw.Flush())
		assert.NoError(t, <-slept)
	})
}

// Goroutines sleep, are cancelled, and fall asleep while the wheel is being stopped. Each returns,
// and a wheel that is stopped is left without sleepers.
func TestRaceSleepAndStopOfTheWheel(t *testing.T) {
	t.Parallel()
	for range scaled(300) + 3 {
		tw := startWheel(t, Options{Tick: 10 * time.Microsecond, Shards: 2})
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
