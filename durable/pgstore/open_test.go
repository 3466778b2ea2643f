package pgstore_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/pgtest"
	"github.com/timingwheel-go/timingwheel/durable/pgstore"
)

func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://user@127.0.0.1:1/none")
	require.NoError(t, err)
	defer pool.Close()
	for _, schema := range []string{"1a", "a-b", "a.b", `a"b`, "ü", fmt.Sprintf("%064d", 0)} {
		_, err := pgstore.New(pool, pgstore.Options{Schema: schema})
		require.ErrorIs(t, err, durable.ErrInvalid, schema)
		require.ErrorContains(t, err, "1 to 63 letters")
		require.ErrorIs(t, pgstore.Migrate(t.Context(), pool, pgstore.Options{Schema: schema}), durable.ErrInvalid)
	}
	_, err = pgstore.New(nil, pgstore.Options{})
	require.ErrorIs(t, err, durable.ErrInvalid)
	require.ErrorIs(t, pgstore.Migrate(t.Context(), pool, pgstore.Options{}, pgstore.Options{}), durable.ErrInvalid)
	_, err = new(pgstore.Store).Open(t.Context(), driver.Config{Queue: "q"})
	require.ErrorIs(t, err, durable.ErrInvalid)
	require.NoError(t, new(pgstore.Store).Close())
	store, err := pgstore.New(pool, pgstore.Options{})
	require.NoError(t, err)
	_, err = durable.Open(t.Context(), store, durable.Options{Queue: "q"})
	require.ErrorIs(t, err, durable.ErrUnavailable, "nothing listens on the port")
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	pool := newPool(t, pgtest.Shared(t).Database(t), "")
	open := func(schema string) error {
		q, err := durable.Open(t.Context(), newStore(t, pool, pgstore.Options{Schema: schema}), durable.Options{Queue: "q"})
		if err == nil {
			q.Close()
		}
		return err
	}
	err := open("")
	require.ErrorIs(t, err, durable.ErrVersion, "without a schema")
	require.ErrorContains(t, err, "pgstore.Migrate")
	require.NotErrorIs(t, err, durable.ErrUnavailable)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { assert.NoError(t, pgstore.Migrate(t.Context(), pool)) })
	}
	all.Wait()
	require.NoError(t, pgstore.Migrate(t.Context(), pool, pgstore.Options{Schema: "Other_1"}))
	require.NoError(t, open(""))
	require.NoError(t, open("Other_1"))
	exec(t, pool, "timingwheel", "INSERT INTO {schema}.versions VALUES (1000)")
	for _, err := range []error{open(""), pgstore.Migrate(t.Context(), pool)} {
		require.ErrorIs(t, err, durable.ErrVersion)
		require.ErrorContains(t, err, `"timingwheel" has version 1000; this program knows versions up to 1`)
	}
	require.NoError(t, open("Other_1"), "another schema")
	exec(t, pool, "Other_1", "DELETE FROM {schema}.versions")
	require.ErrorContains(t, open("Other_1"), "has version 0; it must be 1")
}

// TestRights opens a queue as a user with the rights that the package comment lists, and without.
func TestRights(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Database(t)
	owner := newPool(t, url, "")
	require.NoError(t, pgstore.Migrate(t.Context(), owner))
	exec(t, owner, "limited", `CREATE USER {schema}`)
	t.Cleanup(func() { exec(t, newPool(t, pgtest.Shared(t).URL(), ""), "limited", `DROP USER {schema}`) })
	t.Cleanup(func() { exec(t, owner, "limited", `DROP OWNED BY {schema}`) })
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.ConnConfig.User = "limited"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	store := newStore(t, pool, pgstore.Options{})
	_, err = durable.Open(t.Context(), store, durable.Options{Queue: "q"})
	require.ErrorContains(t, err, "needs USAGE of the schema, and SELECT, INSERT, UPDATE and DELETE")
	require.NotErrorIs(t, err, durable.ErrUnavailable)
	exec(t, owner, "timingwheel", `GRANT USAGE ON SCHEMA {schema} TO limited`)
	exec(t, owner, "timingwheel", `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO limited`)
	q, err := durable.Open(t.Context(), store, durable.Options{Queue: "q"})
	require.NoError(t, err)
	defer q.Close()
	_, err = q.Enqueue(t.Context(), durable.Message{ID: "a"})
	require.NoError(t, err)
	d, err := q.Take(t.Context())
	require.NoError(t, err)
	require.NoError(t, d.Ack(t.Context()))
	require.NoError(t, durable.DeleteQueue(t.Context(), store, "q", true))
}

// TestUnsafeServer opens queues on servers that may lose messages, and on a standby.
func TestUnsafeServer(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{Durable: true})
	pool := newPool(t, server.URL(), "")
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	open := func(url string, param ...string) error {
		config, err := pgxpool.ParseConfig(url)
		require.NoError(t, err)
		for i := 0; i < len(param); i += 2 {
			config.ConnConfig.RuntimeParams[param[i]] = param[i+1]
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		require.NoError(t, err)
		defer pool.Close()
		store, err := pgstore.New(pool, pgstore.Options{})
		require.NoError(t, err)
		defer store.Close()
		q, err := durable.Open(t.Context(), store, durable.Options{Queue: "q"})
		if err == nil {
			q.Close()
		}
		return err
	}
	require.NoError(t, open(server.URL()))
	err := open(server.URL(), "synchronous_commit", "off")
	require.ErrorIs(t, err, durable.ErrUnsafe)
	require.ErrorContains(t, err, "synchronous_commit is off")
	standby := server.Standby(t)
	err = open(standby.URL())
	require.ErrorIs(t, err, durable.ErrUnavailable)
	require.ErrorContains(t, err, "connect to the primary")
	err = pgstore.Migrate(t.Context(), newPool(t, standby.URL(), ""), pgstore.Options{Schema: "other"})
	require.Error(t, err)
	require.False(t, errors.Is(err, durable.ErrInvalid))
	standby.Promote()
	require.NoError(t, open(standby.URL()))
}
