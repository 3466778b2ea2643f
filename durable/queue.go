package durable

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Store keeps queues: in memory (package memstore), in a file (package boltstore) or on Redis
// (package redisstore). One of these packages makes it, and [Open] takes it. A store may hold
// several queues. What a store implements is described in package driver.
type Store = driver.Store

// Queue is a queue of delayed messages in a store. Its methods may be called from several
// goroutines. Calls that are made at the same time share round trips to a server, or an fsync of a
// file. A process opens a queue once.
type Queue struct {
	options Options
	backend driver.Backend
	parts   []*part
	ctx     context.Context // ends with Close
	cancel  context.CancelCauseFunc
	ids     *ulid.LockedMonotonicReader

	room     *room
	lateness *lateness
	unsafe   atomic.Pointer[error] // says how the store may lose messages, as of the last check
	outages  outages
	receiver *Receiver // of Take

	mu        sync.Mutex
	closing   bool
	consumers sync.WaitGroup         // what Shutdown waits for; Add is called under mu, unless closing is set
	claiming  map[*consumer]struct{} // the consumers that have not stopped

	recoveries sync.WaitGroup // of claims without an answer; consumers start them before they have stopped
}

// Open joins a queue of a store. It makes the queue if there is none, unless Options.Existing is set. A nil store and invalid options are
// [ErrInvalid]. A number of partitions other than that of the existing queue is [ErrPartitions].
// Stores return [ErrVersion], [ErrUnsafe], [ErrUnavailable] and other errors: see the Open or New
// of their packages. The store must stay open until [Queue.Close] has returned.
func Open(ctx context.Context, store Store, options Options) (*Queue, error) {
	if v := reflect.ValueOf(store); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("durable: open: %w store nil: one that New or Open of a store's package returned is accepted",
			ErrInvalid)
	}
	o, err := options.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("durable: open: %w", err)
	}
	backend, err := store.Open(ctx, driver.Config{
		Queue: o.Queue, Partitions: o.Partitions, Existing: o.Existing,
		DeadLimit: o.DeadLimit, DeadBytes: o.DeadBytes, DeadAge: o.DeadAge,
	})
	if err != nil {
		return nil, fmt.Errorf("durable: open queue %q: %w", o.Queue, err)
	}
	q := &Queue{options: o, backend: backend, claiming: make(map[*consumer]struct{}), lateness: new(lateness)}
	q.room = &room{calls: o.MaxWaiting, bytes: o.MaxWaitingBytes, maxWait: o.RetryFor}
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

// Name returns the name of the queue: Options.Queue.
func (q *Queue) Name() string { return q.options.Queue }

// part returns the partition of a message.
func (q *Queue) part(id string) *part { return q.parts[driver.PartitionOf(id, len(q.parts))] }

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

// Enqueue stores a message and returns its id when the message is safe, as far as the store keeps
// it safe. A message whose id is queued already, or is a dead letter, is [ErrDuplicate] (see
// Message.Replace). An invalid message is [ErrInvalid]. The cost is a call of the store, which is
// shared with calls that are made at the same time.
//
// If the store cannot be reached the call tries again for Options.RetryFor. It stores the message
// once, however often it tries. If it gives up with [ErrUnavailable], or ctx ends, the message may
// have been stored, or may be stored until RetryFor (at least ten seconds) has passed on the
// store's clock. It is safe to enqueue the message again with the same id as long as it has not
// been delivered. A call whose ctx ends before it was sent is not sent.
//
// [ErrBusy] means that too many calls wait for the store (Options.MaxWaiting); nothing was stored.
// [ErrFull] means that the store has no room; nothing was stored, unless the reply to an earlier
// copy of the call was lost, in which case the error is [ErrUnavailable] as well.
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

// EnqueueBatch stores messages and returns their ids, in the same order. EnqueueBatch is not one
// transaction: each message is stored on its own. If any message is invalid, none is stored and ids
// is nil. If any message was not stored, the error is a [*BatchError], which has the error of each
// message, and ids has all ids. Errors and contexts are those of [Queue.Enqueue].
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

// BatchError has the errors of [Queue.EnqueueBatch]. errors.Is and errors.As look at each of them.
type BatchError struct {
	// Errors has an error for each message, in the order of the messages. It is nil for a message
	// that was stored. Each error names the id.
	Errors []error
}

// Error returns the first ten errors of messages, one on each line, and how many follow.
func (e *BatchError) Error() string {
	const most = 10
	failed := e.Unwrap()
	text := errors.Join(failed[:min(most, len(failed))]...)
	if len(failed) > most {
		return fmt.Sprintf("%v\nand %d more of %d messages were not enqueued",
			text, len(failed)-most, len(e.Errors))
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

// putAll gives each partition as many messages at once as find room, so that they share calls.
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
			p := driver.PartitionOf(items[next].ID, len(q.parts))
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

// Result is the result of [Queue.Cancel] and [Queue.Reschedule].
type Result uint8

// The results of [Queue.Cancel] and [Queue.Reschedule].
const (
	Cancelled   Result = iota + 1 // it will not be delivered
	Rescheduled                   // it will be delivered at the new time
	Firing                        // it has begun, and may be delivered again if this delivery fails
	NotFound                      // there is no such message, or it is a dead letter
)

var resultNames = []string{"Cancelled", "Rescheduled", "Firing", "NotFound"}

// String returns the name of the result, or its number if it is none of those declared.
func (r Result) String() string {
	if r == 0 || int(r) > len(resultNames) {
		return "Result(" + strconv.Itoa(int(r)) + ")"
	}
	return resultNames[r-1]
}

// Cancel removes a message that has not begun, whether a consumer has claimed it ahead or not.
// After [Cancelled] no handler is called any more. After [Firing] a handler is called or was
// called, unless its process ends. The answer is exact, even if a reply of the store was lost and
// the call was repeated. A message that waits for another attempt, after an error or a crash, can
// be cancelled: then a handler was called before.
//
// If the call gives up with [ErrUnavailable], or ctx ends, it may have taken place, or may take
// place until Options.RetryFor (at least ten seconds) has passed on the store's clock. A call that
// has returned an answer does not affect a later message with the same id. Other errors are
// [ErrInvalid] for an id that no message can have, [ErrBusy] (see Options.MaxWaiting) and
// [ErrClosed].
func (q *Queue) Cancel(ctx context.Context, id string) (Result, error) {
	return q.move(ctx, driver.OpCancel, Cancelled, driver.Change{ID: id})
}

// Reschedule gives a message that has not begun another due time, which is d after the store's
// clock, rounded up to milliseconds. A d of 0 or less is due at once. Answers and errors are those
// of [Queue.Cancel], with [Rescheduled] in place of Cancelled.
func (q *Queue) Reschedule(ctx context.Context, id string, d time.Duration) (Result, error) {
	return q.move(ctx, driver.OpReschedule, Rescheduled, driver.Change{ID: id, Delay: max(0, d)})
}

// RescheduleAt is [Queue.Reschedule] to a time on the store's clock. A time in the past is due at
// once.
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

// Shutdown ends the calls of [Queue.Consume] and the receivers, waits until handlers have returned
// and their messages are settled (see ConsumerOptions.Grace), and closes the queue. If ctx ends
// before, Shutdown closes the queue without further wait and returns the cause of ctx. A deployment
// that is cut off by its deadline thus counts no crash: see [Queue.Close].
//
// A handler must not call Shutdown, because Shutdown would wait for the handler. With the handler's
// context, or one derived from it, Shutdown does nothing and returns [ErrInvalid]. A handler that
// wants to end the queue calls Shutdown on another goroutine, with another context.
func (q *Queue) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("durable: shut down queue %q: %w context nil",
			q.options.Queue, ErrInvalid)
	}
	if ctx.Value(handlerKey{q}) != nil {
		return fmt.Errorf("durable: shut down queue %q: %w context: it belongs to a handler, for which Shutdown would wait; other contexts are accepted",
			q.options.Queue, ErrInvalid)
	}
	for _, c := range q.endConsumers() {
		go c.retire()
	}
	done := make(chan struct{})
	go func() {
		q.consumers.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	q.Close()
	return err
}

// closeTime is how long Close waits for handlers and the store. It is longer than settleTime.
const closeTime = 5 * time.Second

// Close ends the queue. It claims no more messages, cancels the contexts of handlers with
// [ErrClosed] as the cause, and waits a second for them. Then it gives back all messages of this
// process that are not settled, including those of [Queue.Take]. They count neither an attempt nor
// a crash. Calls that change something fail with ErrClosed, unless the store already has them.
//
// Close returns at once if the process has no messages. It returns after five seconds if the store
// cannot be reached or does not answer. Then messages are delivered again when their leases end,
// and those that had begun count a crash. A second call does nothing. A handler may call Close,
// which waits in vain for this handler to return. Options.OnError must not call it.
func (q *Queue) Close() {
	ended := make(chan struct{})
	consumers := q.endConsumers()
	go func() {
		defer close(ended)
		for _, c := range consumers {
			go c.abort()
		}
		for _, c := range consumers {
			<-c.stopped
		}
		q.recoveries.Wait()
	}()
	endsIn(ended, closeTime, q.ctx.Done())
	q.cancel(ErrClosed)
}

// endConsumers lets no further consumer start, and returns the present ones.
func (q *Queue) endConsumers() (consumers []*consumer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closing = true
	for c := range q.claiming {
		consumers = append(consumers, c)
	}
	return consumers
}
