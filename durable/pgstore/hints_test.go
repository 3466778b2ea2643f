package pgstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/pgstore"
)

// TestHintAfterCancel cancels a message before the claim that its hint causes. The claim leaves no
// trace, and the next message is due later.
func TestHintAfterCancel(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, pgstore.Options{})
	b, err := d.store.Open(t.Context(), driver.Config{Queue: "hints", Partitions: 1})
	require.NoError(t, err)
	hints, err := b.Watch(t.Context())
	require.NoError(t, err)
	require.Zero(t, (<-hints).Due, "of the start of the watch")
	for i, id := range []string{"first", "second", "third"} {
		_, err = b.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: id, Delay: time.Duration(i+1) * time.Hour, MaxAttempts: 1}}})
		require.NoError(t, err)
		r, err := b.Get(t.Context(), 0, id)
		require.NoError(t, err)
		select {
		case h := <-hints:
			require.LessOrEqual(t, h.Due, r.Due, "consumers claim in time for the message")
		case <-time.After(time.Minute):
			require.Fail(t, "no hint has arrived", id)
		}
		outcomes, err := b.Apply(t.Context(), driver.Batch{Op: driver.OpCancel, Changes: []driver.Change{{ID: id}}})
		require.NoError(t, err)
		require.Equal(t, driver.StatusDone, outcomes[0].Status)
		claimed, err := b.Claim(t.Context(), driver.Claim{Max: 1, MaxBytes: 1, Visibility: time.Hour})
		require.NoError(t, err)
		require.Empty(t, claimed.Records)
	}
}

// TestNotifyTx enqueues a message in a transaction. With NotifyTx its commit sends a hint. A
// transaction that is rolled back sends none.
func TestNotifyTx(t *testing.T) {
	t.Parallel()
	for _, notify := range []bool{false, true} {
		d := newDatabase(t, pgstore.Options{NotifyTx: notify})
		q, err := durable.Open(t.Context(), d.store, durable.Options{Queue: "hints", Partitions: 1})
		require.NoError(t, err)
		defer q.Close()
		b, err := d.store.Open(t.Context(), driver.Config{Queue: "hints", Partitions: 1})
		require.NoError(t, err)
		hints, err := b.Watch(t.Context())
		require.NoError(t, err)
		require.Zero(t, (<-hints).Due, "of the start of the watch")
		for _, commit := range []bool{false, true} {
			tx, err := d.pool.Begin(t.Context())
			require.NoError(t, err)
			_, err = pgstore.EnqueueTx(t.Context(), tx, q, durable.Message{Delay: time.Hour})
			require.NoError(t, err)
			if !commit {
				require.NoError(t, tx.Rollback(t.Context()))
				continue
			}
			require.NoError(t, tx.Commit(t.Context()))
		}
		_, err = q.Enqueue(t.Context(), durable.Message{Delay: time.Minute}) // which sends a hint after the others
		require.NoError(t, err)
		var due []driver.Instant
		for len(due) == 0 || due[len(due)-1] == 0 {
			select {
			case h := <-hints:
				due = append(due, h.Due)
			case <-time.After(time.Minute):
				require.Fail(t, "no hint has arrived")
			}
		}
		require.Len(t, due, map[bool]int{false: 1, true: 2}[notify])
	}
}
