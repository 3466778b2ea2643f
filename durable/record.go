package durable

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// State is where the store has a message. The package comment has the transitions.
type State = driver.State

// The states of a message.
const (
	StateScheduled = driver.StateScheduled // waits for its due time, or is due and not claimed
	StateLeased    = driver.StateLeased    // claimed ahead by a consumer, and not begun
	StateFiring    = driver.StateFiring    // begun: a handler runs, or is about to
	StateDead      = driver.StateDead      // kept as a dead letter
)

// Record is a message as the store has it. Times are those of the store's clock, in milliseconds.
type Record struct {
	ID          string
	Body        []byte            // nil if Err is set
	Headers     map[string]string // nil if there are none
	ExpireAt    time.Time         // zero if the message does not expire
	Enqueued    time.Time
	Due         time.Time // of its next delivery
	MaxAttempts int       // deliveries that end in an error before it is dead
	Attempts    int       // deliveries that ended in an error
	Crashes     int       // deliveries that ended with the lease
	State       State
	Token       uint64    // of the last claim; 0 if there was none
	LeaseEnd    time.Time // of a leased or firing message, else zero
	Died        time.Time // of a dead letter, else zero
	Reason      string    // the last error, at most [driver.MaxReason] bytes

	// Err is [ErrVersion] if this program cannot read the message's content, because a newer
	// version has written it or because it is damaged. Body, Headers and ExpireAt are then unknown.
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
		Enqueued: r.Enqueued.Time(), Due: r.Due.Time(), State: r.State, Token: r.Token,
		MaxAttempts: r.MaxAttempts, Attempts: r.Attempts, Crashes: r.Crashes,
		LeaseEnd: timeOf(r.LeaseEnd), Died: timeOf(r.Died), Reason: r.Reason,
	}
}

// timeOf returns the time of an instant, and the zero time for 0, which stands for none.
func timeOf(i driver.Instant) time.Time {
	if i == 0 {
		return time.Time{}
	}
	return i.Time()
}

// Get returns a message as it is now, whether it is queued or a dead letter. [ErrNotFound] means
// that there is no such message, [ErrInvalid] that no message can have this id. If the store cannot
// be reached Get fails at once, with [ErrUnavailable]. The cost is a call of the store, which finds
// the message in O(1), a file in O(log n).
func (q *Queue) Get(ctx context.Context, id string) (Record, error) {
	err := q.usable(ctx)
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

// List iterates over the messages in one state, partition by partition, and within a partition in
// the order of their times. [StateLeased] stands for leased and firing messages; [StateFiring] is
// [ErrInvalid]. List reads pages of at most 256 messages. A message that changes its state or its
// time meanwhile may be missed or seen twice. An error ends the iteration.
func (q *Queue) List(ctx context.Context, state State) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		err := q.usable(ctx)
		if err == nil && state != StateScheduled && state != StateLeased && state != StateDead {
			err = fmt.Errorf("durable: list: %w state %v: %v, %v (firing messages too) and %v are accepted",
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

// pages iterates over the messages of a partition in one state, a page at a time. A page may be
// empty although more follow, because its records cannot be read. An error ends the iteration.
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
