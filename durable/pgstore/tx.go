package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Tx is the caller's transaction: a pgx.Tx, or the result of [SQL]. It must be in the database that
// holds the queue.
//
// The functions in this package that take a Tx make a few round trips in it, and do not end it. The
// errors [durable.ErrDuplicate], [durable.ErrDead], [durable.ErrFiring] and [durable.ErrInvalid]
// leave it usable. After any other error it must be rolled back. The functions do not retry: the
// caller retries the whole transaction after a serialization failure. The rows that they change are
// locked until the transaction ends.
type Tx interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Rollback(ctx context.Context) error // not called; keeps a pool, which is not a transaction, from being a Tx
}

// SQL returns a [Tx] for a database/sql transaction, with any PostgreSQL driver.
func SQL(tx *sql.Tx) Tx { return sqlTx{tx} }

type sqlTx struct{ tx *sql.Tx }

// QueryRow implements [Tx].
func (t sqlTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.tx.QueryRowContext(ctx, sql, args...)
}

// Rollback implements [Tx].
func (t sqlTx) Rollback(context.Context) error { return t.tx.Rollback() }

// EnqueueTx stores a message, as [durable.Queue.Enqueue] does, when the transaction commits. The
// delay counts from this call, not from the commit. If another transaction has enqueued the same
// id, EnqueueTx waits until that transaction ends. For a cron expression it may read the server's
// clock on a second connection from the pool.
//
// Consumers get no hint about the message. They find it with their next claim, at most
// ConsumerOptions.Fallback after the commit, so only a message with a shorter delay may be late.
// See [Options].NotifyTx.
func EnqueueTx(ctx context.Context, tx Tx, q *durable.Queue, m durable.Message) (id string, err error) {
	store, puts, err := q.Prepare(ctx, m)
	if err != nil {
		return "", err
	}
	put := puts[0]
	id = put.Items[0].ID
	b, err := backendOf(store)
	if err != nil {
		return id, fmt.Errorf("pgstore: enqueue message %q: %w", id, err)
	}
	var statuses []driver.Status
	err = b.callTx(ctx, func(ctx context.Context, ids *queueID) error {
		statuses, err = b.putTx(ctx, tx, ids.parts[put.Partition], &put)
		return err
	})
	if err == nil {
		err = statusErrors[statuses[0]]
	}
	if err != nil {
		return id, fmt.Errorf("pgstore: enqueue message %q: %w", id, err)
	}
	return id, nil
}

// statusErrors has the errors for the results of a put.
var statusErrors = map[driver.Status]error{
	driver.StatusDuplicate: durable.ErrDuplicate, driver.StatusDead: durable.ErrDead, driver.StatusFiring: durable.ErrFiring,
}

// CancelTx cancels a message, as [durable.Queue.Cancel] does, when the transaction commits. The
// result holds from then on.
func CancelTx(ctx context.Context, tx Tx, q *durable.Queue, id string) (durable.Result, error) {
	return changeTx(ctx, tx, q, driver.OpCancel, durable.ResultCancelled, driver.Change{ID: id})
}

// RescheduleTx makes a message due after d, as [durable.Queue.Reschedule] does, when the
// transaction commits. The delay counts from this call.
func RescheduleTx(ctx context.Context, tx Tx, q *durable.Queue, id string, d time.Duration) (durable.Result, error) {
	return changeTx(ctx, tx, q, driver.OpReschedule, durable.ResultRescheduled, driver.Change{ID: id, Delay: max(0, d)})
}

func changeTx(ctx context.Context, tx Tx, q *durable.Queue, op driver.Op, done durable.Result, c driver.Change) (durable.Result, error) {
	if c.ID == "" {
		return 0, fmt.Errorf("pgstore: %w id: empty", durable.ErrInvalid)
	}
	store, puts, err := q.Prepare(ctx, durable.Message{ID: c.ID}) // which checks the id
	if err != nil {
		return 0, fmt.Errorf("pgstore: %s: %w", op, err)
	}
	batch := driver.Batch{Partition: puts[0].Partition, Op: op, Changes: []driver.Change{c}}
	status, _, err := applyTx(ctx, tx, store, &batch)
	switch {
	case err != nil:
		return 0, err
	case status == driver.StatusDone:
		return done, nil
	case status == driver.StatusFiring:
		return durable.ResultFiring, nil
	default:
		return durable.ResultNotFound, nil
	}
}

// AckTx acknowledges a delivery when the transaction commits, so that a handler's effect and the
// acknowledgement commit together. The transaction must end before the handler returns. The
// consumer then checks whether the transaction has committed. If not, the message is released, or
// retried if the handler returned an error. A caller of Take calls Ack after the commit, and Ack
// makes the same check.
//
// The error is [durable.ErrLeaseLost] if another consumer may have the message: the transaction
// must then be rolled back.
func AckTx(ctx context.Context, tx Tx, d *durable.Delivery) error {
	store, batch, err := d.PrepareAck()
	if err != nil {
		return err
	}
	status, changed, err := applyTx(ctx, tx, store, &batch)
	if err == nil && (status != driver.StatusDone || !changed) {
		err = fmt.Errorf("pgstore: acknowledge message %q: %w", d.ID, durable.ErrLeaseLost)
	}
	return err
}

// applyTx makes a transition of one message in a caller's transaction. changed is false for a
// repetition.
func applyTx(ctx context.Context, tx Tx, store driver.Backend, batch *driver.Batch) (status driver.Status, changed bool, err error) {
	var a *application
	b, err := backendOf(store)
	if err == nil {
		err = b.callTx(ctx, func(ctx context.Context, ids *queueID) error {
			a = &application{batch: batch, l: loaded{part: ids.parts[batch.Partition]}}
			return b.store.runTx(ctx, tx, a.readAll, a.readMissing, a.writeAll,
				func(p *pipeline) error { return b.notify(p, a.l.part, a.l.lastClaim, a.earliest) })
		})
	}
	if err != nil {
		return 0, false, fmt.Errorf("pgstore: %s of message %q: %w", batch.Op, batch.Changes[0].ID, err)
	}
	r := a.l.rows[batch.Changes[0].ID]
	return a.outcomes[0].Status, r != nil && (r.changed || r.removed), nil
}

// A put that replaces a message can be repeated in a caller's transaction, if another one has
// stored the message after it was read.
var (
	savepointText = newStatement("SAVEPOINT timingwheel")
	rollbackText  = newStatement("ROLLBACK TO SAVEPOINT timingwheel")
	releaseText   = newStatement("RELEASE SAVEPOINT timingwheel")
)

// putTx stores a message in a caller's transaction.
func (b *backend) putTx(ctx context.Context, tx Tx, part int32, put *driver.Put) (statuses []driver.Status, err error) {
	if put.Replace {
		r := replacement{l: loaded{part: part}, put: put}
		begin := savepointText
		try := func() error {
			return b.store.runTx(ctx, tx, reading(func(p *pipeline) { p.exec(begin); r.read(p) }), r.write, func(p *pipeline) error {
				p.exec(releaseText)
				return b.notify(p, part, r.l.lastClaim, r.earliest)
			})
		}
		if err = try(); isStored(err) {
			begin = rollbackText
			err = try()
		}
		return r.statuses, err
	}
	var r putResult
	var found *bool
	err = b.store.runTx(ctx, tx,
		reading(func(p *pipeline) { found = p.row(putText, putArgs(part, &put.Call, put.Items), r.dest()...) }),
		func(p *pipeline) error {
			if !*found {
				return errGone
			}
			statuses = parseStatuses(*r.statuses)
			return b.notify(p, part, r.lastClaim, r.earliest)
		})
	return statuses, err
}

// notify adds the statement that sends a hint when the transaction commits, if Options.NotifyTx is
// set and a message is due before those that the last claim has left. The server sends the hints of
// a partition once.
func (b *backend) notify(p *pipeline, part int32, last lastClaim, earliest driver.Instant) error {
	if b.store.options.NotifyTx && last.isBefore(earliest) {
		p.rows(notifyText, []any{[]string{hint{part: part}.payload()}}, func(row scanner) error { return row.Scan(new(any)) })
	}
	return nil
}

// backendOf returns the queue behind a backend of this package.
func backendOf(store driver.Backend) (*backend, error) {
	b, ok := store.(*backend)
	if !ok {
		return nil, fmt.Errorf("%w queue: its store is not a pgstore.Store", driver.ErrInvalid)
	}
	return b, b.store.usable(context.Background())
}

// callTx is call for a caller's transaction, whose errors keep their kinds.
func (b *backend) callTx(ctx context.Context, do func(ctx context.Context, id *queueID) error) error {
	err := do(ctx, b.ids.Load())
	if errors.Is(err, errGone) {
		err = b.callAgain(ctx, do)
	}
	return err
}

// runTx runs the stages for one message in a caller's transaction.
func (s *Store) runTx(ctx context.Context, tx Tx, stages ...stage) error {
	for _, add := range stages {
		var p pipeline
		if err := add(&p); err != nil {
			return err
		}
		if err := s.sendTx(ctx, tx, p); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) sendTx(ctx context.Context, tx Tx, p pipeline) error {
	for _, q := range p {
		args := make([]any, len(q.args))
		for i, arg := range q.args {
			args[i] = plain(arg)
		}
		scan := q.scan
		if scan == nil {
			scan = func(row scanner) error { return row.Scan() }
		}
		err := scan(tx.QueryRow(ctx, s.single[q.statement], args...))
		if err != nil && !errors.Is(err, pgx.ErrNoRows) && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	return nil
}

// plain returns the value of an argument, or of the only element of a list, as database/sql accepts
// it.
func plain(arg any) any {
	v := reflect.ValueOf(arg)
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8 {
		v = v.Index(0)
	}
	switch {
	case v.CanInt():
		return v.Int()
	case v.Kind() == reflect.Slice:
		return v.Bytes()
	default:
		return v.Interface()
	}
}
