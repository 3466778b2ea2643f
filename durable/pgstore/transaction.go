package pgstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

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

// batch returns the statements for a connection, between two others if those are not empty.
func (s *Store) batch(p pipeline, before, after string) *pgx.Batch {
	b := new(pgx.Batch)
	if before != "" {
		b.Queue(before)
	}
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
	if after != "" {
		b.Queue(after)
	}
	return b
}

// transaction is what a call does in one transaction. Its functions add statements, and may run
// several times.
type transaction struct {
	// fast means that the caller does not depend on the changes after a crash of the server, so
	// that the commit need not wait for the disk.
	fast bool

	// read adds the first statements. write uses their results, and adds the others, or returns an
	// error, with which nothing is changed. If write is nil, read adds the only statement, which is
	// a transaction of its own.
	read  func(*pipeline)
	write func(*pipeline, *pgxpool.Conn) error // the connection is that of the transaction
}

// maxTries is how often a transaction is tried that conflicts with others.
const maxTries = 10

const (
	startText  = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
	commitText = "COMMIT"
)

// The server ends the session of a process that stops between two round trips. Otherwise its locks
// would keep other processes waiting.
var settingsOfTransaction = newStatement(`
SELECT set_config('idle_in_transaction_session_timeout', '5000', true), CASE WHEN $1::boolean THEN set_config('synchronous_commit', 'off', true) END`)

// run runs a transaction. It runs it again if it conflicts with another one.
func (s *Store) run(ctx context.Context, t transaction) error {
	for try := 1; ; try++ {
		err := s.tryRun(ctx, t)
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

func (s *Store) tryRun(ctx context.Context, t transaction) (err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // closes a connection that is in a transaction
	var p pipeline
	if t.write != nil {
		p.exec(settingsOfTransaction, t.fast)
	}
	t.read(&p)
	if t.write == nil {
		return conn.SendBatch(ctx, s.batch(p, "", "")).Close()
	}
	if err := conn.SendBatch(ctx, s.batch(p, startText, "")).Close(); err != nil {
		return rollback(ctx, conn, err)
	}
	p = nil
	if err := t.write(&p, conn); err != nil {
		return rollback(ctx, conn, err)
	}
	return rollback(ctx, conn, conn.SendBatch(ctx, s.batch(p, "", commitText)).Close())
}

// rollback ends the transaction of a failed call, and returns the error of the call. Without it,
// the connection would be closed.
func rollback(ctx context.Context, conn *pgxpool.Conn, err error) error {
	if err != nil && !conn.Conn().IsClosed() && conn.Conn().PgConn().TxStatus() != 'I' {
		_, failed := conn.Exec(ctx, "ROLLBACK")
		err = errors.Join(err, failed)
	}
	return err
}
