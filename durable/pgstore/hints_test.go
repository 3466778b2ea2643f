package pgstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
