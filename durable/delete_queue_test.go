package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// A queue with consumers is deleted only by force. Its consumers end with ErrNoQueue within a
// second, although the handler of one of them still runs, and all calls return ErrNoQueue.
func TestConsumersOfADeletedQueueEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		quiet := durable.Options{OnError: func(err error) { // only the running message is reported
			assert.ErrorContains(t, err, "message \"running\"")
		}}
		q, other := open(t, store, quiet), open(t, store, durable.Options{Queue: "other"})
		enqueue(t, other, "kept", time.Hour)
		begun, consumed, taken := make(chan struct{}), make(chan error), make(chan error, 1)
		go func() {
			consumed <- q.Consume(t.Context(), func(context.Context, *durable.Delivery) error {
				close(begun)
				time.Sleep(time.Minute)
				return nil
			}, durable.ConsumerOptions{Grace: time.Hour})
		}()
		enqueue(t, q, "running", 0)
		<-begun
		go func() { _, err := q.Take(t.Context()); taken <- err }()
		enqueue(t, q, "claimed", 300*time.Millisecond)
		enqueue(t, q, "late", time.Hour)
		time.Sleep(100 * time.Millisecond)
		consumers, err := q.Consumers(t.Context())
		require.NoError(t, err)
		require.Len(t, consumers, 2)

		err = durable.DeleteQueue(t.Context(), store, "default", false)
		require.ErrorIs(t, err, durable.ErrInUse)
		require.ErrorContains(t, err, fmt.Sprintf("process %d on %q is the first of 2", consumers[0].PID, consumers[0].Host))
		require.NoError(t, durable.DeleteQueue(t.Context(), store, "default", true))
		start := time.Now()
		require.ErrorIs(t, <-taken, durable.ErrNoQueue)
		assert.LessOrEqual(t, time.Since(start), time.Second)
		require.ErrorIs(t, <-consumed, durable.ErrNoQueue)
		assert.LessOrEqual(t, time.Since(start), time.Minute, "Consume waits for the handler")
		_, err = q.Enqueue(t.Context(), durable.Message{})
		require.ErrorIs(t, err, durable.ErrNoQueue)
		_, err = q.Cancel(t.Context(), "late")
		require.ErrorIs(t, err, durable.ErrNoQueue)
		_, err = q.Stats(t.Context())
		require.ErrorIs(t, err, durable.ErrNoQueue)
		require.ErrorIs(t, q.Healthy(t.Context()), durable.ErrNoQueue)
		require.ErrorIs(t, q.Consume(t.Context(), func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{}), durable.ErrNoQueue)

		names, err := durable.Queues(t.Context(), store)
		require.NoError(t, err)
		require.Equal(t, []string{"other"}, names)
		again := open(t, store, durable.Options{Partitions: 3})
		_, err = q.Enqueue(t.Context(), durable.Message{})
		require.ErrorIs(t, err, durable.ErrPartitions)
		for _, q := range []*durable.Queue{q, other, again} {
			q.Close()
		}
	})
}

func TestQueuesAreNeitherListedNorDeletedWithBadArguments(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	ctx := t.Context()
	for name, tt := range map[string]struct {
		ctx   context.Context //nolint:containedctx // an argument
		store durable.Store
		queue string
		want  error
	}{
		"no context": {nil, store, "q", durable.ErrInvalid},
		"no store":   {ctx, nil, "q", durable.ErrInvalid},
		"nil store":  {ctx, (*memstore.Store)(nil), "q", durable.ErrInvalid},
		"no lister":  {ctx, wrapped{Store: store}, "q", errors.ErrUnsupported},
		"no name":    {ctx, store, "", durable.ErrInvalid},
		"bad name":   {ctx, store, "a b", durable.ErrInvalid},
		"long name":  {ctx, store, strings.Repeat("x", 129), durable.ErrInvalid},
		"no queue":   {ctx, store, "q", durable.ErrNoQueue},
	} {
		require.ErrorIs(t, durable.DeleteQueue(tt.ctx, tt.store, tt.queue, true), tt.want, name)
		if _, err := durable.Queues(tt.ctx, tt.store); !strings.HasSuffix(name, " name") && name != "no queue" {
			require.ErrorIs(t, err, tt.want, name)
		}
	}
}
