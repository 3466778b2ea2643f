package pgstore

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/pgtest"
)

// TestUpgrade migrates a schema with messages to a version after this package's version. A
// migration that fails changes nothing, and a program that was running continues.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, pgtest.Shared(t).Database(t))
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, Migrate(ctx, pool))

	newStore := func(more ...string) *Store {
		s, err := New(pool, Options{AllowLossOnCrash: true})
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		s.migrations = slices.Concat(s.migrations, more)
		return s
	}
	migrate := func(s *Store) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return s.migrate(ctx, tx) })
	}
	requireVersion := func(want int) {
		t.Helper()
		version, err := newStore("", "").version(ctx, pool)
		require.NoError(t, err)
		require.Equal(t, want, version)
	}
	running, err := durable.Open(ctx, newStore(), durable.Options{Queue: "q"})
	require.NoError(t, err)
	defer running.Close()
	_, err = running.Enqueue(ctx, durable.Message{ID: "before", Body: []byte("body"), Delay: time.Hour})
	require.NoError(t, err)

	const second = `ALTER TABLE {schema}.messages ADD COLUMN tag text NOT NULL DEFAULT '';
CREATE INDEX messages_tag ON {schema}.messages (part, tag) WHERE tag <> ''`
	next := newStore(second)
	_, err = durable.Open(ctx, next, durable.Options{Queue: "q"})
	require.ErrorIs(t, err, durable.ErrVersion)
	require.ErrorContains(t, err, "has version 1; it must be 2")

	require.Error(t, migrate(newStore(second, `SELECT 1 / 0`)))
	requireVersion(1)
	require.NoError(t, migrate(next))
	requireVersion(2)
	require.NoError(t, migrate(next), "a second time")

	_, err = durable.Open(ctx, newStore(), durable.Options{Queue: "q"})
	require.ErrorContains(t, err, "has version 2; this program knows versions up to 1")
	_, err = running.Enqueue(ctx, durable.Message{ID: "after"})
	require.NoError(t, err)
	q, err := durable.Open(ctx, next, durable.Options{Queue: "q"})
	require.NoError(t, err)
	defer q.Close()
	for _, id := range []string{"before", "after"} {
		_, err := q.Reschedule(ctx, id, 0)
		require.NoError(t, err)
	}
	consume, cancel := context.WithCancel(ctx)
	defer cancel()
	var delivered []string
	require.NoError(t, q.Consume(consume, func(_ context.Context, d *durable.Delivery) error {
		if delivered = append(delivered, d.ID+string(d.Body)); len(delivered) == 2 {
			cancel()
		}
		return nil
	}, durable.ConsumerOptions{Concurrency: 1}))
	require.ElementsMatch(t, []string{"beforebody", "after"}, delivered)
}
