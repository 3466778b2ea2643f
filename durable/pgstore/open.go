package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// backend is one queue.
type backend struct {
	store  *Store
	config driver.Config           // as opened
	ids    atomic.Pointer[queueID] // changes if the queue is deleted and created again
}

// queueID has the numbers by which the tables know a queue.
type queueID struct {
	queue int32
	parts []int32
}

var (
	_ driver.Backend = (*backend)(nil)
	_ driver.Checker = (*backend)(nil)
)

// Config implements [driver.Backend].
func (b *backend) Config() driver.Config { return b.config }

var (
	findQueueText = newStatement(`
SELECT q.id, q.partitions, q.max_body, q.max_attempts, q.dead_limit, q.dead_bytes, q.dead_age, q.deleting,
	ARRAY(SELECT p.id FROM {schema}.partitions p WHERE p.queue = q.id ORDER BY p.index)
FROM {schema}.queues q WHERE q.name = $1::text`)

	createQueueText = newStatement(`
WITH q AS (
	INSERT INTO {schema}.queues (name, partitions, max_body, max_attempts, dead_limit, dead_bytes, dead_age)
	VALUES ($1::text, $2::int, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint)
	ON CONFLICT (name) DO NOTHING RETURNING id),
p AS (INSERT INTO {schema}.partitions (queue, index) SELECT q.id, i FROM q, generate_series(0, $2::int - 1) i RETURNING id)
INSERT INTO {schema}.claims (part) SELECT id FROM p`)

	updateQueueText = newStatement(`
UPDATE {schema}.queues SET max_body = $2::bigint, max_attempts = $3::bigint, dead_limit = $4::bigint, dead_bytes = $5::bigint,
	dead_age = $6::bigint
WHERE id = $1::int AND NOT deleting`)

	listQueuesText = newStatement(`SELECT coalesce(array_agg(name ORDER BY name), '{}') FROM {schema}.queues`)

	deletingText = newStatement(`UPDATE {schema}.queues SET deleting = true WHERE name = $1::text RETURNING id`)

	deleteSomeText = newStatement(`
DELETE FROM {schema}.messages m USING (
	SELECT d.part, d.id FROM {schema}.partitions p, {schema}.messages d
	WHERE p.queue = $1::int AND d.part = p.id LIMIT 10000) d
WHERE m.part = d.part AND m.id = d.id`)

	deleteQueueText = newStatement(`
WITH p AS (DELETE FROM {schema}.partitions WHERE queue = $1::int RETURNING id),
claims AS (DELETE FROM {schema}.claims c USING p WHERE c.part = p.id),
counts AS (DELETE FROM {schema}.counts c USING p WHERE c.part = p.id),
calls AS (DELETE FROM {schema}.calls c USING p WHERE c.part = p.id),
messages AS (DELETE FROM {schema}.messages m USING p WHERE m.part = p.id),
members AS (DELETE FROM {schema}.members WHERE queue = $1::int)
DELETE FROM {schema}.queues WHERE id = $1::int`)
)

// Open opens a queue, as [driver.Store] describes, in a few round trips. It creates no tables: it
// returns [driver.ErrVersion] if the schema does not have this package's version, and
// [driver.ErrUnsafe] if a crash of the server may lose or damage what it has committed: see
// [driver.Checker].
func (s *Store) Open(ctx context.Context, config driver.Config) (driver.Backend, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if err := contract.CheckConfig(config); err != nil {
		return nil, fmt.Errorf("pgstore: %w", err)
	}
	b, err := s.open(ctx, config)
	if err != nil {
		return nil, failure(ctx, fmt.Sprintf("open queue %q", config.Queue), err)
	}
	return b, nil
}

func (s *Store) open(ctx context.Context, config driver.Config) (*backend, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	for {
		found, id, deleting, err := s.find(ctx, config)
		switch {
		case err != nil:
			return nil, err
		case id != nil && deleting:
			return nil, fmt.Errorf("%w: its deletion was interrupted; delete it again", driver.ErrNoQueue)
		case id != nil:
			b := &backend{store: s, config: found}
			b.ids.Store(id)
			if !config.Update {
				return b, nil
			}
			_, err = s.pool.Exec(ctx, s.texts[updateQueueText], append([]any{id.queue}, limitArgs(found)...)...)
			return b, err
		case config.Existing:
			return nil, fmt.Errorf("%w: schema %q has no queue %q", driver.ErrNoQueue, s.schema, config.Queue)
		}
		c := contract.NewConfig(config)
		if _, err := s.pool.Exec(ctx, s.texts[createQueueText], append([]any{c.Queue, c.Partitions}, limitArgs(c)...)...); err != nil {
			return nil, err
		}
	}
}

func limitArgs(c driver.Config) (args []any) {
	for _, n := range contract.Limits(c) {
		args = append(args, n)
	}
	return args
}

// find looks a queue up. It returns a nil id if there is none, and the errors of
// contract.JoinConfig if it has another number of partitions or other limits.
func (s *Store) find(ctx context.Context, config driver.Config) (found driver.Config, id *queueID, deleting bool, err error) {
	id = new(queueID)
	var partitions int
	limits := make([]int64, 5)
	err = s.pool.QueryRow(ctx, s.texts[findQueueText], config.Queue).Scan(&id.queue, &partitions,
		&limits[0], &limits[1], &limits[2], &limits[3], &limits[4], &deleting, &id.parts)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return config, nil, false, nil
	case err != nil || deleting:
		return config, id, deleting, err
	}
	found, err = contract.JoinConfig(config, partitions, limits)
	if err == nil && len(id.parts) != partitions {
		err = fmt.Errorf("%w: the queue has rows for %d of %d partitions", driver.ErrVersion, len(id.parts), partitions)
	}
	return found, id, false, err
}

// errGone is the error of a statement that finds no row of the queue.
var errGone = errors.New("the queue was deleted")

// call makes a call to the tables of the queue. If the queue was deleted and created again, it
// makes the call to the new one. A call that takes longer than RetryFor, at least 1 and at most 30
// seconds, returns [driver.ErrUnavailable]. call resets the pool if the server is a standby.
func (b *backend) call(ctx context.Context, what string, do func(ctx context.Context, id *queueID) error) error {
	if err := b.store.usable(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, min(max(cmp.Or(b.config.RetryFor, 10*time.Second), time.Second), 30*time.Second))
	defer cancel()
	err := do(limited, b.ids.Load())
	if errors.Is(err, errGone) {
		err = b.callAgain(limited, do)
	}
	var server *pgconn.PgError
	if errors.As(err, &server) && (server.Code == "25006" || server.Code == "0A000") {
		b.store.pool.Reset() // new connections may lead to the primary
	}
	return failure(ctx, fmt.Sprintf("%s in queue %q", what, b.config.Queue), err)
}

// callAgain makes a call after the queue was deleted, if it was created again.
func (b *backend) callAgain(ctx context.Context, do func(ctx context.Context, id *queueID) error) error {
	_, id, deleting, err := b.store.find(ctx, driver.Config{Queue: b.config.Queue, Partitions: b.config.Partitions})
	switch {
	case err != nil:
		return err
	case id == nil || deleting:
		return fmt.Errorf("%w: it was deleted", driver.ErrNoQueue)
	}
	b.ids.Store(id)
	if err = do(ctx, id); errors.Is(err, errGone) { // again, meanwhile
		err = fmt.Errorf("%w: %w", driver.ErrNoQueue, err)
	}
	return err
}

// queues implements [driver.Lister].
type queues struct{ s *Store }

// Queues is O(n) for n queues.
func (l queues) Queues(ctx context.Context) (names []string, err error) {
	if err := l.s.usable(ctx); err != nil {
		return nil, err
	}
	err = l.s.pool.QueryRow(ctx, l.s.texts[listQueuesText]).Scan(&names)
	return names, failure(ctx, "list the queues", err)
}

// DeleteQueue deletes messages in steps of 10,000. A message enqueued in a transaction that commits
// later remains in the table, where no queue finds it.
func (l queues) DeleteQueue(ctx context.Context, queue string) error {
	s := l.s
	if err := s.usable(ctx); err != nil {
		return err
	}
	var id int32
	err := s.pool.QueryRow(ctx, s.texts[deletingText], queue).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("%w: schema %q has none with this name", driver.ErrNoQueue, s.schema)
	}
	for n := int64(1); n > 0 && err == nil; {
		tag, failed := s.pool.Exec(ctx, s.texts[deleteSomeText], id)
		n, err = tag.RowsAffected(), failed
	}
	if err == nil {
		_, err = s.pool.Exec(ctx, s.texts[deleteQueueText], id)
	}
	return failure(ctx, fmt.Sprintf("delete queue %q", queue), err)
}

// Check implements [driver.Checker]. It returns [driver.ErrUnsafe] if the server has fsync or
// full_page_writes off, so that a crash may damage its files, or synchronous_commit off, so that a
// crash loses the last commits. If hints are off, Watch returns an error instead.
func (b *backend) Check(ctx context.Context) error {
	if err := b.store.usable(ctx); err != nil {
		return err
	}
	return failure(ctx, "check the server", b.store.check(ctx))
}

func (s *Store) check(ctx context.Context) error {
	if err := s.checkVersion(ctx); err != nil {
		return err
	}
	return s.checkSettings(ctx)
}

var settingsText = newStatement(`
SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
	pg_is_in_recovery(), current_setting('server_version_num')::int`)

// checkSettings returns an error if the server cannot hold a queue, or may lose its messages.
func (s *Store) checkSettings(ctx context.Context) error {
	var fsync, pages, commit string
	var standby bool
	var version int
	err := s.pool.QueryRow(ctx, s.texts[settingsText]).Scan(&fsync, &pages, &commit, &standby, &version)
	switch {
	case err != nil:
		return err
	case version < minVersion:
		return fmt.Errorf("%w: the server is PostgreSQL %d.%d; it must be %d or later", driver.ErrVersion, version/10000, version%10000, minVersion/10000)
	case standby:
		s.pool.Reset() // new connections may lead to the primary
		return fmt.Errorf("%w: the server is a standby, which accepts no changes: connect to the primary (target_session_attrs=read-write)",
			driver.ErrUnavailable)
	case s.options.AllowLossOnCrash:
	case fsync == "off" || pages == "off":
		return fmt.Errorf("%w: the server has fsync %s and full_page_writes %s, so a crash of its machine may damage its files; set both to on, or set Options.AllowLossOnCrash",
			driver.ErrUnsafe, fsync, pages)
	case commit == "off":
		return fmt.Errorf("%w: synchronous_commit is off, so a crash of the server loses the last commits; set it to on or to local, or set Options.AllowLossOnCrash",
			driver.ErrUnsafe)
	}
	return nil
}

const minVersion = 13_00_00
