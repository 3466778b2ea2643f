// Package pgstore stores the queues of package durable in PostgreSQL, version 13 or later. A
// message can commit with the rows of a program's own transaction: see [EnqueueTx]. A program
// creates the tables once with [Migrate], and passes its pool to [New] and the [Store] to
// durable.Open.
//
// A transition of up to 256 messages is one transaction, which takes one to three round trips.
// Begins from all queues that arrive during a transaction of begins share the next one, and
// likewise for acknowledgements. Only the server's clock decides whether a message is due. Rows are
// locked, so the program's transactions that enqueue, cancel, reschedule or acknowledge messages
// should be short: other calls for the same message wait for them. Claims, begins and renewals of
// leases skip locked messages.
//
// # Tables
//
// All tables are in one schema: see [Options]. A queue has one row in queues and, for each of its
// partitions, one in partitions and one in claims. A message is a row in messages. The table counts
// holds the changes to the counts since the last claims, calls holds each caller's last call, and
// members holds the consumers. Rows with part 0 in messages are not messages: they keep the planner
// from assuming that the table is small.
//
// # Rights
//
// Migrate needs the right to create the schema and its tables. Everything else needs USAGE on the
// schema, and SELECT, INSERT, UPDATE and DELETE on its tables.
package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// Store is a [driver.Store] and [driver.Lister] in a schema of a database, made by [New]. A Store
// is safe for concurrent use. A zero Store is not usable: Open returns [driver.ErrInvalid].
type Store struct {
	lister
	pool   *pgxpool.Pool
	schema string

	options    Options
	migrations []string // the schema has the version n after the first n
	texts      []string // of the statements
	single     []string // of the same statements, for one message: see scalar
	hub        *hub
	begins     combiner
	acks       combiner

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
}

type lister = driver.Lister

var _ driver.Store = (*Store)(nil)

// Options are the options for [New] and [Migrate].
type Options struct {
	// Schema is the name of the schema with the tables: 1 to 63 letters, digits and '_', not
	// beginning with a digit. The default is "timingwheel".
	Schema string

	// NotifyTx makes [EnqueueTx] and [RescheduleTx] send a hint to consumers when the transaction
	// commits, if the message is due before all others in its partition. Such a message is then on
	// time even if its delay is shorter than ConsumerOptions.Fallback. The server commits such
	// transactions one at a time, so a large number of them limits its commit rate.
	NotifyTx bool

	// AllowLossOnCrash lets Open accept a server that may lose or damage what it has committed: see
	// [driver.Checker]. The option is for tests.
	AllowLossOnCrash bool
}

var validSchema = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// New returns a store that uses a pool. The caller still owns the pool, and closes it after the
// store. New does no I/O. It returns [driver.ErrInvalid] for invalid options and for a nil pool.
//
// The store uses one connection from the pool per call in progress. While a queue is consumed, it
// has one more connection, beyond the pool's limit, that listens for hints.
func New(pool *pgxpool.Pool, options Options) (*Store, error) {
	o := options
	o.Schema = cmp.Or(o.Schema, "timingwheel")
	if !validSchema.MatchString(o.Schema) {
		return nil, fmt.Errorf("pgstore: %w Options.Schema %.80q; it must be 1 to 63 letters, digits and '_', and not begin with a digit",
			driver.ErrInvalid, o.Schema)
	}
	if pool == nil {
		return nil, fmt.Errorf("pgstore: %w pool: it is nil", driver.ErrInvalid)
	}
	s := &Store{pool: pool, schema: o.Schema, options: o, migrations: []string{firstMigration}}
	for _, text := range statements {
		text = s.named(text)
		s.texts, s.single = append(s.texts, text), append(s.single, scalar.ReplaceAllString(text, "ARRAY[${1}]"))
	}
	s.lister = queues{s}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.hub = newHub(s)
	s.begins = combiner{s: s, text: beginText, more: []any{validText(contract.Process())}, fast: true}
	s.acks = combiner{s: s, text: ackText}
	return s, nil
}

// Close ends the watches of the store, and all later calls return [driver.ErrClosed]. Calls in
// progress continue. The pool stays open. Close returns nil, and a second Close does nothing.
func (s *Store) Close() error {
	if s.cancel != nil {
		s.hub.close()
	}
	return nil
}

// usable returns an error if the store is not open or ctx has ended.
func (s *Store) usable(ctx context.Context) error {
	if s.ctx == nil {
		return fmt.Errorf("pgstore: %w store: it is zero; it must be made by New", driver.ErrInvalid)
	}
	if s.ctx.Err() != nil {
		return fmt.Errorf("pgstore: the store is %w", driver.ErrClosed)
	}
	return context.Cause(ctx)
}

// statement is an SQL statement. Its text depends on the schema.
type statement int

// statements has the texts of all statements, in which {schema} stands for the quoted schema, {us}
// for the clock in microseconds, {row} for the columns of a message without its body, and {channel}
// for the name of the channel of hints.
var statements []string

func newStatement(text string) statement {
	statements = append(statements, text)
	return statement(len(statements) - 1)
}

// clock_timestamp is not qualified, so that tests can put another clock before it.
const usText = "(SELECT (extract(epoch FROM clock_timestamp()) * 1000000::numeric)::bigint)"

// named returns the text of a statement for the schema of the store.
func (s *Store) named(text string) string {
	return strings.NewReplacer("{schema}", pgx.Identifier{s.schema}.Sanitize(), "{us}", usText, "{row}", rowColumns,
		"{channel}", s.schema).Replace(text)
}

// scalar matches a parameter with an array. In a caller's transaction each is replaced by one
// value, because drivers of database/sql differ in how they pass arrays.
var scalar = regexp.MustCompile(`(\$\d+::\w+)\[\]`)

// scanner is a row of a result, as pgx and database/sql return it.
type scanner interface{ Scan(dest ...any) error }

// query is a statement with its arguments. scan reads each row of its result, if it is not nil.
type query struct {
	statement
	args []any
	scan func(scanner) error
}

// pipeline is a list of statements that are sent together, in one round trip.
type pipeline []query

// exec adds a statement whose result is not read.
func (p *pipeline) exec(s statement, args ...any) { *p = append(*p, query{s, args, nil}) }

// row adds a statement that returns at most one row, which is scanned into dest. found reports
// whether there was one.
func (p *pipeline) row(s statement, args []any, dest ...any) (found *bool) {
	found = new(bool)
	p.rows(s, args, func(row scanner) error {
		err := row.Scan(dest...)
		*found = err == nil
		return err
	})
	return found
}

// rows adds a statement, and calls scan for each row of its result.
func (p *pipeline) rows(s statement, args []any, scan func(scanner) error) {
	*p = append(*p, query{s, args, scan})
}

// batch returns the statements for a connection.
func (s *Store) batch(p pipeline) *pgx.Batch {
	b := new(pgx.Batch)
	for _, q := range p {
		queued := b.Queue(s.texts[q.statement], q.args...)
		if q.scan != nil {
			queued.Query(func(rows pgx.Rows) error {
				for rows.Next() {
					if err := q.scan(rows); err != nil {
						return err
					}
				}
				return rows.Err()
			})
		}
	}
	return b
}

// stage adds the statements of one round trip of a transaction, which depend on the results of the
// stages before. It may run several times. With an error, nothing is changed.
type stage func(*pipeline) error

// reading returns a stage that cannot fail.
func reading(add func(*pipeline)) stage {
	return func(p *pipeline) error {
		add(p)
		return nil
	}
}

// maxTries is how often a transaction is tried that conflicts with others.
const maxTries = 10

var startText, commitText, abortText = newStatement("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"), newStatement("COMMIT"), newStatement("ROLLBACK")

// The server ends the session of a process that stops between two round trips, because the locks of
// the transaction would keep other processes waiting. Planning would take longer than execution, so
// plans are used again, also when a table has grown. A plan that must scan although enable_seqscan
// is off has a large estimated cost, for which the server would compile it, if not for jit = off.
var settingsOfTransaction = newStatement(`
SELECT set_config('idle_in_transaction_session_timeout', '5000', true), set_config('plan_cache_mode', 'force_generic_plan', true),
	set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true), CASE WHEN $1::boolean THEN set_config('synchronous_commit', 'off', true) END`)

// run runs the stages in one transaction, each in one round trip, and repeats the transaction if it
// conflicts with another one. fast means that the caller does not depend on the changes after a
// crash of the server, so that the commit need not wait for the disk.
func (s *Store) run(ctx context.Context, fast bool, stages ...stage) error {
	for try := 1; ; try++ {
		err := s.tryRun(ctx, fast, stages)
		if try == maxTries || !isConflict(err) {
			return err
		}
		select {
		case <-time.After(rand.N(time.Duration(try) * 10 * time.Millisecond)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *Store) tryRun(ctx context.Context, fast bool, stages []stage) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // closes the connection if its transaction is open or has failed; the server then rolls back
	for i, add := range stages {
		var p pipeline
		if i == 0 {
			p.exec(startText)
			p.exec(settingsOfTransaction, fast)
		}
		err, end := add(&p), commitText
		if err != nil {
			p, end = nil, abortText // immediately: the next claim skips what is locked
		}
		if i == len(stages)-1 || err != nil {
			p.exec(end)
		}
		if len(p) > 0 {
			err = cmp.Or(err, conn.SendBatch(ctx, s.batch(p)).Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
