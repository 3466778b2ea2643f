package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// Errors that callers compare with errors.Is. Methods return errors that wrap one of these and name
// the rejected value or the failed operation.
var (
	// ErrDuplicate means that a queued or dead message has this id.
	ErrDuplicate = errors.New("a message with this id already exists")

	// ErrDead means that a dead letter has this id. It wraps [ErrDuplicate]. See [Queue.Replay] and
	// Message.Replace.
	ErrDead = fmt.Errorf("%w as a dead letter, which Replay delivers and Replace replaces", ErrDuplicate)

	// ErrNotFound means that the message does not exist.
	ErrNotFound = driver.ErrNotFound

	// ErrInUse means that the queue still has consumers. See [DeleteQueue].
	ErrInUse = errors.New("the queue has consumers")

	// ErrNoQueue means that the queue does not exist in the store. See Options.Existing and
	// [DeleteQueue].
	ErrNoQueue = driver.ErrNoQueue

	// ErrFiring means that the delivery of the message has begun, so it cannot be replaced.
	ErrFiring = errors.New("the message is already being delivered")

	// ErrLeaseLost means that the delivery is over. Either its lease has expired and the message is
	// redelivered, or the delivery was already settled.
	ErrLeaseLost = errors.New("the lease has expired, or the delivery was already settled")

	// ErrInterrupted means that [Queue.Cancel] with [Interrupt] has cancelled the message during
	// its delivery. The handler's context ends with this cause. [Delivery.Extend] extends the lease
	// and then returns ErrInterrupted.
	ErrInterrupted = errors.New("the message was cancelled during its delivery")

	// ErrBusy means that too many calls are waiting for the store. The call was not sent. See
	// Options.MaxWaiting.
	ErrBusy = errors.New("too many calls are waiting for the store")

	// ErrClosed means that the queue, the receiver or the store is closed.
	ErrClosed = driver.ErrClosed

	// ErrInvalid means that an argument or an option is out of range. The call changed nothing.
	ErrInvalid = driver.ErrInvalid

	// ErrPartitions means that the queue exists with a different number of partitions. See
	// Options.Partitions.
	ErrPartitions = driver.ErrPartitions

	// ErrOptions means that the queue exists with other limits. The error names both. See
	// Options.Update.
	ErrOptions = driver.ErrOptions

	// ErrVersion means that this version of the program cannot read the data: it is in a newer or
	// older format, is damaged or is not a queue. Stores also return ErrVersion if the server is
	// too old.
	ErrVersion = driver.ErrVersion

	// ErrLocked means that another process has the store open.
	ErrLocked = driver.ErrLocked

	// ErrFull means that the store has no room. Nothing was stored, unless the error also wraps
	// ErrOutcomeUnknown. Messages are still delivered and settled.
	ErrFull = driver.ErrFull

	// ErrUnsafe means that the store may lose messages, or may have lost some. The error says why.
	ErrUnsafe = driver.ErrUnsafe

	// ErrBroken means that the store has failed permanently. Close it and open it again, or restore
	// its data.
	ErrBroken = driver.ErrBroken

	// ErrUnavailable means that the store is unreachable. A later call may succeed.
	ErrUnavailable = driver.ErrUnavailable

	// ErrOutcomeUnknown means that a call to change a message may have taken effect: its context
	// has ended, the store is unreachable, or the queue was closed. On a server the call may still
	// take effect until Options.RetryFor (at least ten seconds) has passed. After any other error,
	// a call for one message has not changed it, except as Extend and PrepareAck say. Other calls
	// return an error per message, or counts.
	ErrOutcomeUnknown = errors.New("the call may have taken effect")
)

// unknown adds [ErrOutcomeUnknown] to an error.
func unknown(err error) error { return fmt.Errorf("%w (%w)", err, ErrOutcomeUnknown) }

// sentError is unknown for the error of a call that was sent, unless the store has answered.
func sentError(err error) error {
	if (errors.Is(err, ErrUnavailable) || errors.As(err, new(*contract.UnderWayError))) && !errors.Is(err, ErrOutcomeUnknown) {
		return unknown(err)
	}
	return err
}

// fault is a background error that concerns a partition or one of its messages.
type fault struct {
	partition int    // -1: the whole queue
	id        string // empty: no message
	err       error
	repeats   bool // the call is repeated soon, and may fail again
}

// report is reportFault for an error that concerns the whole queue.
func (q *Queue) report(format string, args ...any) {
	q.reportFault(fault{partition: -1, err: fmt.Errorf(format, args...)})
}

// reportFault passes a fault to the log, OnError and OnEvent. No lock is held, because these
// functions are user code.
func (q *Queue) reportFault(f fault) {
	kind, level := EventError, slog.LevelError
	switch {
	case errors.Is(f.err, ErrLeaseLost):
		kind, level = EventLeaseLost, slog.LevelWarn
	case errors.Is(f.err, ErrUnavailable):
		level = slog.LevelWarn
	}
	err := f.err
	if f.id != "" {
		err = fmt.Errorf("message %q: %w", f.id, err)
	} else if f.partition >= 0 {
		err = fmt.Errorf("partition %d: %w", f.partition, err)
	}
	err = fmt.Errorf("durable: queue %q: %w", q.options.Queue, err)
	q.log(level, kind, f)
	if q.options.OnError != nil {
		q.options.OnError(err)
	}
	if q.options.OnEvent != nil {
		q.emit(Event{Kind: kind, Partition: f.partition, Time: time.Now(), ID: f.id, Err: err})
	}
}

// logLimit admits one log record per second: many calls and deliveries may fail.
type logLimit struct {
	mu      sync.Mutex
	logged  time.Time
	skipped int // records since logged
}

// admit reports whether a record should be written, and how many were skipped before it.
func (l *logLimit) admit() (skipped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.logged.IsZero() && now.Sub(l.logged) < time.Second {
		l.skipped++
		return 0, false
	}
	skipped, l.skipped, l.logged = l.skipped, 0, now
	return skipped, true
}

// logFailure logs why a delivery has failed or was declined, unless it is a panic, which was
// reported before.
func (d *Delivery) logFailure(change *driver.Change, cause error) {
	if _, panicked := cause.(*PanicError); panicked { //nolint:errorlint // As may panic
		return
	}
	q, text := d.from().q, "durable: delivery failed"
	if change.Uncounted {
		text = "durable: message declined"
	}
	if skipped, ok := q.logLimits.failures.admit(); ok {
		q.options.Logger.LogAttrs(context.Background(), slog.LevelWarn, text,
			slog.String("queue", q.options.Queue), slog.Int("partition", d.h.part.index), slog.String("id", d.h.record.ID),
			slog.Int("attempt", d.h.record.Attempts+1), slog.Duration("delay", change.Delay), slog.Any("err", cause), slog.Int("skipped", skipped))
	}
}

func (q *Queue) log(level slog.Level, kind EventKind, f fault) {
	attrs := []slog.Attr{slog.String("queue", q.options.Queue)}
	if f.partition >= 0 {
		attrs = append(attrs, slog.Int("partition", f.partition))
	}
	if f.id != "" {
		attrs = append(attrs, slog.String("id", f.id))
	}
	attrs = append(attrs, slog.Any("err", f.err))
	text := "durable: background call failed"
	switch {
	case kind == EventLeaseLost:
		text = "durable: lease lost"
	case f.repeats || errors.Is(f.err, ErrUnavailable):
		skipped, ok := q.logLimits.outages.admit()
		if !ok {
			return
		}
		attrs = append(attrs, slog.Int("skipped", skipped))
	}
	q.options.Logger.LogAttrs(context.Background(), level, text, attrs...)
}
