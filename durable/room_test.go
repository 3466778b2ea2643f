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
func TestRoomAdmitsInOrderAndSkipsCallsThatGaveUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &room{calls: 3, bytes: 100, maxWait: time.Minute}
		require.NoError(t, r.enter(t.Context(), 60))
		assert.False(t, r.tryEnter(60))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { assert.ErrorIs(t, r.enter(ctx, 60), context.Canceled) })
		synctest.Wait()
		all.Go(func() { assert.NoError(t, r.enter(t.Context(), 10)) })
		synctest.Wait()
		assert.False(t, r.tryEnter(1), "waiting calls come first")
		assert.Equal(t, 1, r.usedCalls)
		cancel()
		all.Wait()
		assert.Equal(t, [2]int{2, 70}, [2]int{r.usedCalls, r.usedBytes})
		require.True(t, r.tryEnter(30))
		assert.False(t, r.tryEnter(0), "three calls have a place")
		for _, bytes := range []int{60, 10, 30} {
			r.leave(bytes)
		}
		require.True(t, r.tryEnter(1000), "a call that is too large is admitted alone")
		assert.False(t, r.tryEnter(0))
		start := time.Now()
		require.ErrorIs(t, r.enter(t.Context(), 1), ErrBusy)
		assert.Equal(t, time.Minute, time.Since(start))
		all.Go(func() { assert.ErrorIs(t, r.enter(t.Context(), 1), ErrBusy) })
		synctest.Wait()
		start = time.Now()
		r.outage(1)
		all.Wait()
		require.ErrorIs(t, r.enter(t.Context(), 1), ErrBusy)
		assert.Zero(t, time.Since(start), "no call waits while the store is unreachable")
		r.outage(-1)
		r.leave(1000)
		require.NoError(t, r.enter(t.Context(), 1))
	})
}
