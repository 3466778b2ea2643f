package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
)

// The buckets of lateness hold each delivery, in order, and Stats counts the consumers of all
// processes.
func TestStatsOfLatenessAndConsumers(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 2}, func(t *testing.T, q *durable.Queue) {
		late := []time.Duration{0, time.Second, time.Minute, time.Minute, 3 * time.Hour}
		for _, d := range late {
			_, err := q.Enqueue(t.Context(), durable.Message{At: time.Now().Add(4*time.Hour - d)})
			require.NoError(t, err)
		}
		time.Sleep(4 * time.Hour)
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		require.Zero(t, stats.Consumers)
		require.Empty(t, stats.Lateness.Buckets)
		handler := func(context.Context, *durable.Delivery) error { return nil }
		stops := []func(){consume(t, q, handler, durable.ConsumerOptions{}), consume(t, q, handler, durable.ConsumerOptions{})}
		time.Sleep(time.Minute)
		stats, err = q.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, stats.Consumers)
		l := stats.Lateness
		require.EqualValues(t, 5, l.Count)
		assert.InDelta(t, (time.Hour + 121*time.Second).Seconds(), l.Sum.Seconds(), 1, "3 hours count as one")
		sum, last := int64(0), time.Duration(-1)
		for _, b := range l.Buckets {
			require.Positive(t, b.Count)
			require.Greater(t, b.UpTo, last)
			sum, last = sum+b.Count, b.UpTo
		}
		require.EqualValues(t, 5, sum)
		require.InEpsilon(t, time.Hour, last, 0.01)
		for _, stop := range stops {
			stop()
		}
		stats, err = q.Stats(t.Context())
		require.NoError(t, err)
		require.Zero(t, stats.Consumers)
	})
}
