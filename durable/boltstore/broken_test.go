package boltstore

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
)

// TestBrokenStoreIsTold takes the file away from a store in use, as a disk that is gone does. Calls of the queue
// return that at once, and so do Consume and Take, which wait for messages.
func TestBrokenStoreIsTold(t *testing.T) {
	t.Parallel()
	s, err := Open(filepath.Join(t.TempDir(), "queue.db"), Options{})
	require.NoError(t, err)
	q, err := durable.Open(t.Context(), s, durable.Options{Queue: "orders", Partitions: 2, OnError: func(error) {}})
	require.NoError(t, err)
	defer q.Close()
	taker, err := durable.Open(t.Context(), s, durable.Options{Queue: "orders", OnError: func(error) {}})
	require.NoError(t, err)
	defer taker.Close()
	consumed, taken := make(chan error, 1), make(chan error, 1)
	handled := make(chan struct{}, 1)
	go func() {
		consumed <- q.Consume(t.Context(), func(context.Context, *durable.Delivery) error {
			handled <- struct{}{}
			return nil
		}, durable.ConsumerOptions{})
	}()
	_, err = q.Enqueue(t.Context(), durable.Message{ID: "a"})
	require.NoError(t, err)
	<-handled
	go func() {
		_, err := taker.Take(t.Context())
		taken <- err
	}()
	_, err = q.Enqueue(t.Context(), durable.Message{ID: "later", Delay: time.Hour})
	require.NoError(t, err)
	require.NoError(t, s.file.f.Close())
	inTime := func(ctx context.Context, name string, err error) {
		t.Helper()
		require.NoError(t, ctx.Err(), name)
		require.ErrorIs(t, err, durable.ErrBroken, name)
		assert.ErrorContains(t, err, "close the store and open", name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // far less than Options.RetryFor
	defer cancel()
	_, err = q.Enqueue(ctx, durable.Message{ID: "b"})
	inTime(ctx, "Enqueue", err)
	_, err = q.Cancel(ctx, "later")
	inTime(ctx, "Cancel", err)
	_, err = q.Reschedule(ctx, "later", time.Minute)
	inTime(ctx, "Reschedule", err)
	_, err = q.Get(ctx, "later")
	inTime(ctx, "Get", err)
	for name, returned := range map[string]chan error{"Consume": consumed, "Take": taken} {
		select {
		case err := <-returned:
			inTime(ctx, name, err)
		case <-ctx.Done():
			require.Fail(t, "it does not return", name)
		}
	}
	require.Error(t, s.Close(), "the file is gone")
}
