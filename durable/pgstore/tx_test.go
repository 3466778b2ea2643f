package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/pgtest"
	"github.com/timingwheel-go/timingwheel/durable/pgstore"
)

// database is a pool with a table of the program's own, and a queue.
type database struct {
	t      *testing.T
	schema string
	pool   *pgxpool.Pool
	sql    *sql.DB
	store  *pgstore.Store
	q      *durable.Queue
}

func newDatabase(t *testing.T, options pgstore.Options) *database {
	t.Helper()
	options.Schema = fmt.Sprintf("test%d", schemas.Add(1))
	d := &database{t: t, schema: options.Schema, pool: newPool(t, pgtest.Shared(t).URL(), "")}
	require.NoError(t, pgstore.Migrate(t.Context(), d.pool, options))
	exec(t, d.pool, options.Schema, `CREATE TABLE {schema}.orders (id text PRIMARY KEY, state text NOT NULL)`)
	t.Cleanup(func() { exec(t, d.pool, options.Schema, `DROP SCHEMA {schema} CASCADE`) })
	d.sql = stdlib.OpenDBFromPool(d.pool)
	t.Cleanup(func() { _ = d.sql.Close() })
	d.store = newStore(t, d.pool, options)
	q, err := durable.Open(t.Context(), d.store, durable.Options{Queue: "orders", Partitions: 2})
	require.NoError(t, err)
	t.Cleanup(q.Close)
	d.q = q
	return d
}

var errRollback = errors.New("rolled back")

// in calls f in a transaction of pgx, or of database/sql. The transaction commits unless f returns
// an error.
func (d *database) in(kind string, f func(ctx context.Context, tx pgstore.Tx) error) error {
	ctx := d.t.Context()
	if kind == "pgx" {
		return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error { return f(ctx, tx) })
	}
	tx, err := d.sql.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(ctx, pgstore.SQL(tx)); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// both runs a test with transactions of pgx and of database/sql.
func both(t *testing.T, test func(t *testing.T, d *database, kind string)) {
	for _, kind := range []string{"pgx", "sql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, newDatabase(t, pgstore.Options{}), kind)
		})
	}
}

func (d *database) stats() durable.Stats {
	d.t.Helper()
	s, err := d.q.Stats(d.t.Context())
	require.NoError(d.t, err)
	return s
}

func TestEnqueueTx(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, d *database, kind string) {
		enqueue := func(m durable.Message, then error) (id string, err error) {
			return id, d.in(kind, func(ctx context.Context, tx pgstore.Tx) error {
				if id, err = pgstore.EnqueueTx(ctx, tx, d.q, m); err != nil {
					return err
				}
				_, err = d.q.Get(ctx, id)
				require.ErrorIs(t, err, durable.ErrNotFound, "before the commit")
				return then
			})
		}
		body := []byte("body\x00\xff")
		headers := map[string]string{"k": "v"}
		id, err := enqueue(durable.Message{Body: body, Headers: headers, Delay: time.Hour, MaxAttempts: 7}, nil)
		require.NoError(t, err)
		r, err := d.q.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, []any{body, headers, 7, durable.StateScheduled}, []any{r.Body, r.Headers, r.MaxAttempts, r.State})
		assert.InDelta(t, time.Hour, r.Due.Sub(r.Enqueued), float64(2*time.Millisecond))

		gone, err := enqueue(durable.Message{ID: "gone"}, errRollback)
		require.ErrorIs(t, err, errRollback)
		_, err = d.q.Get(t.Context(), gone)
		require.ErrorIs(t, err, durable.ErrNotFound)
		assert.EqualValues(t, 1, d.stats().Scheduled)

		require.NoError(t, d.in(kind, func(ctx context.Context, tx pgstore.Tx) error {
			_, err := pgstore.EnqueueTx(ctx, tx, d.q, durable.Message{ID: id})
			require.ErrorIs(t, err, durable.ErrDuplicate)
			_, err = pgstore.EnqueueTx(ctx, tx, d.q, durable.Message{ID: "after", Repeat: "@every 1h"})
			return err
		}), "the transaction goes on")
		r, err = d.q.Get(t.Context(), "after")
		require.NoError(t, err)
		assert.Equal(t, "@every 1h", r.Repeat)

		require.NoError(t, d.in(kind, func(ctx context.Context, tx pgstore.Tx) error {
			_, err := pgstore.EnqueueTx(ctx, tx, d.q, durable.Message{ID: id, Body: []byte("new"), Replace: true})
			return err
		}))
		r, err = d.q.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, "new", string(r.Body))
		s := d.stats()
		assert.Equal(t, []int64{2, 3}, []int64{s.Scheduled, int64(s.Enqueued)})

		err = d.in(kind, func(ctx context.Context, tx pgstore.Tx) error {
			_, err := pgstore.EnqueueTx(ctx, tx, d.q, durable.Message{ID: "x", MaxAttempts: -1})
			return err
		})
		require.ErrorIs(t, err, durable.ErrInvalid)
	})
}

func TestCancelAndRescheduleTx(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, d *database, kind string) {
		for _, id := range []string{"a", "b", "c"} {
			_, err := d.q.Enqueue(t.Context(), durable.Message{ID: id, Delay: time.Hour})
			require.NoError(t, err)
		}
		require.NoError(t, d.in(kind, func(ctx context.Context, tx pgstore.Tx) error {
			for _, id := range []string{"", "x\x00", "a\nb", strings.Repeat("x", 256)} {
				_, err := pgstore.CancelTx(ctx, tx, d.q, id)
				require.ErrorIs(t, err, durable.ErrInvalid, "%q", id)
				_, err = pgstore.RescheduleTx(ctx, tx, d.q, id, 0)
				require.ErrorIs(t, err, durable.ErrInvalid, "%q", id)
			}
			return nil
		}), "the transaction goes on")
		change := func(id string, delay time.Duration, then error) (r durable.Result, err error) {
			return r, d.in(kind, func(ctx context.Context, tx pgstore.Tx) error {
				if delay == 0 {
					r, err = pgstore.CancelTx(ctx, tx, d.q, id)
				} else {
					r, err = pgstore.RescheduleTx(ctx, tx, d.q, id, delay)
				}
				return errors.Join(err, then)
			})
		}
		r, err := change("a", 0, nil)
		assert.Equal(t, []any{durable.ResultCancelled, nil}, []any{r, err})
		r, err = change("a", 0, nil)
		assert.Equal(t, []any{durable.ResultNotFound, nil}, []any{r, err})
		r, err = change("b", 0, errRollback)
		require.ErrorIs(t, err, errRollback)
		assert.Equal(t, durable.ResultCancelled, r)
		r, err = change("b", 2*time.Hour, nil)
		assert.Equal(t, []any{durable.ResultRescheduled, nil}, []any{r, err})
		record, err := d.q.Get(t.Context(), "b")
		require.NoError(t, err)
		assert.Greater(t, record.Due.Sub(record.Enqueued), 2*time.Hour)
		r, err = change("a", time.Hour, nil)
		assert.Equal(t, []any{durable.ResultNotFound, nil}, []any{r, err})
		_, err = change("c", -time.Hour, nil)
		require.NoError(t, err)
		delivery, err := d.q.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, "c", delivery.ID)
		r, err = change("c", 0, nil)
		assert.Equal(t, []any{durable.ResultFiring, nil}, []any{r, err})
		require.NoError(t, delivery.Ack(t.Context()))
		s := d.stats()
		assert.Equal(t, []int64{1, 1, 1}, []int64{s.Scheduled, int64(s.Cancelled), int64(s.Acked)})
	})
}

// TestAckTx acknowledges in transactions that commit and that do not.
func TestAckTx(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, d *database, kind string) {
		for _, id := range []string{"commits", "rolls back", "fails"} {
			_, err := d.q.Enqueue(t.Context(), durable.Message{ID: id, Body: []byte(id)})
			require.NoError(t, err)
		}
		_, err := d.q.Enqueue(t.Context(), durable.Message{ID: "recurs", Repeat: "@every 1h", At: time.Now()})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		calls := make(map[string]int)
		err = d.q.Consume(ctx, func(ctx context.Context, m *durable.Delivery) error {
			calls[m.ID]++
			first := calls[m.ID] == 1
			err := d.in(kind, func(ctx context.Context, tx pgstore.Tx) error {
				var none int
				if err := tx.QueryRow(ctx, "SELECT 1").Scan(&none); err != nil {
					return err
				}
				if err := pgstore.AckTx(ctx, tx, m); err != nil {
					return err
				}
				if first && m.ID != "commits" && m.ID != "recurs" {
					return errRollback
				}
				return nil
			})
			if len(calls) == 4 && calls["rolls back"] == 2 && calls["fails"] == 2 {
				cancel()
			}
			if m.ID == "fails" && first {
				return durable.Fail(err, time.Millisecond)
			}
			if errors.Is(err, errRollback) {
				return nil
			}
			return err
		}, durable.ConsumerOptions{Concurrency: 1})
		require.NoError(t, err)
		assert.Equal(t, map[string]int{"commits": 1, "rolls back": 2, "fails": 2, "recurs": 1}, calls)
		s := d.stats()
		assert.Equal(t, []int64{1, 0, 0}, []int64{s.Scheduled, s.InFlight, s.Dead})
		assert.Equal(t, []uint64{4, 1}, []uint64{s.Acked, s.Retried})
		r, err := d.q.Get(t.Context(), "recurs")
		require.NoError(t, err)
		assert.Greater(t, time.Until(r.Due), 50*time.Minute)
	})
}

// TestOpenTransactionDelaysNoOtherMessage holds messages in transactions while others are
// delivered.
func TestOpenTransactionDelaysNoOtherMessage(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, pgstore.Options{})
	const n = 50
	for i := range n {
		_, err := d.q.Enqueue(t.Context(), durable.Message{ID: fmt.Sprint("m", i), Delay: 100 * time.Millisecond})
		require.NoError(t, err)
	}
	tx, err := d.pool.Begin(t.Context())
	require.NoError(t, err)
	for i := range n / 2 {
		r, err := pgstore.CancelTx(t.Context(), tx, d.q, fmt.Sprint("m", i))
		require.NoError(t, err)
		require.Equal(t, durable.ResultCancelled, r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	delivered := make(map[string]time.Time)
	var late time.Duration
	err = d.q.Consume(ctx, func(ctx context.Context, m *durable.Delivery) error {
		delivered[m.ID] = time.Now()
		late = max(late, time.Since(m.Due))
		if len(delivered) == n/2 {
			require.NoError(t, tx.Rollback(ctx))
		}
		if len(delivered) == n {
			cancel()
		}
		return nil
	}, durable.ConsumerOptions{Concurrency: 1})
	require.NoError(t, err)
	assert.Len(t, delivered, n)
	t.Log(late)
}
