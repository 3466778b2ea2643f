//go:build unix

package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/checker"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
)

// consumeHere consumes in this process until the function that it returns is called. Its leases are long: where they end, messages come twice.
func consumeHere(t *testing.T, q *durable.Queue, events checker.Recorder) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- (&role{Visibility: 30 * time.Second}).consume(ctx, q, events) }()
	return func() {
		t.Helper()
		cancel()
		assert.NoError(t, <-done)
	}
}

// emptied waits until the queue has nothing left to deliver.
func emptied(t *testing.T, q *durable.Queue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, waitEmpty(ctx, q))
}

// openHere opens the queue in this process until the test ends.
func openHere(t *testing.T, tg target) *durable.Queue {
	t.Helper()
	q, store, err := tg.openQueue(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		q.Close()
		assert.NoError(t, store.Close())
	})
	return q
}

// The server's memory is full. Nothing more can be enqueued, and what is there is delivered, after which there is room again.
func TestMemoryIsFull(t *testing.T) {
	brief(t)
	t.Parallel()
	server := redistest.Start(t, redistest.Options{MaxMemory: 6 << 20})
	q := openHere(t, target{Redis: server.Addr()})
	h := checker.New(checker.Options{})
	body := make([]byte, 10_000)
	enqueue := func(id string) error {
		_, err := q.Enqueue(t.Context(), durable.Message{ID: id, Body: body})
		if err == nil {
			err = h.Record(checker.Event{Kind: checker.Enqueued, ID: id})
		}
		return err
	}
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		err = enqueue(fmt.Sprint("m", n))
	}
	require.ErrorIs(t, err, durable.ErrFull)
	require.ErrorIs(t, enqueue("another"), durable.ErrFull)
	stop := consumeHere(t, q, h)
	emptied(t, q)
	require.NoError(t, enqueue("later"))
	emptied(t, q)
	stop()
	report := h.Check()
	t.Log(report)
	require.NoError(t, report.Err())
	assert.Equal(t, n, report.Enqueued, "all but the two that were refused, and a later one")
	assert.Equal(t, n, report.Handled)
	assert.Zero(t, report.Duplicates)
}
