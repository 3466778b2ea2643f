package durable_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// A message that was given up while the answers to its begin were lost is given back when one comes: nobody crashed.
func TestBeginThatIsAnsweredTooLate(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue, f *faulty) {
		start := time.Now()
		f.set(func(name string) (error, error) {
			if (name == "Begin" || name == "Extend") && time.Since(start) < 4*time.Second {
				return nil, errDown
			}
			return nil, nil
		})
		var got deliveries
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error { got.add(start, d); return nil },
			durable.ConsumerOptions{Visibility: 2 * time.Second})
		enqueue(t, q, "m", 0)
		time.Sleep(time.Minute)
		stop()
		require.Len(t, got.list(), 1)
		assert.Zero(t, got.list()[0].crashes)
	})
}

// A message that is due and waits for a handler keeps its lease, however long that takes.
func TestDueMessageKeepsItsLeaseWhileItWaits(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue) {
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { time.Sleep(20 * time.Second); return nil },
			durable.ConsumerOptions{Concurrency: 1, Visibility: 2 * time.Second})
		enqueue(t, q, "a", 0)
		enqueue(t, q, "b", time.Second)
		time.Sleep(2 * time.Second)
		before, err := q.Get(t.Context(), "b")
		require.NoError(t, err)
		require.Equal(t, durable.StateLeased, before.State)
		time.Sleep(15 * time.Second)
		after, err := q.Get(t.Context(), "b")
		require.NoError(t, err)
		assert.Equal(t, before.Token, after.Token, "it was not claimed again")
		stop()
	})
}

// lateBackend begins nothing for a while.
type lateBackend struct {
	driver.Backend
	until time.Time
}

func (b lateBackend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	if batch.Op == driver.OpBegin && time.Now().Before(b.until) {
		return nil, durable.ErrUnavailable
	}
	return b.Backend.Apply(ctx, batch)
}

// A message that has begun late has its lease all the same.
func TestMessageThatBeginsLateHasItsLease(t *testing.T) {
	t.Parallel()
	late := func(b driver.Backend) driver.Backend { return lateBackend{b, time.Now().Add(10 * time.Second)} }
	bubbleOf(t, late, durable.Options{RetryFor: time.Minute, OnError: func(error) {}}, func(t *testing.T, q *durable.Queue) {
		enqueue(t, q, "a", time.Second)
		d, err := receiver(t, q, durable.ConsumerOptions{Visibility: 30 * time.Second}).Take(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Millisecond)
		r, err := q.Get(t.Context(), "a")
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Until(r.LeaseEnd), 29*time.Second)
		require.NoError(t, d.Ack(t.Context()))
	})
}

// The lease of a claim is moved only where what is left of it is too short when the message begins.
func TestShortLeaseIsMoved(t *testing.T) {
	t.Parallel()
	const visibility = 8 * time.Second
	calls := &watchedCalls{}
	watch(t, calls, 1, func(t *testing.T, q *durable.Queue) {
		var left []time.Duration
		stop := consume(t, q, func(ctx context.Context, d *durable.Delivery) error {
			r, err := q.Get(ctx, d.ID)
			assert.NoError(t, err)
			left = append(left, time.Until(r.LeaseEnd))
			time.Sleep(3 * time.Second)
			return nil
		}, durable.ConsumerOptions{Concurrency: 1, Visibility: visibility})
		enqueue(t, q, "a", time.Second)
		enqueue(t, q, "b", time.Second+time.Millisecond)
		time.Sleep(time.Minute)
		stop()
		require.Len(t, left, 2)
		for _, l := range left {
			assert.GreaterOrEqual(t, l, visibility)
			assert.LessOrEqual(t, l, visibility+500*time.Millisecond)
		}
		assert.Equal(t, 1, calls.moved, "that of the message that had to wait")
	})
}

// A message begins after the store's clock was set ahead, past the end of its lease: it is extended, and nobody else gets it.
func TestClockIsSetAheadBeforeABegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		st := memstore.New(memstore.Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
		q := open(t, st, durable.Options{Partitions: 1})
		var n atomic.Int64
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { n.Add(1); time.Sleep(5 * time.Second); return nil }, durable.ConsumerOptions{})
		enqueue(t, q, "a", 1300*time.Millisecond)
		time.Sleep(1290 * time.Millisecond)
		ahead.Store(int64(time.Hour))
		time.Sleep(time.Minute)
		stop()
		assert.EqualValues(t, 1, n.Load())
		q.Close()
		assert.NoError(t, st.Close())
		synctest.Wait()
	})
}
