package timingwheel

import (
	"context"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/require"
)

// requireDelayQueue checks the heaps (H1 to H3) and the front taker's duty (D1).
func requireDelayQueue[T any](t *testing.T, q *DelayQueue[T]) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	require.NoError(t, q.heap.Verify(func(e *element[T]) int { return e.index }))
	require.NoError(t, q.takers.Verify(func(w *taker) int { return w.index }))
	if head, ok := q.heap.Min(); ok && q.takers.Len() > 0 {
		require.LessOrEqual(t, q.lookBy, head.due, "D1: nobody looks when the head is due")
	}
}

func TestDelayQueueOrder(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		delays []time.Duration // of elements 0, 1, …
		want   []int
	}{
		"rising":                {[]time.Duration{1, 2, 3}, []int{0, 1, 2}},
		"falling":               {[]time.Duration{3, 2, 1}, []int{2, 1, 0}},
		"ties first in first":   {[]time.Duration{2, 1, 2, 1, 2, 1}, []int{1, 3, 5, 0, 2, 4}},
		"all at once":           {[]time.Duration{0, 0, 0, 0, 0}, []int{0, 1, 2, 3, 4}},
		"negative goes ahead":   {[]time.Duration{0, -1, -msec, math.MinInt64}, []int{3, 2, 1, 0}},
		"never stays":           {[]time.Duration{math.MaxInt64, msec, math.MaxInt64 - 1}, []int{1}},
		"smallest ties on both": {[]time.Duration{math.MinInt64, math.MinInt64}, []int{0, 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var q DelayQueue[int]
				time.Sleep(3 * time.Hour) // the clock does not begin at zero
				for i, d := range tt.delays {
					q.Push(i, d)
					requireDelayQueue(t, &q)
				}
				time.Sleep(msec)
				require.Equal(t, tt.want, q.Drain(0))
				requireDelayQueue(t, &q)
				require.Equal(t, len(tt.delays)-len(tt.want), q.Len())
			})
		})
	}
}

// Never early, for every way out, at each boundary.
func TestDelayQueueNeverEarly(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, 2, msec - 1, msec, time.Hour, 100 * 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			q := NewDelayQueue[time.Duration]()
			q.Push(d, d)
			if d > 0 {
				time.Sleep(d - 1)
				_, ok := q.Poll()
				require.False(t, ok, "%v is early", d)
				require.Nil(t, q.Drain(0), "%v is early", d)
				time.Sleep(time.Nanosecond)
			}
			v, ok := q.Poll()
			require.True(t, ok, "%v is late", d)
			require.Equal(t, d, v)
		})
	}
}

func TestDelayQueueHugeDelaySaturates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q DelayQueue[string]
		q.Push("unused", 0)
		time.Sleep(time.Hour) // so that now+MaxInt64 overflows
		q.Push("never", math.MaxInt64)
		q.PushAt("never at", time.Now().AddDate(3000, 0, 0))
		require.Equal(t, []string{"unused"}, q.Drain(0))
		time.Sleep(200 * 365 * 24 * time.Hour)
		_, ok := q.Poll()
		require.False(t, ok)

		// A taker waits for it without a timer and still sees what comes before it.
		out := takeAsync(context.Background(), &q, 1)
		q.Push("soon", msec)
		require.Equal(t, taken{"soon", msec, nil}, <-out)
	})
}

func TestDelayQueuePushAt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		tests := map[string]time.Time{
			"monotonic, future":  now.Add(5 * msec),
			"monotonic, past":    now.Add(-5 * msec),
			"wall only, future":  now.Add(5 * msec).Round(0),
			"wall only, past":    now.Add(-5 * msec).Round(0),
			"wall only, in UTC":  now.Add(5 * msec).UTC().Round(0),
			"beginning of times": {},
		}
		for name, at := range tests {
			var q DelayQueue[string]
			q.PushAt(name, at)
			_, due, ok := q.Peek()
			require.True(t, ok)
			if !at.IsZero() {
				require.True(t, due.Equal(at), "%s: %v is due at %v", name, at, due)
			}
			if wait := time.Until(at); wait > 0 {
				time.Sleep(wait - 1)
				_, ok = q.Poll()
				require.False(t, ok, "%s: early", name)
				time.Sleep(time.Nanosecond)
			}
			_, ok = q.Poll()
			require.True(t, ok, "%s: late", name)
		}
	})
}

// Due times are on the monotonic clock, however they were given: a step of the wall clock moves
// none. (There are no monotonic readings in a bubble.)
func TestDelayQueueDueIsMonotonic(t *testing.T) {
	t.Parallel()
	var q DelayQueue[int]
	in1h := time.Now().Add(time.Hour)
	for _, e := range []*Delayed[int]{q.PushAt(1, in1h), q.PushAt(2, in1h.Round(0)), q.Push(3, time.Hour)} {
		due, ok := e.Due()
		require.True(t, ok)
		require.False(t, due == due.Round(0), "no monotonic reading")
		require.WithinDuration(t, in1h, due, time.Minute)
	}
	due, _ := q.PushAt(4, in1h).Due()
	require.True(t, due.Equal(in1h), "used as it is")
}

// After the wall clock was stepped by an hour, times of both kinds are due when they say.
func TestDelayQueueWallClockStepped(t *testing.T) {
	t.Parallel()
	var q DelayQueue[int]
	q.Push(0, time.Hour)
	const nsecShift = 30 // of time.Time's first word, which holds the wall clock's seconds above that
	*(*uint64)(unsafe.Pointer(&q.line.Base)) -= 3600 << nsecShift
	in1min := time.Now().Add(time.Minute)
	for _, e := range []*Delayed[int]{q.PushAt(1, in1min), q.PushAt(2, in1min.Round(0)), q.Push(3, time.Minute)} {
		due, ok := e.Due()
		require.True(t, ok)
		require.InDelta(t, time.Minute, time.Until(due), float64(30*time.Second))
	}
}

func TestDelayQueueEmpty(t *testing.T) {
	t.Parallel()
	var q DelayQueue[int]
	_, ok := q.Poll()
	require.False(t, ok)
	_, _, ok = q.Peek()
	require.False(t, ok)
	require.Nil(t, q.Drain(0))
	require.Zero(t, q.Len())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := q.Take(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestDelayQueuePeekLeavesTheHead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q DelayQueue[string]
		q.Push("b", 2*msec)
		q.Push("a", msec)
		for range 2 {
			v, due, ok := q.Peek()
			require.True(t, ok)
			require.Equal(t, "a", v)
			require.Equal(t, msec, time.Until(due))
			require.Equal(t, 2, q.Len())
		}
	})
}

func TestDelayQueueDrainTakesExpiredOnly(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int][]int{-1: {0, 1, 2, 3}, 0: {0, 1, 2, 3}, 1: {0}, 3: {0, 1, 2}, 9: {0, 1, 2, 3}} {
		synctest.Test(t, func(t *testing.T) {
			var q DelayQueue[int]
			for i := range 8 {
				q.Push(i, time.Duration(i)*msec)
			}
			time.Sleep(3 * msec)
			require.Equal(t, want, q.Drain(limit))
			require.Equal(t, 8-len(want), q.Len())
			requireDelayQueue(t, &q)
		})
	}
}

func TestDelayQueueRemove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q, other DelayQueue[int]
		var elements []*Delayed[int]
		for i := range 5 {
			elements = append(elements, q.Push(i, time.Duration(i)*msec))
		}
		time.Sleep(msec)
		require.True(t, q.Remove(elements[1]), "a due one")
		require.True(t, q.Remove(elements[3]), "one that is not due")
		require.False(t, q.Remove(elements[3]), "twice")
		require.Equal(t, []int{0}, q.Drain(0))
		require.False(t, q.Remove(elements[0]), "after it was taken")
		require.False(t, q.Remove(other.Push(7, 0)), "another queue's")
		require.False(t, q.Remove(nil))
		require.False(t, q.Remove(new(Delayed[int])))
		clone := *elements[2]
		require.False(t, q.Remove(&clone), "a copy")
		require.Equal(t, 2, q.Len())
		require.Equal(t, 1, other.Len())
		requireDelayQueue(t, &q)
		time.Sleep(time.Hour)
		require.Equal(t, []int{2, 4}, q.Drain(0))
	})
}

func TestDelayQueueReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q, other DelayQueue[string]
		a, b, c := q.Push("a", 10*msec), q.Push("b", 20*msec), q.Push("c", 30*msec)
		require.True(t, q.Reset(a, 20*msec), "later: now behind b, with which it ties")
		require.True(t, q.Reset(c, msec), "earlier")
		requireDelayQueue(t, &q)
		due, ok := c.Due()
		require.True(t, ok)
		require.Equal(t, msec, time.Until(due))
		time.Sleep(20*msec - 1)
		require.Equal(t, []string{"c"}, q.Drain(0))
		time.Sleep(time.Nanosecond)
		require.Equal(t, []string{"b", "a"}, q.Drain(0))

		for name, e := range map[string]*Delayed[string]{
			"taken": b, "another queue's": other.Push("x", 0), "nil": nil, "zero": {},
		} {
			require.False(t, q.Reset(e, 0), name)
		}
		_, ok = b.Due()
		require.False(t, ok)
		_, ok = (*Delayed[string])(nil).Due()
		require.False(t, ok)
		require.Zero(t, q.Len())
		require.Equal(t, 1, other.Len())

		past := q.Push("past", time.Hour)
		require.True(t, q.Reset(past, math.MinInt64))
		require.Equal(t, []string{"past"}, q.Drain(0))
		never := q.Push("never", 0)
		require.True(t, q.Reset(never, math.MaxInt64))
		time.Sleep(time.Hour)
		require.Empty(t, q.Drain(0))
	})
}

// synctest.Test fails if a goroutine of its bubble stays behind. Abandoned iterators and queues
// have none.
func TestDelayQueueLeavesNoGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), msec)
		defer cancel()
		var q DelayQueue[string]
		q.Push("later", time.Hour)
		for range 10 {
			q.Channel(ctx, 1)
		}
		out := takeAsync(ctx, &q, 10)
		for range 10 {
			require.ErrorIs(t, (<-out).err, context.DeadlineExceeded)
		}
		synctest.Wait()
		require.Zero(t, q.takers.Len())
	})
}

// What has left the queue can be collected although the queue, its other elements and the handle
// live on.
func TestDelayQueueKeepsNoValue(t *testing.T) {
	t.Parallel()
	type payload struct {
		_ [64]byte
		_ *int
	}
	type queue = DelayQueue[*payload]
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ways := map[string]func(q *queue, e *Delayed[*payload]){
		"removed": func(q *queue, e *Delayed[*payload]) { q.Remove(e) },
		"polled":  func(q *queue, _ *Delayed[*payload]) { q.Poll() },
		"drained": func(q *queue, _ *Delayed[*payload]) { q.Drain(1) },
		"taken":   func(q *queue, _ *Delayed[*payload]) { _, _ = q.Take(ctx) },
		"received": func(q *queue, _ *Delayed[*payload]) {
			<-q.Channel(ctx, 0)
		},
	}
	for name, leave := range ways {
		t.Run(name, func(t *testing.T) {
			var q queue
			var rest []*Delayed[*payload]
			push := func(delay time.Duration) (*Delayed[*payload], weak.Pointer[payload]) {
				v := new(payload)
				return q.Push(v, delay), weak.Make(v)
			}
			for range 4 {
				e, _ := push(time.Hour)
				rest = append(rest, e)
			}
			e, value := push(0)
			runtime.GC()
			require.NotNil(t, value.Value())
			leave(&q, e)
			collected(t, value, "the value") // the feeder may be about to leave its frame
			require.Equal(t, len(rest), q.Len())
			runtime.KeepAlive(e)
			runtime.KeepAlive(rest)
		})
	}
}

// The real clock, once.
func TestDelayQueueRealClock(t *testing.T) {
	t.Parallel()
	var q DelayQueue[string]
	start := time.Now()
	q.PushAt("b", start.Add(40*msec))
	q.PushAt("a", start.Add(20*msec))
	for _, want := range []string{"a", "b"} {
		v, err := q.Take(context.Background())
		require.NoError(t, err)
		require.Equal(t, want, v)
	}
	require.GreaterOrEqual(t, time.Since(start), 40*msec)
}
