package storetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
)

// Bench measures a store with batches of [durable.MaxBatch] messages that have bodies of 128 bytes: to put them, and to claim, begin and
// acknowledge them. One operation is one message.
func Bench(b *testing.B, newStore Factory) {
	b.Run("Put", func(b *testing.B) {
		backend := benchQueue(b, newStore)
		for done, seq := 0, uint64(1); done < b.N; seq++ {
			done += benchPut(b, backend, seq, min(durable.MaxBatch, b.N-done))
		}
	})
	b.Run("ClaimBeginAck", func(b *testing.B) {
		backend := benchQueue(b, newStore)
		for done, seq := 0, uint64(1); done < b.N; seq++ {
			done += benchPut(b, backend, seq, min(durable.MaxBatch, b.N-done))
		}
		b.ResetTimer()
		for done := 0; done < b.N; {
			done += benchConsume(b, backend)
		}
	})
}

func benchQueue(b *testing.B, newStore Factory) durable.Backend {
	b.Helper()
	c := config()
	c.Partitions = 1
	backend, err := newStore(b).Store.Open(b.Context(), c)
	require.NoError(b, err)
	b.ReportAllocs()
	b.ResetTimer()
	return backend
}

func benchPut(b *testing.B, backend durable.Backend, seq uint64, n int) int {
	b.Helper()
	put := durable.Put{Producer: "bench", Seq: seq, Items: make([]durable.PutItem, n)}
	body := make([]byte, 128)
	for i := range put.Items {
		put.Items[i] = durable.PutItem{ID: fmt.Sprintf("message-%d-%d", seq, i), Body: body, MaxAttempts: 25}
	}
	_, err := backend.Put(b.Context(), put)
	require.NoError(b, err)
	return n
}

// benchConsume takes one batch through its deliveries, and returns how many messages it was.
func benchConsume(b *testing.B, backend durable.Backend) int {
	b.Helper()
	c, err := backend.Claim(b.Context(), durable.Claim{Horizon: soon, Max: durable.MaxBatch, MaxBytes: manyBytes, Visibility: far})
	require.NoError(b, err)
	require.NotEmpty(b, c.Records)
	for _, op := range []durable.Op{durable.OpBegin, durable.OpAck} {
		outcomes, err := backend.Apply(b.Context(), durable.Batch{Op: op, Visibility: far, Changes: changesOf(c.Records)})
		require.NoError(b, err)
		require.Equal(b, durable.StatusDone, outcomes[0].Status)
	}
	return len(c.Records)
}
