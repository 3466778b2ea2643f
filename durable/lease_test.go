package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
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
