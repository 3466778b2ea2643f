package pgstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

//go:embed migrations/1.sql
var firstMigration string

// querier is a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Migrate creates the schema and its tables, or upgrades them to this package's version. It takes
// at most one Options, and uses its Schema. Concurrent calls wait for one another. Migrate does
// nothing if the schema has this version, and returns [driver.ErrVersion] if it has a newer one. It
// runs in one transaction, so a failed Migrate changes nothing.
func Migrate(ctx context.Context, pool *pgxpool.Pool, options ...Options) error {
	if len(options) > 1 {
		return fmt.Errorf("pgstore: migrate: %w number of Options %d; it must be 0 or 1", driver.ErrInvalid, len(options))
	}
	s, err := New(pool, slices.Concat(options, []Options{{}})[0])
	if err != nil {
		return err
	}
	defer s.Close()
	// Each statement must see what another Migrate has committed.
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite},
		func(tx pgx.Tx) error { return s.migrate(ctx, tx) })
	return failure(ctx, fmt.Sprintf("migrate schema %q", s.schema), err)
}

func (s *Store) migrate(ctx context.Context, tx pgx.Tx) error {
	// CREATE SCHEMA IF NOT EXISTS needs the right to create schemas even if the schema exists.
	var exists bool
	// No function of another user's schema may come before the system's functions.
	if _, err := tx.Exec(ctx, "SET LOCAL search_path TO pg_catalog, pg_temp"); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0::bigint))", "timingwheel migrate "+s.schema); err != nil {
		return err
	}
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", s.schema).Scan(&exists); err != nil {
		return err
	}
	if !exists {
		if _, err := tx.Exec(ctx, s.named("CREATE SCHEMA {schema}")); err != nil {
			return err
		}
	}
	err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = 'versions')", s.schema).Scan(&exists)
	if err == nil && !exists {
		_, err = tx.Exec(ctx, s.named("CREATE TABLE {schema}.versions (version int PRIMARY KEY, migrated timestamptz NOT NULL DEFAULT now())"))
	}
	if err != nil {
		return err
	}
	version, err := s.version(ctx, tx)
	if err != nil {
		return err
	}
	for i, text := range s.migrations[version:] {
		if _, err := tx.Conn().PgConn().Exec(ctx, s.named(text)).ReadAll(); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.named("INSERT INTO {schema}.versions (version) VALUES ($1)"), version+i+1); err != nil {
			return err
		}
	}
	return nil
}

// version returns the version of the schema, 0 if it has none. It returns [driver.ErrVersion] if
// that is newer than this package.
func (s *Store) version(ctx context.Context, q querier) (version int, err error) {
	err = q.QueryRow(ctx, s.named("SELECT coalesce(max(version), 0) FROM {schema}.versions")).Scan(&version)
	if err == nil && version > len(s.migrations) {
		err = fmt.Errorf("%w: the schema %q has version %d; this program knows versions up to %d",
			driver.ErrVersion, s.schema, version, len(s.migrations))
	}
	return version, err
}

// checkVersion returns [driver.ErrVersion] unless the schema has the version of this package.
func (s *Store) checkVersion(ctx context.Context) error {
	version, err := s.version(ctx, s.pool)
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == "42P01" || err == nil && version < len(s.migrations) {
		return fmt.Errorf("%w: the schema %q has version %d; it must be %d: call pgstore.Migrate, or run delayq migrate",
			driver.ErrVersion, s.schema, version, len(s.migrations))
	}
	return err
}
