package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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

// TestMigrateWithHostileFunctions migrates with a search_path that begins with a schema whose
// functions have the names of the server's.
func TestMigrateWithHostileFunctions(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Database(t)
	exec(t, newPool(t, url, ""), "hostile", `
CREATE SCHEMA {schema};
CREATE TABLE {schema}.calls (name text);
CREATE FUNCTION {schema}.pg_advisory_xact_lock(bigint) RETURNS void LANGUAGE sql AS $$INSERT INTO hostile.calls VALUES ('lock')$$;
CREATE FUNCTION {schema}.hashtextextended(text, bigint) RETURNS bigint LANGUAGE sql AS $$INSERT INTO hostile.calls VALUES ('hash') RETURNING 1::bigint$$;
CREATE FUNCTION {schema}.now() RETURNS timestamptz LANGUAGE sql AS $$INSERT INTO hostile.calls VALUES ('now') RETURNING pg_catalog.now()$$`)
	pool := newPool(t, url, "hostile")
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	_, err := pool.Exec(t.Context(), `INSERT INTO timingwheel.versions (version) VALUES (-1)`) // with a default
	require.NoError(t, err)
	var calls int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM hostile.calls`).Scan(&calls))
	require.Zero(t, calls)
	var path string
	require.NoError(t, pool.QueryRow(t.Context(), `SHOW search_path`).Scan(&path))
	require.Equal(t, "hostile, pg_catalog", path, "as before")
}

// newUser creates a user without rights, and returns a pool that connects as the user. No other
// test must use the name.
func newUser(t *testing.T, url, name string) *pgxpool.Pool {
	t.Helper()
	owner := newPool(t, url, "")
	exec(t, owner, name, `CREATE USER {schema}`)
	t.Cleanup(func() { exec(t, owner, name, `DROP OWNED BY {schema}; DROP USER {schema}`) })
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.ConnConfig.User = name
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// TestMigrateExistingSchema migrates as users who may not create schemas: one owns an empty schema,
// and one may only read the version of a schema that needs no change.
func TestMigrateExistingSchema(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Database(t)
	migrator, reader := newUser(t, url, "migrator"), newUser(t, url, "reader")
	require.ErrorContains(t, pgstore.Migrate(t.Context(), migrator), "permission denied")
	owner := newPool(t, url, "")
	exec(t, owner, "timingwheel", `CREATE SCHEMA {schema} AUTHORIZATION migrator`)
	require.NoError(t, pgstore.Migrate(t.Context(), migrator))
	require.NoError(t, pgstore.Migrate(t.Context(), migrator))
	exec(t, owner, "timingwheel", `GRANT USAGE ON SCHEMA {schema} TO reader; GRANT SELECT ON {schema}.versions TO reader`)
	require.NoError(t, pgstore.Migrate(t.Context(), reader))
}

// TestMigrateWhileSerializable migrates concurrently with transactions that are serializable and
// read-only by default.
func TestMigrateWhileSerializable(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(pgtest.Shared(t).Database(t))
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	config.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	config.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	var all sync.WaitGroup
	for range config.MaxConns {
		all.Go(func() { assert.NoError(t, pgstore.Migrate(t.Context(), pool)) })
	}
	all.Wait()
}

// TestRights opens a queue as a user with the rights that the package comment lists, and without.
func TestRights(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Database(t)
	owner := newPool(t, url, "")
	require.NoError(t, pgstore.Migrate(t.Context(), owner))
	store := newStore(t, newUser(t, url, "limited"), pgstore.Options{})
	_, err := durable.Open(t.Context(), store, durable.Options{Queue: "q"})
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

// TestRejectedUser enqueues while the server rejects the user, as it does while a password changes.
func TestRejectedUser(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Database(t)
	owner, pool := newPool(t, url, ""), newUser(t, url, "rejected")
	exec(t, owner, "rejected", `GRANT CREATE ON DATABASE `+owner.Config().ConnConfig.Database+` TO {schema}`)
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	reports := make(chan error, 100)
	q, err := durable.Open(t.Context(), newStore(t, pool, pgstore.Options{}), durable.Options{
		Queue: "q", Logger: slog.New(slog.DiscardHandler), OnError: func(err error) { reports <- err },
	})
	require.NoError(t, err)
	defer q.Close()
	exec(t, owner, "rejected", `ALTER USER {schema} NOLOGIN`)
	pool.Reset()
	enqueued := make(chan error)
	go func() {
		_, err := q.Enqueue(t.Context(), durable.Message{ID: "m"})
		enqueued <- err
	}()
	err = <-reports
	require.ErrorIs(t, err, durable.ErrUnavailable)
	require.ErrorContains(t, err, "rejects the user or the password")
	exec(t, owner, "rejected", `ALTER USER {schema} LOGIN`)
	require.NoError(t, <-enqueued)

	config := pool.Config()
	config.ConnConfig.Database = "missing"
	missing, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer missing.Close()
	_, err = newStore(t, missing, pgstore.Options{}).Open(t.Context(), driver.Config{Queue: "q"})
	require.ErrorIs(t, err, durable.ErrUnavailable)
	require.ErrorContains(t, err, "the database does not exist")
}

// TestClosedPool closes the pool of a store that is in use.
func TestClosedPool(t *testing.T) {
	t.Parallel()
	pool := newPool(t, pgtest.Shared(t).Database(t), "")
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	q, err := durable.Open(t.Context(), newStore(t, pool, pgstore.Options{}), durable.Options{Queue: "q", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer q.Close()
	consumed := make(chan error)
	go func() {
		consumed <- q.Consume(t.Context(), func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{})
	}()
	pool.Close()
	_, err = q.Enqueue(t.Context(), durable.Message{ID: "m"})
	require.ErrorIs(t, err, durable.ErrClosed)
	require.ErrorContains(t, err, "the pool is closed")
	require.ErrorIs(t, <-consumed, durable.ErrClosed)
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
	testConnectionsToStandby(t, server, standby)
	standby.Promote()
	require.NoError(t, open(standby.URL()))
}

// testConnectionsToStandby makes calls with a pool that has connections to a standby, when new ones
// would lead to the primary.
func testConnectionsToStandby(t *testing.T, primary, standby *pgtest.Server) {
	t.Helper()
	config, err := pgxpool.ParseConfig(primary.URL())
	require.NoError(t, err)
	other, err := pgxpool.ParseConfig(standby.URL())
	require.NoError(t, err)
	var away atomic.Bool
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		if away.Load() {
			c.Port = other.ConnConfig.Port
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	store := newStore(t, pool, pgstore.Options{})
	b, err := store.Open(t.Context(), driver.Config{Queue: "q"})
	require.NoError(t, err)
	for what, call := range map[string]func() error{
		"put": func() error {
			_, err := b.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "m", MaxAttempts: 1}}})
			return err
		},
		"claim": func() error {
			_, err := b.Claim(t.Context(), driver.Claim{Max: 1, MaxBytes: 1, Visibility: time.Second})
			return err
		},
		"open": func() error {
			_, err := store.Open(t.Context(), driver.Config{Queue: "q"})
			return err
		},
	} {
		away.Store(true)
		pool.Reset()
		err := call()
		require.ErrorIs(t, err, durable.ErrUnavailable, what)
		require.ErrorContains(t, err, "connect to the primary")
		away.Store(false)
		require.NoError(t, call(), what)
	}
}
