package durable

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// State is the state of a message in the store. The package documentation lists the transitions.
type State = driver.State

// The states of a message.
const (
	StateScheduled = driver.StateScheduled // waits for its due time, or is due and not claimed
	StateLeased    = driver.StateLeased    // claimed by a consumer and not begun
	StateFiring    = driver.StateFiring    // begun: a handler is running or is about to run
	StateDead      = driver.StateDead      // kept as a dead letter
)

// Record is a message as stored. Times are on the store's clock, in milliseconds.
type Record struct {
	ID          string
	Body        []byte            // nil if Err is set
	Headers     map[string]string // nil if there are none
	ExpireAt    time.Time         // zero if the message does not expire
	Enqueued    time.Time         // time of Enqueue
	Due         time.Time         // of the next delivery
	Repeat      string            // Message.Repeat
	MaxAttempts int               // failed deliveries after which the message becomes a dead letter
	Attempts    int               // failed deliveries
	Crashes     int               // deliveries whose lease expired
	State       State
	LeaseEnd    time.Time // of a leased or firing message, otherwise zero
	Died        time.Time // of a dead letter, otherwise zero
	Reason      string    // the last error, at most 512 bytes

	// Err wraps [ErrVersion] if this program cannot read the content of the message, because a
	// newer version wrote it or it is damaged. In that case Body, Headers and ExpireAt are unknown.
	Err error
}

// newRecord converts a record of the store.
func newRecord(r *driver.Record) Record {
	c, err := decodeEnvelope(r.Body)
	if err != nil {
		err = fmt.Errorf("durable: message %q: %w", r.ID, err)
	}
	return Record{
		ID: r.ID, Body: c.body, Headers: c.headers, ExpireAt: timeOf(c.expire), Err: err,
		Enqueued: r.Enqueued.Time(), Due: r.Due.Time(), Repeat: r.Repeat, State: r.State,
		MaxAttempts: r.MaxAttempts, Attempts: r.Attempts, Crashes: r.Crashes,
		LeaseEnd: timeOf(r.LeaseEnd), Died: timeOf(r.Died), Reason: r.Reason,
	}
}

// timeOf returns the time of an instant. It returns the zero time for 0, which means none.
func timeOf(i driver.Instant) time.Time {
	if i == 0 {
		return time.Time{}
	}
	return i.Time()
}

// Get returns the current record of a queued or dead message. [ErrNotFound] means that the message
// does not exist, and [ErrInvalid] that no message can have this id. If the store is unreachable,
// Get fails immediately with [ErrUnavailable]. The cost is one call to the store, which finds the
// message in O(1), or in O(log n) on disk.
func (q *Queue) Get(ctx context.Context, id string) (Record, error) {
	err := q.checkOpen(ctx)
	if err == nil {
		err = checkID(id)
	}
	var r driver.Record
	if err == nil {
		r, err = q.backend.Get(ctx, q.part(id).index, id)
	}
	if err != nil {
		return Record{}, fmt.Errorf("durable: get message %q: %w", id, err)
	}
	return newRecord(&r), nil
}

// List returns an iterator over the messages in one state, one partition after another. Within a
// partition the messages are ordered by their times. [StateLeased] selects leased and firing
// messages. For [StateFiring] the error is [ErrInvalid]. List reads pages of at most 256 messages.
// A message whose state or time changes during the iteration may be missed or returned twice. An
// error ends the iteration.
func (q *Queue) List(ctx context.Context, state State) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		err := q.checkOpen(ctx)
		if err == nil && state != StateScheduled && state != StateLeased && state != StateDead {
			err = fmt.Errorf("durable: list: %w state %v; it must be %v, %v (which includes firing messages) or %v",
				ErrInvalid, state, StateScheduled, StateLeased, StateDead)
		}
		if err != nil {
			yield(Record{}, err)
			return
		}
		for _, p := range q.parts {
			for records, err := range p.pages(ctx, state) {
				if err != nil {
					yield(Record{}, err)
					return
				}
				for i := range records {
					if !yield(newRecord(&records[i]), nil) {
						return
					}
				}
			}
		}
	}
}

// pages returns an iterator over the messages of a partition in one state, one page at a time. A
// page may be empty although more pages follow, because its records cannot be read. An error ends
// the iteration.
func (p *part) pages(ctx context.Context, state State) iter.Seq2[[]driver.Record, error] {
	return func(yield func([]driver.Record, error) bool) {
		for cursor := ""; ; {
			records, next, err := p.q.backend.List(ctx, p.index, state, cursor, driver.MaxBatch)
			if err != nil {
				yield(nil, fmt.Errorf("durable: list partition %d: %w", p.index, err))
				return
			}
			if cursor = next; !yield(records, nil) || cursor == "" {
				return
			}
		}
	}
}
