package memstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

func openOne(t *testing.T, now func() time.Time) (*memstore.Store, driver.Backend) {
	t.Helper()
	s := memstore.New(memstore.Options{Now: now})
	t.Cleanup(func() { _ = s.Close() })
	b, err := s.Open(t.Context(), oneConfig())
	require.NoError(t, err)
	return s, b
}

func oneConfig() driver.Config {
	return driver.Config{Queue: "q", Partitions: 1, DeadLimit: 5000, DeadBytes: 1 << 30, DeadAge: time.Hour}
}

func deadLetters(t *testing.T, b driver.Backend) int {
	t.Helper()
	c, err := b.Count(t.Context(), 0)
	require.NoError(t, err)
	return int(c.Dead)
}

// The limit of dead letters is lowered. The next claims drop the excess ones, a bounded number at a
// time.
func TestSmallerDeadLimitDropsABoundedNumberPerClaim(t *testing.T) {
	t.Parallel()
	s, b := openOne(t, nil)
	for batch := range 8 {
		put := driver.Put{}
		for i := range driver.MaxBatch {
			put.Items = append(put.Items, driver.PutItem{ID: fmt.Sprint(batch, "-", i)})
		}
		_, err := b.Put(t.Context(), put)
		require.NoError(t, err)
		c, err := b.Claim(t.Context(), driver.Claim{
			Horizon: time.Second, Max: driver.MaxBatch, MaxBytes: 1, Visibility: time.Hour,
		})
		require.NoError(t, err)
		changes := make([]driver.Change, len(c.Records))
		for i, r := range c.Records {
			changes[i] = driver.Change{ID: r.ID, Token: r.Token}
		}
		for _, op := range []driver.Op{driver.OpBegin, driver.OpBury} {
			_, err = b.Apply(t.Context(),
				driver.Batch{Op: op, Visibility: time.Hour, Changes: changes})
			require.NoError(t, err)
		}
	}
	require.Equal(t, 2048, deadLetters(t, b))
	config := oneConfig()
	config.DeadLimit, config.Update = 10, true
	smaller, err := s.Open(t.Context(), config)
	require.NoError(t, err)
	for _, want := range []int{1536, 1024, 512, 10, 10} {
		_, err = smaller.Claim(t.Context(), driver.Claim{})
		require.NoError(t, err)
		assert.Equal(t, want, deadLetters(t, b))
	}
}

// If the clock is set back, no message is early, and tokens still rise.
func TestClockSetBackMakesNoMessageEarly(t *testing.T) {
	t.Parallel()
	now := time.Now()
	_, b := openOne(t, func() time.Time { return now })
	_, err := b.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "a"}}})
	require.NoError(t, err)
	claim := driver.Claim{Max: 1, MaxBytes: 1, Visibility: time.Minute}
	first, err := b.Claim(t.Context(), claim)
	require.NoError(t, err)
	require.Len(t, first.Records, 1)
	now = now.Add(-time.Hour)
	begin := driver.Batch{
		Op: driver.OpBegin, Visibility: time.Minute,
		Changes: []driver.Change{{ID: "a", Token: first.Records[0].Token}},
	}
	outcomes, err := b.Apply(t.Context(), begin)
	require.NoError(t, err)
	assert.Equal(t, driver.StatusEarly, outcomes[0].Status)
	now = now.Add(time.Hour + 2*time.Minute)
	second, err := b.Claim(t.Context(), claim)
	require.NoError(t, err)
	require.Len(t, second.Records, 1)
	assert.Greater(t, second.Records[0].Token, first.Records[0].Token)
}

// A watcher that does not receive loses the hints beyond its buffer. Its channel is closed when its
// context ends, not when the store is closed.
func TestFullHintBufferDropsHints(t *testing.T) {
	t.Parallel()
	s, b := openOne(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hints, err := b.Watch(ctx)
	require.NoError(t, err)
	for i := range 2 * cap(hints) {
		items := []driver.PutItem{{ID: fmt.Sprint(i), Delay: time.Duration(1000-i) * time.Hour}}
		_, err := b.Put(t.Context(), driver.Put{Items: items})
		require.NoError(t, err)
	}
	assert.Len(t, hints, cap(hints))
	first, err := b.Get(t.Context(), 0, "0")
	require.NoError(t, err)
	assert.Equal(t, first.Due, (<-hints).Due)
	_, err = b.Put(t.Context(),
		driver.Put{Items: []driver.PutItem{{ID: "later", Delay: 2000 * time.Hour}}})
	require.NoError(t, err)
	assert.Len(t, hints, cap(hints)-1, "the message is not the earliest")
	require.NoError(t, s.Close())
	select {
	case _, open := <-hints:
		require.True(t, open)
	default:
		require.Fail(t, "the buffered hints are still there")
	}
	cancel()
	assert.Eventually(t, func() bool {
		_, open := <-hints
		return !open
	}, time.Minute, time.Millisecond)
}

// Errors name the rejected value.
func TestErrorsNameTheRejectedValue(t *testing.T) {
	t.Parallel()
	s, b := openOne(t, nil)
	for _, cursor := range []string{"x", "12", ":a", "9999999999999999999999:a"} {
		_, _, err := b.List(t.Context(), 0, driver.StateScheduled, cursor, 1)
		require.ErrorIs(t, err, driver.ErrInvalid)
		assert.Contains(t, err.Error(), cursor)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(assert.AnError)
	_, err := b.Put(ctx, driver.Put{Items: []driver.PutItem{{ID: "a"}}})
	require.ErrorIs(t, err, assert.AnError)
	_, err = b.Get(t.Context(), 0, "a")
	require.ErrorIs(t, err, driver.ErrNotFound)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "again")
}
