package durable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// The body is copied. A call whose caller gave up does not store later contents of the buffer.
func TestBodyIsCopied(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue, f *faulty) {
		f.set(func(string) (error, error) { return errDown, nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		buf := []byte("first")
		_, err := q.Enqueue(ctx, durable.Message{ID: "m", Body: buf})
		require.Error(t, err)
		copy(buf, "XXXXX")
		f.set(func(string) (error, error) { return nil, nil })
		time.Sleep(10 * time.Second)
		r, err := q.Get(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, "first", string(r.Body))
	})
}

// RetryFor limits each call, even if many calls wait for one another.
func TestRetryForBoundsEachCall(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 1, RetryFor: time.Minute}, func(t *testing.T, q *durable.Queue, f *faulty) {
		f.set(func(string) (error, error) { return errDown, nil })
		start := time.Now()
		var all sync.WaitGroup
		var longest atomic.Int64
		for i := range 1000 {
			all.Go(func() {
				_, err := q.Enqueue(t.Context(), durable.Message{ID: fmt.Sprint(i)})
				assert.ErrorIs(t, err, durable.ErrUnavailable)
				longest.Store(max(longest.Load(), int64(time.Since(start))))
			})
		}
		all.Wait()
		assert.Less(t, time.Duration(longest.Load()), 65*time.Second)
	})
}

// A message that is due now does not wait behind prefetched messages that are due later.
func TestDueMessageDoesNotWaitBehindPrefetchedOnes(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue) {
		var late atomic.Int64
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			if d.ID == "now" {
				late.Store(int64(time.Since(d.Due)) + 1)
			}
			return nil
		}, durable.ConsumerOptions{Prefetch: 2048})
		ms := make([]durable.Message, 3000) // 1500 per second for two seconds
		for i := range ms {
			ms[i].Delay = 1500*time.Millisecond + time.Duration(i)*time.Second/2000
		}
		_, err := q.EnqueueBatch(t.Context(), ms)
		require.NoError(t, err)
		time.Sleep(1100 * time.Millisecond)
		enqueue(t, q, "now", 0)
		time.Sleep(5 * time.Second)
		assert.Positive(t, late.Load())
		assert.Less(t, time.Duration(late.Load()), 20*time.Millisecond)
		stop()
	})
}

// Messages that are cancelled after they were claimed do not occupy Prefetch.
func TestCancelledMessagesMakeRoomForDueOnes(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue) {
		var got deliveries
		start := time.Now()
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error { got.add(start, d); return nil },
			durable.ConsumerOptions{Prefetch: 64, Horizon: time.Hour})
		enqueue(t, q, "m", 50*time.Minute)
		for range 100 {
			_, err := q.Reschedule(t.Context(), "m", 50*time.Minute)
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		s, _ := q.Stats(t.Context())
		t.Logf("prefetched %d, scheduled %d in flight %d", s.Prefetched, s.Scheduled, s.InFlight)
		enqueue(t, q, "now", 0)
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"now"}, got.ids())
		stop()
	})
}

// OnError may call methods of the queue.
func TestOnErrorMayCallTheQueue(t *testing.T) {
	t.Parallel()
	f := &faulty{Store: memstore.New(memstore.Options{})}
	var q *durable.Queue
	var reported sync.Once
	done := make(chan struct{})
	q = open(t, f, durable.Options{Partitions: 1, OnError: func(err error) {
		if errors.Is(err, durable.ErrLeaseLost) {
			reported.Do(func() { _, _ = q.Stats(context.Background()); close(done) })
		}
	}})
	defer q.Close()
	stop := consume(t, q, func(context.Context, *durable.Delivery) error {
		f.set(failing("Extend", errDown))
		select {
		case <-done: // not ctx, which may already have ended if the handler starts late
		case <-t.Context().Done():
		}
		return nil
	}, durable.ConsumerOptions{Visibility: 400 * time.Millisecond})
	enqueue(t, q, "m", 0)
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("OnError deadlocks in Stats")
	}
	f.set(working)
	stop()
}

// One message may always be claimed, even if it is larger than PrefetchBytes.
func TestMessageLargerThanPrefetchBytesIsDelivered(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 8}, func(t *testing.T, q *durable.Queue) {
		var got deliveries
		start := time.Now()
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error { got.add(start, d); return nil }, durable.ConsumerOptions{PrefetchBytes: 7})
		enqueue(t, q, "m", 0)
		time.Sleep(time.Minute)
		assert.Len(t, got.ids(), 1)
		stop()
	})
}

// A batch that was stored succeeds, even if its context has just ended.
func TestEnqueueBatchThatWasStoredSucceedsAfterItsContext(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue, f *faulty) {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		for range 200 {
			ctx, cancel = context.WithCancel(t.Context())
			f.set(func(string) (error, error) { cancel(); return nil, nil })
			_, err := q.EnqueueBatch(ctx, []durable.Message{{}})
			if err != nil && bytes.Contains([]byte(err.Error()), []byte(" 0 messages")) {
				n++
			}
		}
		cancel()
		_ = ctx
		assert.Zero(t, n, "batches that were stored completely and returned an error")
	})
}

// A handler that extends its lease by a short time does not lose its message.
func TestExtendInAHandlerDoesNotShorten(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 1, OnError: func(error) {}}, func(t *testing.T, q *durable.Queue) {
		var cause atomic.Value
		stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
			assert.NoError(t, d.Extend(ctx, 7*time.Second))
			select {
			case <-ctx.Done():
				cause.Store(context.Cause(ctx))
			case <-time.After(time.Minute):
			}
			return nil
		}, durable.ConsumerOptions{Visibility: 30 * time.Second})
		enqueue(t, q, "m", 0)
		time.Sleep(2 * time.Minute)
		assert.Nil(t, cause.Load())
		stop()
	})
}

func TestCancelAnswersCancelledIfItsReplyWasLost(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue, f *faulty) {
		enqueue(t, q, "m", time.Hour)
		var n atomic.Int64
		f.set(func(string) (error, error) {
			if n.Add(1) == 1 {
				return nil, errDown
			}
			return nil, nil
		})
		r, err := q.Cancel(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, durable.ResultCancelled, r)
	})
}

// A delay is never negative, however large its maximum is.
func TestExponentialDoesNotOverflow(t *testing.T) {
	t.Parallel()
	b := durable.Exponential(time.Second, 1<<63-1)
	for n := range 64 {
		assert.Positive(t, b(&durable.Delivery{Attempts: n}, assert.AnError), "attempt %d", n)
	}
}

// The replies to an Ack are lost for four seconds. The lease is kept, and no lost lease is
// reported.
func TestLeaseIsKeptWhileAnAckIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New(memstore.Options{})}
		var lost atomic.Int64
		q := open(t, f, durable.Options{Partitions: 1, OnError: func(err error) {
			if errors.Is(err, durable.ErrLeaseLost) {
				lost.Add(1)
			}
		}})
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{Visibility: 8 * time.Second})
		var n atomic.Int64
		f.set(func(name string) (error, error) {
			if name == "Ack" && n.Add(1) < 12 { // takes effect, but replies are lost for four seconds
				return nil, errDown
			}
			return nil, nil
		})
		enqueue(t, q, "m", 0)
		time.Sleep(30 * time.Second)
		s, _ := q.Stats(t.Context())
		assert.EqualValues(t, 1, s.Acked)
		assert.Zero(t, lost.Load(), "reports of ErrLeaseLost")
		stop()
		q.Close()
		_ = f.Close()
		synctest.Wait()
	})
}
