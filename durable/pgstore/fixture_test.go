package pgstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/pgtest"
	"github.com/timingwheel-go/timingwheel/durable/pgstore"
	"github.com/timingwheel-go/timingwheel/durable/storetest"
)

var schemas atomic.Int64

// newPool returns a pool that sees the clock of a schema before the server's clock.
func newPool(t testing.TB, url, schema string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.MaxConns = max(8, config.MaxConns)
	if schema != "" {
		config.ConnConfig.RuntimeParams["search_path"] = schema + ", pg_catalog"
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// fixtureOn returns a store in a schema of its own, whose clock can be moved.
func fixtureOn(t testing.TB, url string) storetest.Fixture {
	t.Helper()
	schema := fmt.Sprintf("test%d", schemas.Add(1))
	pool := newPool(t, url, schema)
	options := pgstore.Options{Schema: schema}
	require.NoError(t, pgstore.Migrate(t.Context(), pool, options))
	exec(t, pool, schema, `
CREATE TABLE {schema}.shift (us bigint);
INSERT INTO {schema}.shift VALUES (0);
CREATE FUNCTION {schema}.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
	'SELECT pg_catalog.clock_timestamp() + us * interval ''1 microsecond'' FROM {schema}.shift'`)
	t.Cleanup(func() { exec(t, pool, schema, `DROP SCHEMA {schema} CASCADE`) })
	store := newStore(t, pool, options)
	return storetest.Fixture{
		Store:  store,
		Remote: true,
		Reopen: func(t testing.TB) driver.Store {
			require.NoError(t, store.Close())
			store = newStore(t, newPool(t, url, schema), options)
			return store
		},
		Advance: func(d time.Duration) {
			exec(t, pool, schema, fmt.Sprintf(`UPDATE {schema}.shift SET us = us + %d`, d.Microseconds()))
		},
	}
}

func newStore(t testing.TB, pool *pgxpool.Pool, options pgstore.Options) *pgstore.Store {
	t.Helper()
	options.AllowLossOnCrash = true // the shared server omits fsync
	store, err := pgstore.New(pool, options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// exec executes statements, in which {schema} stands for a schema.
func exec(t testing.TB, pool *pgxpool.Pool, schema, text string) {
	t.Helper()
	text = strings.ReplaceAll(text, "{schema}", pgx.Identifier{schema}.Sanitize())
	_, err := pool.Exec(context.WithoutCancel(t.Context()), text, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t testing.TB) storetest.Fixture { return fixtureOn(t, pgtest.Shared(t).URL()) })
}
