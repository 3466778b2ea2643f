package durable

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
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

	room     *room
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
	clock   atomic.Pointer[clockReading] // nil: the store has not told
	puts    batcher[putRequest, driver.Status]
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
	q := &Queue{options: o, backend: backend, claiming: make(map[*consumer]struct{}), lateness: new(lateness)}
	q.room = &room{calls: o.MaxWaiting, bytes: o.MaxWaitingBytes, patience: o.RetryFor}
	q.ids = &ulid.LockedMonotonicReader{MonotonicReader: ulid.Monotonic(rand.Reader, 0)}
	q.ctx, q.cancel = context.WithCancelCause(context.Background())
	if q.receiver, err = q.Receiver(ConsumerOptions{}); err != nil {
		return nil, err
	}
	name := newID(q)
	for i := range backend.Partitions() {
		q.parts = append(q.parts, newPart(q, i, name))
	}
	if checker, ok := backend.(driver.Checker); ok {
		go q.check(checker)
	}
	return q, nil
}

// checkInterval is how often a store is checked that may be set up anew at any time.
const checkInterval = time.Minute

// check tells OnError when the store is not safe any more, and again when it is unsafe in another way.
func (q *Queue) check(checker driver.Checker) {
	for told := ""; ; {
		pause(q.ctx, checkInterval)
		if q.ctx.Err() != nil {
			return
		}
		err := checker.Check(q.ctx)
		switch {
		case err == nil:
			told = ""
		case errors.Is(err, ErrUnavailable) || q.ctx.Err() != nil || err.Error() == told:
		default:
			told = err.Error()
			q.report("%w", err)
		}
	}
}

func newPart(q *Queue, index int, name string) *part {
	p := &part{q: q, index: index}
	p.puts.patience = q.options.RetryFor
	p.puts.key = func(r putRequest) string { return r.item.ID }
	p.puts.size = func(r putRequest) int { return len(r.item.Body) - 1 } // without the version of the envelope
	p.puts.alike = func(a, b putRequest) bool { return a.replace == b.replace }
	producer := &caller{p: p, name: name}
	p.puts.flush = func(requests []putRequest) ([]driver.Status, error) { return p.put(producer, requests) }
	_, groups := q.backend.(driver.Grouper)
	if groups {
		p.puts.alone = p.putOne
	}
	for op := driver.OpAck; op <= driver.OpExpire; op++ {
		apply := p.apply
		if op >= driver.OpCancel && op <= driver.OpPurge {
			once := &caller{p: p, name: name + ":" + op.String()}
			apply = func(batch driver.Batch) ([]answer, error) { return p.applyOnce(once, batch) }
		}
		p.gather(&p.changes[op], func(changes []driver.Change) ([]answer, error) {
			return apply(driver.Batch{Partition: p.index, Op: op, Changes: changes})
		})
		if groups {
			p.changes[op].alone = func(ctx context.Context, c driver.Change) (answer, error) { return p.changeOne(ctx, op, c) }
		}
	}
	return p
}

// putOne stores a message in a store that groups calls.
func (p *part) putOne(ctx context.Context, r putRequest) (driver.Status, error) {
	statuses, err := p.q.backend.Put(ctx, driver.Put{Partition: p.index, Replace: r.replace, Items: []driver.PutItem{r.item}})
	if err != nil {
		return 0, err
	}
	return statuses[0], nil
}

// changeOne makes one transition in a store that groups calls.
func (p *part) changeOne(ctx context.Context, op driver.Op, c driver.Change) (answer, error) {
	sent := time.Now()
	outcomes, err := p.q.backend.Apply(ctx, driver.Batch{Partition: p.index, Op: op, Changes: []driver.Change{c}})
	if err != nil {
		return answer{}, err
	}
	return answer{outcomes[0], sent, false}, nil
}

// gather sets up a batcher of changes.
func (p *part) gather(b *batcher[driver.Change, answer], flush func([]driver.Change) ([]answer, error)) {
	b.patience = p.q.options.RetryFor
	b.key = func(c driver.Change) string { return c.ID }
	b.flush = flush
}

// put stores messages.
func (p *part) put(producer *caller, requests []putRequest) (statuses []driver.Status, err error) {
	put := driver.Put{Partition: p.index, Replace: requests[0].replace, Items: make([]driver.PutItem, len(requests))}
	for i, r := range requests {
		put.Items[i] = r.item
	}
	err = producer.call(func(ctx context.Context, call driver.Call) (err error) {
		put.Call = call
		statuses, err = p.q.backend.Put(ctx, put)
		return err
	})
	return statuses, err
}

// applyOnce makes a transition that needs no token.
func (p *part) applyOnce(c *caller, batch driver.Batch) (answers []answer, err error) {
	var outcomes []driver.Outcome
	err = c.call(func(ctx context.Context, call driver.Call) (err error) {
		batch.Call = call
		outcomes, err = p.q.backend.Apply(ctx, batch)
		return err
	})
	answers = make([]answer, len(outcomes))
	for i, o := range outcomes {
		answers[i].Outcome = o
	}
	return answers, err
}

// answer is what a store says of a change.
type answer struct {
	driver.Outcome
	sent     time.Time // when the call began that brought it
	repeated bool      // an earlier call with the token got no answer, and may have taken place
}

// until is when the lease ends at the earliest, on the clock of this process: the store read its clock after the call began.
func (a *answer) until() time.Time { return a.sent.Add(a.Lease.Time().Sub(a.Now)) }

// apply makes a transition that needs a token, or one that is idempotent.
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
	return q.part(c.ID).changes[op].do(ctx, q.room, c)
}

// Name returns the name of the queue: Options.Queue.
func (q *Queue) Name() string { return q.options.Queue }

// part is the partition of a message.
func (q *Queue) part(id string) *part { return q.parts[PartitionOf(id, len(q.parts))] }

// PartitionOf is the partition of a message in a queue with n of them.
func PartitionOf(id string, n int) int { return int(xxhash.Sum64String(id) % uint64(n)) }

func newID(q *Queue) string { return ulid.MustNew(ulid.Now(), q.ids).String() }

func (q *Queue) usable(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("durable: queue %q: %w context: it is nil", q.options.Queue, ErrInvalid)
	}
	if q.ctx.Err() != nil {
		return fmt.Errorf("durable: queue %q: %w", q.options.Queue, ErrClosed)
	}
	return context.Cause(ctx)
}

// Enqueue stores a message and returns its id when it is safe, as far as the store is: see there. A message whose
// id is queued already is [ErrDuplicate], with the id.
//
// If the store cannot be reached the call goes on trying for Options.RetryFor, and stores the message once however often it tries. If it gives up
// with [ErrUnavailable], or ctx ends, the message may have been stored, or may be until RetryFor (at least ten seconds) has passed
// on the store's clock. To enqueue it once more with the same id is safe as long as it has not been delivered. [ErrBusy] says that too
// many calls wait for the store (Options.MaxWaiting); then nothing was stored. [ErrFull] says that the store has no room. Nothing was
// stored, unless the reply to an earlier copy of the call was lost: then the error is [ErrUnavailable] as well. A call whose ctx ends before it was sent is not sent.
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
	status, err := q.part(m.ID).puts.do(ctx, q.room, putRequest{item, m.Replace})
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

// EnqueueBatch stores messages and returns their ids, in the same order. It is not one transaction: each message is stored on its own. If
// any was not, the error is a [*BatchError], which has the error of each message; ids has all of them even then. If any message is
// invalid, none is stored and ids is nil. Errors and contexts are those of [Queue.Enqueue].
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

// BatchError says which messages of [Queue.EnqueueBatch] were not stored. errors.Is and errors.As find what any of them has met.
type BatchError struct {
	// Errors has an error for each message, in the order of the messages: nil for one that was stored. Each names the id.
	Errors []error
}

// Error has the errors of the messages, one in each line, and says how many there are beyond the first ten.
func (e *BatchError) Error() string {
	const most = 10
	failed := e.Unwrap()
	text := errors.Join(failed[:min(most, len(failed))]...)
	if len(failed) > most {
		return fmt.Sprintf("%v\nand %d more of %d messages were not enqueued", text, len(failed)-most, len(e.Errors))
	}
	return fmt.Sprint(text)
}

// Unwrap returns the errors of the messages that were not stored.
func (e *BatchError) Unwrap() []error {
	var failed []error
	for _, err := range e.Errors {
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// putAll gives each partition as many messages at once as there is room for, so that they share calls.
func (q *Queue) putAll(ctx context.Context, messages []Message, items []driver.PutItem) error {
	calls := make([]*call[putRequest, driver.Status], len(items))
	errs := make([]error, len(items))
	for next := 0; next < len(items); {
		byPart := make([][]*call[putRequest, driver.Status], len(q.parts))
		err := q.room.enter(ctx, len(items[next].Body))
		if err != nil {
			for i := next; i < len(items); i++ {
				errs[i] = err
			}
			break
		}
		for entered := true; entered; entered = next < len(items) && q.room.tryEnter(len(items[next].Body)) {
			c := newCall[putRequest, driver.Status](putRequest{items[next], messages[next].Replace})
			c.room, c.bytes = q.room, len(items[next].Body)
			p := PartitionOf(items[next].ID, len(q.parts))
			calls[next], byPart[p] = c, append(byPart[p], c)
			next++
		}
		for p, cs := range byPart {
			if len(cs) > 0 {
				q.parts[p].puts.add(cs...)
			}
		}
	}
	failed := false
	for i, c := range calls {
		var status driver.Status
		err := errs[i]
		if c != nil {
			status, err = q.part(items[i].ID).puts.wait(ctx, c)
		}
		errs[i] = putError(items[i].ID, status, err)
		failed = failed || errs[i] != nil
	}
	if !failed {
		return nil
	}
	return &BatchError{errs}
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

// Cancel takes a message out of the queue that has not begun, be it claimed ahead by a consumer or not. The answer is exact, also if a reply of
// the store was lost and the call was repeated: after Cancelled no handler is called any more; after [Firing] one is, unless its
// process ends. A message that comes again, after an error or a crash, can be cancelled in between: then a handler has been called before.
//
// If the call gives up with [ErrUnavailable], or ctx ends, it may have taken place, or may until Options.RetryFor (at least ten seconds) has
// passed on the store's clock. A call that has returned an answer touches nothing later, such as a new message with the same id.
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
