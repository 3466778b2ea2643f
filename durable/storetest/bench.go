package storetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Bench measures a store with batches of [driver.MaxBatch] messages with bodies of 128 bytes:
// storing them, and claiming, beginning and acknowledging them, from one goroutine. One operation
// is one message. Module durable/bench measures the whole queue with each store.
func Bench(b *testing.B, newStore Factory) {
	b.Run("Put", func(b *testing.B) {
		backend := benchQueue(b, newStore)
		for done, seq := 0, uint64(1); done < b.N; seq++ {
			done += benchPut(b, backend, seq, min(driver.MaxBatch, b.N-done))
		}
	})
	b.Run("ClaimBeginAck", func(b *testing.B) {
		backend := benchQueue(b, newStore)
		for done, seq := 0, uint64(1); done < b.N; seq++ {
			done += benchPut(b, backend, seq, min(driver.MaxBatch, b.N-done))
		}
		b.ResetTimer()
		for done := 0; done < b.N; {
			done += benchConsume(b, backend)
		}
	})
}

func benchQueue(b *testing.B, newStore Factory) driver.Backend {
	b.Helper()
	c := config()
	c.Partitions = 1
	backend, err := newStore(b).Store.Open(b.Context(), c)
	require.NoError(b, err)
	b.ReportAllocs()
	b.ResetTimer()
	return backend
}

func benchPut(b *testing.B, backend driver.Backend, seq uint64, n int) int {
	b.Helper()
	put := driver.Put{Items: make([]driver.PutItem, n)}
	body := make([]byte, 128)
	for i := range put.Items {
		put.Items[i] = driver.PutItem{ID: fmt.Sprintf("message-%d-%d", seq, i), Body: body,
			MaxAttempts: 25}
	}
	_, err := backend.Put(b.Context(), put)
	require.NoError(b, err)
	return n
}

// benchConsume delivers one batch and returns the number of its messages.
func benchConsume(b *testing.B, backend driver.Backend) int {
	b.Helper()
	c, err := backend.Claim(b.Context(),
		driver.Claim{Horizon: soon, Max: driver.MaxBatch, MaxBytes: manyBytes, Visibility: far})
	require.NoError(b, err)
	require.NotEmpty(b, c.Records)
	for _, op := range []driver.Op{driver.OpBegin, driver.OpAck} {
		outcomes, err := backend.Apply(b.Context(),
			driver.Batch{Op: op, Visibility: far, Changes: changesOf(c.Records)})
		require.NoError(b, err)
		require.Equal(b, driver.StatusDone, outcomes[0].Status)
	}
	return len(c.Records)
}
