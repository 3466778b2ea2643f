package durable_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// BenchmarkConsume delivers due messages from a cheap store, so that it measures the overhead of
// the queue.
func BenchmarkConsume(b *testing.B) {
	q, err := durable.Open(b.Context(), memstore.New(memstore.Options{}), durable.Options{Partitions: 4})
	require.NoError(b, err)
	defer q.Close()
	messages := make([]durable.Message, b.N)
	for len(messages) > 0 {
		n := min(1000, len(messages))
		_, err := q.EnqueueBatch(b.Context(), messages[:n])
		require.NoError(b, err)
		messages = messages[n:]
	}
	ctx, cancel := context.WithCancel(b.Context())
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	err = q.Consume(ctx, func(context.Context, *durable.Delivery) error {
		if left.Add(-1) == 0 {
			cancel()
		}
		return nil
	}, durable.ConsumerOptions{})
	require.NoError(b, err)
}
