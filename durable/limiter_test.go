package durable

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A call that waits for room and gives up does not delay the calls behind it.
func TestLimiterAdmitsInOrderAndSkipsCallsThatGaveUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &callLimiter{calls: 3, bytes: 100, maxWait: time.Minute}
		require.NoError(t, l.acquire(t.Context(), 60))
		assert.False(t, l.tryAcquire(60))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { assert.ErrorIs(t, l.acquire(ctx, 60), context.Canceled) })
		synctest.Wait()
		all.Go(func() { assert.NoError(t, l.acquire(t.Context(), 10)) })
		synctest.Wait()
		assert.False(t, l.tryAcquire(1), "waiting calls come first")
		assert.Equal(t, 1, l.usedCalls)
		cancel()
		all.Wait()
		assert.Equal(t, [2]int{2, 70}, [2]int{l.usedCalls, l.usedBytes})
		require.True(t, l.tryAcquire(30))
		assert.False(t, l.tryAcquire(0), "three calls have a place")
		for _, bytes := range []int{60, 10, 30} {
			l.release(bytes)
		}
		require.True(t, l.tryAcquire(1000), "a call that is too large is admitted alone")
		assert.False(t, l.tryAcquire(0))
		start := time.Now()
		require.ErrorIs(t, l.acquire(t.Context(), 1), ErrBusy)
		assert.Equal(t, time.Minute, time.Since(start))
		all.Go(func() { assert.ErrorIs(t, l.acquire(t.Context(), 1), ErrBusy) })
		synctest.Wait()
		start = time.Now()
		l.outage(1)
		all.Wait()
		require.ErrorIs(t, l.acquire(t.Context(), 1), ErrBusy)
		assert.Zero(t, time.Since(start), "no call waits while the store is unreachable")
		l.outage(-1)
		l.release(1000)
		require.NoError(t, l.acquire(t.Context(), 1))
	})
}
