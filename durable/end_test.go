package durable_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// runtime.Goexit in a handler, as called by FailNow of a test, is a failed attempt.
func TestGoexitOfAHandlerIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		var n atomic.Int64
		stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
			if n.Add(1) == 1 {
				runtime.Goexit()
			}
			return nil
		}, durable.ConsumerOptions{Concurrency: 2})
		enqueue(t, q, "m", 0)
		time.Sleep(time.Minute)
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 2, n.Load(), "the message is redelivered within a minute")
		assert.Zero(t, s.InFlight, "no consumer holds the message")
		stop()
	})
}

// When Consume returns, every message that it has prefetched is scheduled again.
func TestConsumeReleasesAllMessagesBeforeItReturns(t *testing.T) {
	t.Parallel()
	for range testscale.Size(4) {
		func() {
			q := open(t, memstore.New(memstore.Options{}), durable.Options{Partitions: 4, OnError: func(error) {}})
			defer q.Close()
			ms := make([]durable.Message, 11000)
			for i := range ms {
				ms[i].Delay = 30 * time.Minute
			}
			_, err := q.EnqueueBatch(t.Context(), ms)
			require.NoError(t, err)
			stop := consume(t, q, func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{Horizon: time.Hour})
			require.Eventually(t, func() bool { s, _ := q.Stats(t.Context()); return s.Prefetched == 11000 }, time.Minute, 10*time.Millisecond)
			stop()
			s, err := q.Stats(t.Context())
			require.NoError(t, err)
			assert.Zero(t, s.InFlight, "Consume has released all messages")
		}()
	}
}

// Consume ends in bounded time while the store is unreachable.
func TestConsumeEndsInAnOutage(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 1, RetryFor: time.Minute}, func(t *testing.T, q *durable.Queue, f *faulty) {
		ms := make([]durable.Message, 4096)
		for i := range ms {
			ms[i].Delay = 30 * time.Minute
		}
		_, err := q.EnqueueBatch(t.Context(), ms)
		require.NoError(t, err)
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{Horizon: time.Hour})
		time.Sleep(5 * time.Second)
		f.set(func(string) (error, error) { return errDown, nil })
		start := time.Now()
		stop()
		assert.Less(t, time.Since(start), 70*time.Second)
	})
}

// Deliveries of Take that are never settled are dropped when their leases expire. The message
// becomes a suspect, so the test is not parallel.
func TestUnsettledDeliveriesAreForgotten(t *testing.T) {
	bubble(t, durable.Options{Partitions: 1, OnError: func(error) {}}, func(t *testing.T, q *durable.Queue) {
		r := receiver(t, q, durable.ConsumerOptions{Visibility: time.Second, MaxCrashes: 1 << 30})
		enqueue(t, q, "m", 0)
		for range 100 {
			take(t, r)
		}
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.LessOrEqual(t, s.Firing, 2, "one message")
	})
}

// Consume returns nil if its context has ended, and ErrClosed after Shutdown.
func TestConsumeReturnsErrClosedAfterShutdown(t *testing.T) {
	t.Parallel()
	nils := 0
	for range 300 {
		q := open(t, memstore.New(memstore.Options{}), durable.Options{Partitions: 1, OnError: func(error) {}})
		done := make(chan error, 1)
		go func() {
			done <- q.Consume(context.Background(), func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{Concurrency: 1})
		}()
		time.Sleep(time.Millisecond)
		require.NoError(t, q.Shutdown(context.Background()))
		if <-done == nil {
			nils++
		}
	}
	assert.Zero(t, nils, "calls, of 300, that returned nil although their context has not ended")
}

type badError struct{ text string }

func (e *badError) Error() string { return e.text }

func TestPanicInErrorMethodIsRecovered(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { var e *badError; return e }, durable.ConsumerOptions{})
		enqueue(t, q, "m", 0)
		time.Sleep(time.Second)
		stop()
	})
}

// An Ack succeeds while the consumer of its receiver ends because Take was not called for a while.
func TestAckSucceedsWhileAnIdleReceiverEnds(t *testing.T) {
	t.Parallel()
	q := open(t, memstore.New(memstore.Options{}), durable.Options{Partitions: 1, OnError: func(error) {}})
	r := receiver(t, q, durable.ConsumerOptions{Membership: 500 * time.Millisecond})
	var ds []*durable.Delivery
	for i := range 40 {
		enqueue(t, q, fmt.Sprint(i), 0)
	}
	for range 40 {
		d, err := r.Take(t.Context())
		require.NoError(t, err)
		ds = append(ds, d)
	}
	var all sync.WaitGroup
	for i, d := range ds {
		all.Go(func() {
			time.Sleep(400*time.Millisecond + time.Duration(i)*15*time.Millisecond)
			assert.NoError(t, d.Ack(context.Background()))
		})
	}
	all.Wait()
	q.Close()
}

// Consume ends while messages have begun ahead of their due times. The rounds end at different
// points of the last two milliseconds, on the wall clock.
func TestConsumeEndsWhileMessagesWaitForTheirDueTimes(t *testing.T) {
	t.Parallel()
	round := func(i int) {
		st := memstore.New(memstore.Options{})
		q := open(t, st, durable.Options{Partitions: 1, OnError: func(error) {}})
		defer q.Close()
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { return nil },
			durable.ConsumerOptions{Concurrency: 8, Visibility: time.Hour, Membership: time.Hour})
		for k := range 8 {
			_, err := q.Enqueue(t.Context(), durable.Message{ID: fmt.Sprint(k), Delay: 20 * time.Millisecond})
			assert.NoError(t, err)
		}
		time.Sleep(18*time.Millisecond + time.Duration(i%30)*100*time.Microsecond)
		stop()
		s, err := q.Stats(context.Background())
		assert.NoError(t, err)
		assert.Zero(t, s.InFlight, "round %d", i)
	}
	const rounds, together = 150, 10 // most of a round is waiting
	var all sync.WaitGroup
	for first := range together {
		all.Go(func() {
			for i := first; i < rounds; i += together {
				round(i)
			}
		})
	}
	all.Wait()
}

// Shutdown in a handler is rejected, because it would wait for itself, and the queue continues. A
// handler may shut down another queue.
func TestShutdownInAHandlerIsRefused(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		other := open(t, memstore.New(memstore.Options{}), durable.Options{})
		n := 0
		stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
			n++
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			start := time.Now()
			err := q.Shutdown(ctx)
			assert.ErrorIs(t, err, durable.ErrInvalid)
			assert.ErrorContains(t, err, "belongs to a handler")
			assert.Zero(t, time.Since(start), "Shutdown returns immediately")
			assert.NoError(t, other.Shutdown(ctx))
			return nil
		}, durable.ConsumerOptions{Concurrency: 1})
		enqueue(t, q, "a", 0)
		enqueue(t, q, "b", time.Second)
		time.Sleep(time.Minute)
		stop()
		assert.Equal(t, 2, n)
		require.NoError(t, q.Shutdown(t.Context()))
	})
}

// Consume ends while messages begin ahead of their due times. None is handled before it is due.
func TestNoMessageIsEarlyWhenItsConsumerEnds(t *testing.T) {
	t.Parallel()
	for range 100 {
		var end context.CancelFunc
		options := durable.Options{Partitions: 1, OnEvent: func(e durable.Event) {
			if e.Kind == durable.EventBegun {
				end()
				for range 20 {
					runtime.Gosched() // the workers may see the end later than the dispatcher
				}
			}
		}}
		bubble(t, options, func(t *testing.T, q *durable.Queue) {
			ctx, cancel := context.WithCancel(t.Context())
			end = cancel
			for range 20 {
				enqueue(t, q, "", time.Second)
			}
			require.NoError(t, q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error {
				assert.False(t, time.Now().Before(d.Due), "early")
				return nil
			}, durable.ConsumerOptions{}))
		})
	}
}
