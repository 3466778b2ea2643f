// Package pgstore stores the queues of package durable in PostgreSQL, version 13 or later. A
// message can commit with the rows of a program's own transaction: see [EnqueueTx]. A program
// creates the tables once with [Migrate], and passes its pool to [New] and the [Store] to
// durable.Open.
//
// Each transition of up to 256 messages is one transaction, of one or two round trips. Only the
// server's clock decides whether a message is due. Rows are locked, so transactions of the program
// that enqueue, cancel, reschedule or acknowledge messages should be short: other calls for the
// same message wait for them. Claims and renewals of leases skip locked messages.
//
// # Tables
//
// All tables are in one schema: see [Options]. A queue has one row in queues and, for each of its
// partitions, one in partitions and one in claims. A message is a row of messages. The table counts
// has the changes of the counts since the last claims, calls has what each caller has called last,
// and members the consumers.
//
// # Rights
//
// Migrate needs the right to create the schema and its tables. All else needs USAGE of the schema,
// and SELECT, INSERT, UPDATE and DELETE of its tables.
package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Store is a [driver.Store] and [driver.Lister] in a schema of a database, made by [New]. A Store
// is safe for concurrent use. A zero Store is not usable: Open returns [driver.ErrInvalid].
type Store struct {
	lister
	pool   *pgxpool.Pool
	schema string

	options Options
	texts   []string // of the statements
	single  []string // of the same statements, for one message: see scalar
	hub     *hub

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
}

type lister = driver.Lister

var _ driver.Store = (*Store)(nil)

// Options are the options of [New] and [Migrate].
type Options struct {
	// Schema is the name of the schema with the tables: 1 to 63 letters, digits and '_', not
	// beginning with a digit. The default is "timingwheel".
	Schema string

	// NotifyTx makes [EnqueueTx] and [RescheduleTx] send a hint to consumers when the transaction
	// commits, if the message is due before all others of its partition. Such a message is then on
	// time even if its delay is shorter than ConsumerOptions.Fallback. The server commits all
	// transactions that notify one after another, so many of them limit its rate of commits.
	NotifyTx bool

	// AllowLossOnCrash lets Open accept a server that may lose or damage what it has committed: see
	// [driver.Checker]. The option is for tests.
	AllowLossOnCrash bool
}

var validSchema = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

func (o Options) withDefaults() (Options, error) {
	o.Schema = cmp.Or(o.Schema, "timingwheel")
	if !validSchema.MatchString(o.Schema) {
		return o, fmt.Errorf("pgstore: %w Options.Schema %.80q; it must be 1 to 63 letters, digits and '_', and not begin with a digit",
			driver.ErrInvalid, o.Schema)
	}
	return o, nil
}

// New returns a store that uses a pool. The caller still owns the pool, and closes it after the
// store. New does no I/O. It returns [driver.ErrInvalid] for invalid options and for a nil pool.
//
// The store uses one connection of the pool for each call in progress. While a queue is consumed,
// it has one more, beyond the limit of the pool, which listens for hints.
func New(pool *pgxpool.Pool, options Options) (*Store, error) {
	o, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, fmt.Errorf("pgstore: %w pool: it is nil", driver.ErrInvalid)
	}
	s := &Store{pool: pool, schema: o.Schema, options: o}
	for _, text := range statements {
		text = s.named(text)
		s.texts, s.single = append(s.texts, text), append(s.single, scalar.ReplaceAllString(text, "ARRAY[${1}]"))
	}
	s.lister = queues{s}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.hub = newHub(s)
	return s, nil
}

// Close ends the watches of the store, and all later calls return [driver.ErrClosed]. Calls under
// way continue. The pool stays open. Close returns nil, and a second Close does nothing.
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
