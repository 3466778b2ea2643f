package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
)

// The histogram of lateness has each delivery, and Stats counts the consumers of all
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
		require.Zero(t, stats.Lateness.Histogram.Count())
		handler := func(context.Context, *durable.Delivery) error { return nil }
		stops := []func(){consume(t, q, handler, durable.ConsumerOptions{}), consume(t, q, handler, durable.ConsumerOptions{})}
		time.Sleep(time.Minute)
		stats, err = q.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, stats.Consumers)
		l := stats.Lateness
		require.EqualValues(t, 5, l.Count)
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
