package durable

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/oklog/ulid/v2"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Queue is a queue of delayed messages in a store. Its methods may be called from many goroutines; what they ask for at the same time
// shares round trips to a server, or an fsync of a file. A process opens a queue once.
type Queue struct {
	options Options
	backend driver.Backend
	parts   []*part
	ctx     context.Context // ends with Close
	cancel  context.CancelCauseFunc
	ids     *ulid.LockedMonotonicReader

	lateness *lateness
	outages  outages
	receiver *Receiver // of Take

	mu        sync.Mutex
	closing   bool
	consumers sync.WaitGroup         // Add with mu held and closing not set
	claiming  map[*consumer]struct{} // these
}

// part is a partition with what is to be written to it.
type part struct {
	q       *Queue
	index   int
	puts    batcher[putRequest, driver.Status]
	seq     uint64                                              // of the last put; touched by the batcher's goroutine only
	changes [driver.OpExpire + 1]batcher[driver.Change, answer] // but for OpBegin: each consumer has its own
}

type putRequest struct {
	item    driver.PutItem
	replace bool
}

// Open makes a queue in a store or joins one that exists. A nil store and invalid options are [ErrInvalid]; see
// [Store] for other errors. The store must stay open until [Queue.Close] has returned.
func Open(ctx context.Context, store Store, options Options) (*Queue, error) {
	if v := reflect.ValueOf(store); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("durable: open: %w store nil: one that New or Open of a store's package returned is accepted", ErrInvalid)
	}
	o, err := options.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("durable: open: %w", err)
	}
	backend, err := store.Open(ctx, driver.Config{
		Queue: o.Queue, Partitions: o.Partitions, DeadLimit: o.DeadLimit, DeadBytes: o.DeadBytes, DeadAge: o.DeadAge,
	})
	if err != nil {
		return nil, fmt.Errorf("durable: open queue %q: %w", o.Queue, err)
	}
	q := &Queue{options: o, backend: backend, claiming: make(map[*consumer]struct{}), lateness: newLateness()}
	q.ids = &ulid.LockedMonotonicReader{MonotonicReader: ulid.Monotonic(rand.Reader, 0)}
	q.ctx, q.cancel = context.WithCancelCause(context.Background())
	if q.receiver, err = q.Receiver(ConsumerOptions{}); err != nil {
		return nil, err
	}
	producer := newID(q)
	for i := range backend.Partitions() {
		q.parts = append(q.parts, newPart(q, i, producer))
	}
	return q, nil
}

func newPart(q *Queue, index int, producer string) *part {
	p := &part{q: q, index: index}
	p.puts.patience = q.options.RetryFor
	p.puts.key = func(r putRequest) string { return r.item.ID }
	p.puts.size = func(r putRequest) int { return len(r.item.Body) }
	p.puts.alike = func(a, b putRequest) bool { return a.replace == b.replace }
	p.puts.flush = func(requests []putRequest) ([]driver.Status, error) { return p.put(producer, requests) }
	for op := driver.OpAck; op <= driver.OpExpire; op++ {
		p.gather(&p.changes[op], func(changes []driver.Change) ([]answer, error) {
			return p.apply(driver.Batch{Partition: p.index, Op: op, Changes: changes})
		})
	}
	return p
}

// gather sets up a batcher of changes.
func (p *part) gather(b *batcher[driver.Change, answer], flush func([]driver.Change) ([]answer, error)) {
	b.patience = p.q.options.RetryFor
	b.key = func(c driver.Change) string { return c.ID }
	b.flush = flush
}

// put makes one call of the store, again and again while that cannot be reached: with the same number, so that
// what has taken place is not done twice.
func (p *part) put(producer string, requests []putRequest) (statuses []driver.Status, err error) {
	p.seq++
	put := driver.Put{Partition: p.index, Producer: producer, Seq: p.seq, Replace: requests[0].replace, Items: make([]driver.PutItem, len(requests))}
	for i, r := range requests {
		put.Items[i] = r.item
	}
	err = p.q.retry(func(ctx context.Context) error {
		statuses, err = p.q.backend.Put(ctx, put)
		return err
	})
	return statuses, err
}

// answer is what a store says of a change.
type answer struct {
	driver.Outcome
	sent     time.Time // when the call began that brought it
	repeated bool      // an earlier call for it got no answer, and may have taken place
}

// until is when the lease ends at the earliest, on the clock of this process: the store read its clock after the call began.
func (a *answer) until() time.Time { return a.sent.Add(a.Lease.Time().Sub(a.Now)) }

func (p *part) apply(batch driver.Batch) (answers []answer, err error) {
	repeated := false
	err = p.q.retry(func(ctx context.Context) error {
		sent, before := time.Now(), repeated
		repeated = true
		outcomes, err := p.q.backend.Apply(ctx, batch)
		answers = make([]answer, len(outcomes))
		for i, o := range outcomes {
			answers[i] = answer{o, sent, before}
		}
		return err
	})
	return answers, err
}

// change makes one transition of a message.
func (q *Queue) change(ctx context.Context, op driver.Op, c driver.Change) (answer, error) {
	if err := q.usable(ctx); err != nil {
		return answer{}, err
	}
	if err := checkID(c.ID); err != nil {
		return answer{}, err
	}
	return q.part(c.ID).changes[op].do(ctx, c)
}

// part is the partition of a message.
func (q *Queue) part(id string) *part { return q.parts[PartitionOf(id, len(q.parts))] }

// PartitionOf is the partition of a message in a queue with n of them.
func PartitionOf(id string, n int) int { return int(xxhash.Sum64String(id) % uint64(n)) }

func newID(q *Queue) string { return ulid.MustNew(ulid.Now(), q.ids).String() }

func (q *Queue) usable(ctx context.Context) error {
	if q.ctx.Err() != nil {
		return fmt.Errorf("durable: queue %q: %w", q.options.Queue, ErrClosed)
	}
	return context.Cause(ctx)
}

// Enqueue stores a message and returns its id when it is safe, as far as the store is: see there. A message whose
// id is queued already is [ErrDuplicate], with the id.
//
// Where the store cannot be reached the call goes on trying for Options.RetryFor, and stores the message once however often it tries. If it
// gives up, or ctx ends, the message may have been stored all the same; to enqueue it once more with the same id is safe
// as long as it has not been delivered.
func (q *Queue) Enqueue(ctx context.Context, m Message) (id string, err error) {
	if err := q.usable(ctx); err != nil {
		return "", err
	}
	if m.ID == "" {
		m.ID = newID(q)
	}
	item, err := q.item(&m)
	if err != nil {
		return "", fmt.Errorf("durable: enqueue: %w", err)
	}
	status, err := q.part(m.ID).puts.do(ctx, putRequest{item, m.Replace})
	return m.ID, putError(m.ID, status, err)
}

func putError(id string, status driver.Status, err error) error {
	switch {
	case err != nil:
	case status == driver.StatusDone:
		return nil
	case status == driver.StatusDuplicate:
		err = ErrDuplicate
	case status == driver.StatusFiring:
		err = ErrFiring
	default:
		err = fmt.Errorf("the store answers with status %d", status)
	}
	return fmt.Errorf("durable: enqueue message %q: %w", id, err)
}

// EnqueueBatch stores messages and returns their ids, in the same order. It is not one transaction: each message is stored on its own,
// and the error joins those of the messages that were not, each with its id. Where any message is invalid none is stored.
func (q *Queue) EnqueueBatch(ctx context.Context, messages []Message) (ids []string, err error) {
	if err := q.usable(ctx); err != nil {
		return nil, err
	}
	items := make([]driver.PutItem, len(messages))
	ids = make([]string, len(messages))
	for i := range messages {
		m := messages[i]
		if m.ID == "" {
			m.ID = newID(q)
		}
		if items[i], err = q.item(&m); err != nil {
			return nil, fmt.Errorf("durable: enqueue: message %d: %w", i, err)
		}
		ids[i] = m.ID
	}
	return ids, q.putAll(ctx, messages, items)
}

// putAll gives each partition its messages at once, so that they share calls.
func (q *Queue) putAll(ctx context.Context, messages []Message, items []driver.PutItem) error {
	byPart := make([][]*call[putRequest, driver.Status], len(q.parts))
	calls := make([]*call[putRequest, driver.Status], len(items))
	for i := range items {
		calls[i] = newCall[putRequest, driver.Status](putRequest{items[i], messages[i].Replace})
		p := PartitionOf(items[i].ID, len(q.parts))
		byPart[p] = append(byPart[p], calls[i])
	}
	for p, cs := range byPart {
		if len(cs) > 0 {
			q.parts[p].puts.add(cs...)
		}
	}
	var failed []error
	for i, c := range calls {
		status, err := c.wait(ctx)
		if err := putError(items[i].ID, status, err); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// Result is what became of a message that was to be cancelled or rescheduled.
type Result uint8

// The results of [Queue.Cancel] and [Queue.Reschedule].
const (
	Cancelled   Result = iota + 1 // it will not be delivered
	Rescheduled                   // it will be delivered at the new time
	Firing                        // too late: it is being delivered, and may be again if that fails
	NotFound                      // there is no such message; or it has been delivered, or is a dead letter
)

// Cancel takes a message out of the queue that has not begun, be it claimed ahead by a consumer or not. The answer is exact: after Cancelled no
// handler is called any more; after [Firing] one is, unless its process ends. A message that comes again, after an error or a crash, can be cancelled
// in between: then a handler has been called before. Where a reply of the store was lost and the message is gone when the call is repeated, nobody knows: that is
// [ErrUnavailable].
func (q *Queue) Cancel(ctx context.Context, id string) (Result, error) {
	return q.move(ctx, driver.OpCancel, Cancelled, driver.Change{ID: id})
}

// Reschedule gives a message that has not begun another due time: d from now on the store's clock, rounded up to milliseconds; 0 or less is
// due at once. What was said of [Queue.Cancel] goes for its answers.
func (q *Queue) Reschedule(ctx context.Context, id string, d time.Duration) (Result, error) {
	return q.move(ctx, driver.OpReschedule, Rescheduled, driver.Change{ID: id, Delay: max(0, d)})
}

// RescheduleAt is [Queue.Reschedule] to a time on the store's clock.
func (q *Queue) RescheduleAt(ctx context.Context, id string, t time.Time) (Result, error) {
	return q.move(ctx, driver.OpReschedule, Rescheduled, driver.Change{ID: id, At: max(1, driver.InstantOf(t))})
}

func (q *Queue) move(ctx context.Context, op driver.Op, done Result, c driver.Change) (Result, error) {
	outcome, err := q.change(ctx, op, c)
	if err != nil {
		return 0, fmt.Errorf("durable: message %q: %w", c.ID, err)
	}
	switch outcome.Status {
	case driver.StatusDone:
		return done, nil
	case driver.StatusFiring:
		return Firing, nil
	}
	if outcome.repeated {
		return 0, fmt.Errorf("durable: message %q: %w: the reply to a call was lost, and it is gone now: the call has taken place, or it had been delivered before", c.ID, ErrUnavailable)
	}
	return NotFound, nil
}

// Get returns a message, or [ErrNotFound].
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
