package durable_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
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
	durable.Backend
	until time.Time
}

func (b lateBackend) Apply(ctx context.Context, batch durable.Batch) ([]durable.Outcome, error) {
	if batch.Op == durable.OpBegin && time.Now().Before(b.until) {
		return nil, durable.ErrUnavailable
	}
	return b.Backend.Apply(ctx, batch)
}

// A message that has begun late has its lease all the same.
func TestMessageThatBeginsLateHasItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(memstore.Options{})
		defer func() { assert.NoError(t, st.Close()) }()
		until := time.Now().Add(10 * time.Second)
		q := open(t, wrapped{st, func(b durable.Backend) durable.Backend { return lateBackend{b, until} }}, durable.Options{RetryFor: time.Minute, OnError: func(error) {}})
		require.NoError(t, q.SetTakeOptions(durable.ConsumerOptions{Visibility: 30 * time.Second}))
		enqueue(t, q, "a", time.Second)
		d, err := q.Take(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Millisecond)
		r, err := q.Get(t.Context(), "a")
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Until(r.LeaseEnd.Time()), 29*time.Second)
		require.NoError(t, d.Ack(t.Context()))
		q.Close()
		synctest.Wait()
	})
}
