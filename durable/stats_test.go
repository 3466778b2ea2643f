package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
)

// Lateness counts each delivery, and Stats counts the consumers of all processes.
func TestStatsCountsLatenessAndConsumers(t *testing.T) {
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
		require.Zero(t, stats.Lateness.Histogram.Count())
		handler := func(context.Context, *durable.Delivery) error { return nil }
		stops := []func(){consume(t, q, handler, durable.ConsumerOptions{}), consume(t, q, handler, durable.ConsumerOptions{})}
		time.Sleep(time.Minute)
		stats, err = q.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, stats.Consumers)
		l := stats.Lateness
		assert.InDelta(t, (3*time.Hour + 121*time.Second).Seconds(), l.Histogram.Sum.Seconds(), 1)
		require.EqualValues(t, 5, l.Histogram.Count())
		require.InDelta(t, (3 * time.Hour).Seconds(), l.Max.Seconds(), 1)
		for _, stop := range stops {
			stop()
		}
		stats, err = q.Stats(t.Context())
		require.NoError(t, err)
		require.Zero(t, stats.Consumers)
	})
}

// CountDue adds up the partitions, and rejects durations that stores need not accept.
func TestCountDueSumsPartitions(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 4}, func(t *testing.T, q *durable.Queue) {
		for i := range 100 {
			_, err := q.Enqueue(t.Context(), durable.Message{Delay: time.Duration(i) * time.Minute})
			require.NoError(t, err)
		}
		n, err := q.CountDue(t.Context(), 0, 10*time.Minute, 90*time.Minute-1, 90*time.Minute, 1<<63-1)
		require.NoError(t, err)
		require.Equal(t, []int64{1, 11, 91, 91, 100}, n, "durations are rounded up")
		for _, within := range [][]time.Duration{nil, {-1}, {time.Second, time.Second}, {2, 1}, make([]time.Duration, 64+1)} {
			_, err := q.CountDue(t.Context(), within...)
			require.ErrorIs(t, err, durable.ErrInvalid, "%v", within)
		}
		q.Close()
		_, err = q.CountDue(t.Context(), 0)
		require.ErrorIs(t, err, durable.ErrClosed)
	})
}
