package durable_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// buryAll creates dead letters with the ids 00, 01 and so on.
func buryAll(t *testing.T, q *durable.Queue, n int) {
	t.Helper()
	for i := range n {
		enqueue(t, q, fmt.Sprintf("%02d", i), 0)
		require.NoError(t, take(t, q).Bury(t.Context(), "enough"))
	}
}

func deadLetters(t *testing.T, q *durable.Queue) (n int64) {
	t.Helper()
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	return s.Dead
}

// A DeleteAllDead whose context ends while another call is in progress sends nothing more. Its
// error names a dead letter.
func TestDeleteAllDeadSendsNothingAfterItsContext(t *testing.T) {
	t.Parallel()
	faultyBubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue, f *faulty) {
		buryAll(t, q, 20)
		f.set(func(name string) (error, error) {
			if name == "Purge" {
				time.Sleep(10 * time.Second)
			}
			return nil, nil
		})
		first := make(chan error)
		go func() { first <- q.DeleteDead(t.Context(), "07") }()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n, err := q.DeleteAllDead(ctx, durable.DeadFilter{All: true})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Zero(t, n)
		assert.ErrorContains(t, err, `"00"`)
		require.NoError(t, <-first)
		time.Sleep(time.Minute)
		assert.EqualValues(t, 19, deadLetters(t, q), "only the other call purges a message")
		assert.EqualValues(t, 1, f.count("Purge"))
		n, err = q.DeleteAllDead(t.Context(), durable.DeadFilter{All: true})
		require.NoError(t, err)
		assert.Equal(t, 19, n)
	})
}

// pagedBackend returns an empty first page, like a page of unreadable records. It records the size
// of the largest batch.
type pagedBackend struct {
	driver.Backend
	largest int
}

func (b *pagedBackend) List(ctx context.Context, partition int, state driver.State, cursor string, limit int) ([]driver.Record, string, error) {
	if cursor == "" {
		return nil, "unreadable", nil
	}
	if cursor == "unreadable" {
		cursor = ""
	}
	return b.Backend.List(ctx, partition, state, cursor, limit)
}

func (b *pagedBackend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	b.largest = max(b.largest, len(batch.Changes))
	return b.Backend.Apply(ctx, batch)
}

// ReplayAll and DeleteAllDead continue after a page of unreadable records, and make no more calls
// at a time than there is room for.
func TestUnreadablePageDoesNotStopReplayAllAndDeleteAllDead(t *testing.T) {
	t.Parallel()
	paged := &pagedBackend{}
	wrap := func(b driver.Backend) driver.Backend { paged.Backend = b; return paged }
	bubbleOf(t, wrap, durable.Options{Partitions: 1, MaxWaiting: 3}, func(t *testing.T, q *durable.Queue) {
		buryAll(t, q, 20)
		paged.largest = 0
		n, err := q.ReplayAll(t.Context(), durable.DeadFilter{All: true}, durable.ReplayOptions{Delay: time.Hour})
		require.NoError(t, err)
		assert.Equal(t, 20, n)
		assert.Zero(t, deadLetters(t, q))
		assert.LessOrEqual(t, paged.largest, 3, "concurrent calls")
		time.Sleep(2 * time.Hour)
		for range 20 {
			require.NoError(t, take(t, q).Bury(t.Context(), "enough"))
		}
		paged.largest = 0
		n, err = q.DeleteAllDead(t.Context(), durable.DeadFilter{All: true})
		require.NoError(t, err)
		assert.Equal(t, 20, n)
		assert.LessOrEqual(t, paged.largest, 3, "concurrent calls")
	})
}
