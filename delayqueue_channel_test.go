package timingwheel

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDelayQueueChannel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q DelayQueue[int]
		ctx, cancel := context.WithCancel(context.Background())
		ch := q.Channel(ctx, 0)
		for i := range 5 {
			q.Push(i, time.Duration(5-i)*msec)
		}
		start := time.Now()
		for i := range 4 {
			require.Equal(t, 4-i, <-ch)
			require.Equal(t, time.Duration(i+1)*msec, time.Since(start))
		}
		cancel()
		_, open := <-ch
		require.False(t, open)
		require.Equal(t, 1, q.Len())
		require.PanicsWithValue(t, "timingwheel: DelayQueue.Channel: size is -3, want 0 or more", func() { q.Channel(ctx, -3) })
		time.Sleep(msec)
		_, open = <-q.Channel(ctx, 8)
		require.False(t, open, "the context has ended before the call")
		require.Equal(t, []int{0}, q.Drain(0))
	})
}

// Nobody receives: the buffer fills, one element is in the feeder's hand, the rest waits. When the
// context ends, what the feeder holds is back in its old place, under its own due time, and its
// handle works.
func TestDelayQueueChannelPutsBack(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 3} {
		synctest.Test(t, func(t *testing.T) {
			var q DelayQueue[int]
			var elements []*Delayed[int]
			for i := range 6 {
				elements = append(elements, q.Push(i, msec)) // all tie
			}
			due, _ := elements[size].Due()
			ctx, cancel := context.WithCancel(context.Background())
			ch := q.Channel(ctx, size)
			time.Sleep(2 * msec)
			synctest.Wait()
			require.Equal(t, 6-size-1, q.Len())
			require.False(t, q.Remove(elements[size]), "it is in the feeder's hand")
			require.False(t, q.Reset(elements[size], 0))
			cancel()
			var got []int
			for v := range ch {
				got = append(got, v)
			}
			require.Len(t, got, size)
			back, ok := elements[size].Due()
			require.True(t, ok)
			require.Equal(t, due, back)
			requireDelayQueue(t, &q)
			require.Equal(t, []int{0, 1, 2, 3, 4, 5}, append(got, q.Drain(0)...))
		})
	}
}

// A head that the feeder puts back is earlier than what a waiting taker knows of.
func TestDelayQueueChannelPutBackWakesTaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q DelayQueue[string]
		ctx, cancel := context.WithCancel(context.Background())
		q.Channel(ctx, 0)
		q.Push("a", 0)
		synctest.Wait()
		out := takeAsync(context.Background(), &q, 1)
		cancel()
		require.Equal(t, taken{"a", 0, nil}, <-out)
	})
}

func TestDelayQueueAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q DelayQueue[int]
		ctx, cancel := context.WithTimeout(context.Background(), 10*msec)
		defer cancel()
		all := q.All(ctx)
		for i := range 20 {
			q.Push(i, time.Duration(i)*msec)
		}
		var got []int
		for v := range all {
			got = append(got, v)
			if len(got) == 3 {
				break
			}
		}
		require.Equal(t, []int{0, 1, 2}, got)
		require.Equal(t, 17, q.Len(), "a break loses nothing")
		for v := range all {
			got = append(got, v)
			if v == 5 {
				time.Sleep(time.Hour) // the context ends meanwhile
			}
		}
		require.Equal(t, []int{0, 1, 2, 3, 4, 5}, got)
		require.Equal(t, 14, q.Len(), "what was due when the context ended stays")
		for range all {
			require.Fail(t, "the context has ended")
		}
	})
}
