package durable

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// Store holds queues: in memory (package memstore), in a directory (package pebblestore), on Redis
// (package redisstore) or in PostgreSQL (package pgstore). Each of these packages creates a Store
// for [Open]. Package driver documents the methods that a store implements.
type Store = driver.Store

// Queue is a queue of delayed messages in a store. Its methods are safe for concurrent use.
// Concurrent calls share round trips to a server, or an fsync. A process needs to open a queue only
// once.
type Queue struct {
	options Options
	backend driver.Backend
	parts   []*part
	ctx     context.Context // cancelled by Close
	cancel  context.CancelCauseFunc
	ids     *ulid.LockedMonotonicReader

	limiter   *callLimiter
	lateness  *lateness
	health    *health
	receiver  *Receiver // used by Take
	logLimits struct{ outages, failures logLimit }

	mu        sync.Mutex
	closing   bool
	consumers sync.WaitGroup         // for Shutdown; Add is called under mu unless closing is set
	claiming  map[*consumer]struct{} // the consumers that have not stopped

	recoveries sync.WaitGroup // of unanswered claims; consumers start them before they stop
}

// Open opens a queue in a store. It creates the queue if it does not exist, unless Options.Existing
// is set. The store must stay open until [Queue.Close] has returned.
//
// Open returns [ErrInvalid] for a nil store or invalid options, [ErrPartitions] if the queue exists
// with a different number of partitions, and [ErrOptions] if it exists with other limits. Stores
// return [ErrVersion], [ErrUnsafe], [ErrUnavailable] and other errors, which are documented at Open
// or New in the store's package.
func Open(ctx context.Context, store Store, options Options) (*Queue, error) {
	o, err := options.withDefaults()
	if err := cmp.Or(checkStore(store), err); err != nil {
		return nil, fmt.Errorf("durable: open: %w", err)
	}
	backend, err := store.Open(ctx, o.config())
	if err != nil {
		return nil, fmt.Errorf("durable: open queue %q: %w", o.Queue, err)
	}
	c := backend.Config()
	o.Partitions, o.MaxBody, o.MaxAttempts = c.Partitions, c.MaxBody, c.MaxAttempts
	o.DeadLimit, o.DeadBytes, o.DeadAge = c.DeadLimit, c.DeadBytes, c.DeadAge
	q := &Queue{options: o, backend: backend, claiming: make(map[*consumer]struct{}), lateness: new(lateness)}
	q.health = &health{checked: make(chan struct{}), again: make(chan struct{}, 1)}
	q.limiter = &callLimiter{calls: o.MaxWaiting, bytes: o.MaxWaitingBytes, maxWait: o.RetryFor}
	q.ids = &ulid.LockedMonotonicReader{MonotonicReader: ulid.Monotonic(rand.Reader, 0)}
	q.ctx, q.cancel = context.WithCancelCause(context.Background())
	if q.receiver, err = q.Receiver(ConsumerOptions{}); err != nil {
		return nil, err
	}
	name := newID(q)
	for i := range o.Partitions {
		q.parts = append(q.parts, newPart(q, i, name))
	}
	go q.check()
	return q, nil
}

// checkStore returns [ErrInvalid] for a nil store.
func checkStore(store Store) error {
	if v := reflect.ValueOf(store); v.IsValid() && (v.Kind() != reflect.Pointer || !v.IsNil()) {
		return nil
	}
	return fmt.Errorf("%w store: nil; pass the store that a store package's New or Open returned", ErrInvalid)
}

// Queues returns the sorted names of the queues in a store. The errors are [ErrInvalid] for a nil
// argument, [errors.ErrUnsupported] if the store cannot list queues, and the store's errors. On
// Redis the cost is O(n) in the number of keys on the servers, in small steps.
func Queues(ctx context.Context, store Store) (names []string, err error) {
	err = administer(ctx, store, "list the queues", func(l driver.Lister) error {
		names, err = l.Queues(ctx)
		return err
	})
	return names, err
}

// DeleteQueue removes a queue with its messages and dead letters. Unless force is true, it opens
// the queue as [Open] does, with the same errors, and returns [ErrInUse] if the queue has
// consumers, according to their last heartbeats. The error is [ErrNoQueue] if there is no such
// queue, [ErrInvalid] for a nil argument or a bad name, and [errors.ErrUnsupported] if the store
// cannot delete queues. After other errors, some messages may be gone. In that case Open returns
// ErrNoQueue, and calling DeleteQueue again removes the rest. In a directory the cost is O(1), and
// on a server O(n) in the number of messages.
//
// After the deletion, calls to an open [Queue] return ErrNoQueue. Its consumers stop claiming
// within ConsumerOptions.Fallback, and end with ErrNoQueue after their handlers return. If the
// queue is created again, calls and the consumers that have not ended use the new queue, or return
// [ErrPartitions] if it has a different number of partitions.
func DeleteQueue(ctx context.Context, store Store, queue string, force bool) error {
	return administer(ctx, store, fmt.Sprintf("delete queue %q", queue), func(l driver.Lister) error {
		config := driver.Config{Queue: queue, Existing: true}
		if err := contract.CheckConfig(config); err != nil {
			return err
		}
		if !force {
			var members []driver.Member
			b, err := store.Open(ctx, config)
			if err == nil {
				members, err = b.Members(ctx)
			}
			if len(members) > 0 {
				return fmt.Errorf("%w: process %d on %q is the first of %d", ErrInUse, members[0].PID, members[0].Host, len(members))
			}
			if err != nil && !errors.Is(err, ErrNoQueue) { // after an interrupted deletion there may be messages
				return err
			}
		}
		return l.DeleteQueue(ctx, queue)
	})
}

// administer calls f for a store that can list and delete its queues. what is the operation.
func administer(ctx context.Context, store Store, what string, f func(driver.Lister) error) error {
	err := checkStore(store)
	if l, ok := store.(driver.Lister); ctx == nil {
		err = fmt.Errorf("%w context: nil", ErrInvalid)
	} else if err == nil && !ok {
		err = fmt.Errorf("%w: a store of type %T neither lists nor deletes queues", errors.ErrUnsupported, store)
	} else if err == nil {
		err = f(l)
	}
	if err != nil {
		return fmt.Errorf("durable: %s: %w", what, err)
	}
	return nil
}

// Options returns the queue's options with defaults filled in, and with the number of partitions
// and the limits at the time of Open.
func (q *Queue) Options() Options { return q.options }

// part returns the partition of a message id.
func (q *Queue) part(id string) *part { return q.parts[contract.PartitionOf(id, len(q.parts))] }

// onParts calls f for all partitions concurrently. It returns the errors in the order of the
// partitions, which they name.
func onParts(q *Queue, f func(*part) error) []error {
	errs := make([]error, len(q.parts))
	var all sync.WaitGroup
	for i, p := range q.parts {
		all.Go(func() {
			if err := f(p); err != nil {
				errs[i] = fmt.Errorf("partition %d: %w", i, err)
			}
		})
	}
	all.Wait()
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

func newID(q *Queue) string { return ulid.MustNew(ulid.Now(), q.ids).String() }

func (q *Queue) checkOpen(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("durable: queue %q: %w context: nil", q.options.Queue, ErrInvalid)
	}
	if q.ctx.Err() != nil {
		return fmt.Errorf("durable: queue %q: %w", q.options.Queue, ErrClosed)
	}
	return context.Cause(ctx)
}

// Enqueue stores a message. It returns the message id when the store has made the message durable.
// The cost is one call to the store, which concurrent calls share.
//
// Enqueue returns [ErrDuplicate] if a queued message has the same id (see Message.Replace),
// [ErrDead] if a dead letter has it, [ErrInvalid] for an invalid message, and [ErrBusy] if too many
// calls are waiting for the store (Options.MaxWaiting). [ErrFull] means that the store has no room.
//
// While the store is unreachable, Enqueue retries for Options.RetryFor, and then gives up with
// [ErrUnavailable]. It stores the message once, however often it retries. If the error wraps
// [ErrOutcomeUnknown], the message may have been stored, or may still be stored. In that case it is
// safe to enqueue the message again with the same id as long as it has not been delivered. After
// any other error the message was not stored.
func (q *Queue) Enqueue(ctx context.Context, m Message) (id string, err error) {
	if err := q.checkOpen(ctx); err != nil {
		return "", err
	}
	if m.ID == "" {
		m.ID = newID(q)
	}
	item, err := newItem(ctx, q, &m)
	if err != nil {
		return "", fmt.Errorf("durable: enqueue: %w", err)
	}
	status, err := q.part(m.ID).puts.do(ctx, q.limiter, putRequest{item, m.Replace})
	return m.ID, putError(m.ID, status, err)
}

func putError(id string, status driver.Status, err error) error {
	switch {
	case err != nil:
	case status == driver.StatusDone:
		return nil
	case status == driver.StatusDuplicate:
		err = ErrDuplicate
	case status == driver.StatusDead:
		err = ErrDead
	case status == driver.StatusFiring:
		err = ErrFiring
	default:
		err = fmt.Errorf("the store returned status %d", status)
	}
	return fmt.Errorf("durable: enqueue message %q: %w", id, err)
}

// EnqueueBatch stores messages and returns their ids in the same order. The batch is not a
// transaction: each message is stored separately. If any message is invalid, none is stored, ids is
// nil and the error wraps [ErrInvalid]. If any message was not stored, the error is a [*BatchError]
// with the error for each message, and ids has the ids of all messages. Errors, and ctx ending
// early, mean the same as in [Queue.Enqueue].
func (q *Queue) EnqueueBatch(ctx context.Context, messages []Message) (ids []string, err error) {
	requests, err := newRequests(ctx, q, messages)
	if err != nil {
		return nil, err
	}
	ids = make([]string, len(requests))
	for i := range requests {
		ids[i] = requests[i].item.ID
	}
	return ids, putAll(ctx, q, requests)
}

// newRequests returns the requests to store messages.
func newRequests(ctx context.Context, q *Queue, messages []Message) ([]putRequest, error) {
	if err := q.checkOpen(ctx); err != nil {
		return nil, err
	}
	requests := make([]putRequest, len(messages))
	for i, m := range messages {
		if m.ID == "" {
			m.ID = newID(q)
		}
		item, err := newItem(ctx, q, &m)
		if err != nil {
			return nil, fmt.Errorf("durable: enqueue: message %d: %w", i, err)
		}
		requests[i] = putRequest{item, m.Replace}
	}
	return requests, nil
}

// Prepare is for store packages. Programs call a package's EnqueueTx instead, which stores messages
// in their transaction. Prepare returns the backend, and the messages with their ids, in the order
// in which the backend must store them. It returns the same errors as [Queue.EnqueueBatch].
func (q *Queue) Prepare(ctx context.Context, messages ...Message) (driver.Backend, []driver.Put, error) {
	requests, err := newRequests(ctx, q, messages)
	if err != nil {
		return nil, nil, err
	}
	var puts []driver.Put
	last := make([]int, len(q.parts)) // the number of puts up to the last one of each partition
	for _, r := range requests {
		p := contract.PartitionOf(r.item.ID, len(q.parts))
		same := func(item driver.PutItem) bool { return item.ID == r.item.ID }
		n := last[p]
		if n == 0 || puts[n-1].Replace != r.replace || len(puts[n-1].Items) == driver.MaxBatch ||
			slices.ContainsFunc(puts[n-1].Items, same) {
			puts = append(puts, driver.Put{Partition: p, Replace: r.replace})
			n = len(puts)
		}
		last[p], puts[n-1].Items = n, append(puts[n-1].Items, r.item)
	}
	return q.backend, puts, nil
}

// BatchError contains the errors from [Queue.EnqueueBatch]. errors.Is and errors.As examine each of
// them.
type BatchError struct {
	// Errors has one element per message, in the order of the messages. The element is nil if the
	// message was stored. Otherwise it names the id.
	Errors []error
}

// Error returns the first ten errors, one per line, and the number of remaining errors.
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

// Unwrap returns the errors for the messages that were not stored.
func (e *BatchError) Unwrap() []error {
	var failed []error
	for _, err := range e.Errors {
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// putAll passes each partition as many messages at a time as there is room for, to share calls.
func putAll(ctx context.Context, q *Queue, requests []putRequest) error {
	calls := make([]*call[putRequest, driver.Status], len(requests))
	errs := make([]error, len(requests))
	for next := 0; next < len(requests); {
		byPart := make([][]*call[putRequest, driver.Status], len(q.parts))
		err := q.limiter.acquire(ctx, requests[next].size())
		if err != nil {
			for i := next; i < len(requests); i++ {
				errs[i] = err
			}
			break
		}
		for admitted := true; admitted; admitted = next < len(requests) && q.limiter.tryAcquire(requests[next].size()) {
			c := newCall[putRequest, driver.Status](requests[next])
			c.limiter, c.bytes = q.limiter, c.request.size()
			p := contract.PartitionOf(c.request.item.ID, len(q.parts))
			calls[next], byPart[p] = c, append(byPart[p], c)
			next++
		}
		for p, cs := range byPart {
			if len(cs) > 0 {
				q.parts[p].puts.add(cs...)
			}
		}
	}
	for i, c := range calls {
		var status driver.Status
		err, id := errs[i], requests[i].item.ID
		if c != nil {
			status, err = q.part(id).puts.wait(ctx, c)
		}
		errs[i] = putError(id, status, err)
	}
	if e := (&BatchError{errs}); len(e.Unwrap()) > 0 {
		return e
	}
	return nil
}

// Result is the result of [Queue.Cancel], [Queue.Reschedule], [Queue.RescheduleAt] and
// [Queue.SetRepeat].
type Result uint8

// Results of the methods that return a [Result].
const (
	ResultCancelled   Result = iota + 1 // the message will not be delivered
	ResultRescheduled                   // the message will be delivered at the new time
	ResultFiring                        // the delivery has begun; if it fails, there may be another one
	ResultNotFound                      // the message does not exist, or is a dead letter
	ResultInterrupted                   // the delivery has begun; the message is removed when the delivery ends: see Interrupt
)

var resultNames = []string{"Cancelled", "Rescheduled", "Firing", "NotFound", "Interrupted"}

// String returns the name of the result, or "Result(n)" for an undeclared value.
func (r Result) String() string {
	if r == 0 || int(r) > len(resultNames) {
		return "Result(" + strconv.Itoa(int(r)) + ")"
	}
	return resultNames[r-1]
}

// Cancel removes a message that has not begun, whether or not a consumer has prefetched it. After
// [ResultCancelled] no handler is called. [ResultFiring] means that a handler was called or is
// about to be called, unless its process ends first. [ResultNotFound] means that the message does
// not exist or is a dead letter. [Queue.Get] tells these cases apart. The result is exact, even if
// the store's reply was lost and the call was retried. A message that is waiting for another
// attempt after an error or a crash can be cancelled. In that case a handler was called earlier.
//
// With [Interrupt], Cancel also cancels a message that has begun. Without it, cancelling a running
// recurring message ends the series: ResultFiring then means that this run, with its retries, is
// the last one.
//
// If the error wraps [ErrOutcomeUnknown], the call may have taken effect, or may still do so. A
// call that has returned a result does not affect a later message with the same id. Other errors
// are [ErrInvalid] if no message can have this id, [ErrBusy] (see Options.MaxWaiting) and
// [ErrClosed].
func (q *Queue) Cancel(ctx context.Context, id string, options ...CancelOption) (Result, error) {
	return q.move(ctx, driver.OpCancel, ResultCancelled, driver.Change{ID: id, Interrupt: slices.Contains(options, Interrupt)})
}

// CancelOption is an option for [Queue.Cancel].
type CancelOption uint8

// Interrupt makes [Queue.Cancel] return [ResultInterrupted] instead of [ResultFiring] if the
// message has begun. The store then removes the message when its delivery is settled, with any
// outcome, or when its lease ends. The message counts as cancelled unless it was handled. Repeating
// the call has no effect. The handler's context ends with the cause [ErrInterrupted], within a
// third of ConsumerOptions.Visibility and normally within milliseconds. A caller of Take gets
// ErrInterrupted from [Delivery.Extend].
const Interrupt CancelOption = 1

// Reschedule makes a message due after d on the store's clock, rounded up to milliseconds, if it
// has not begun. If d <= 0, the message is due immediately. Reschedule returns the same results and
// errors as [Queue.Cancel], with [ResultRescheduled] instead of ResultCancelled.
func (q *Queue) Reschedule(ctx context.Context, id string, d time.Duration) (Result, error) {
	return q.move(ctx, driver.OpReschedule, ResultRescheduled, driver.Change{ID: id, Delay: max(0, d)})
}

// RescheduleAt makes a message due at t on the store's clock, rounded up to milliseconds, if it has
// not begun. If t is in the past, the message is due immediately. It returns the same results and
// errors as [Queue.Reschedule].
func (q *Queue) RescheduleAt(ctx context.Context, id string, t time.Time) (Result, error) {
	return q.move(ctx, driver.OpReschedule, ResultRescheduled, driver.Change{ID: id, At: max(1, driver.InstantOf(t))})
}

// SetRepeat changes a message's Repeat, and makes the message due at the first time in the new
// series. If a recurring message is running, the change takes effect when the run ends, and the
// result is [ResultRescheduled]. If repeat is empty, the due time does not change, and the series
// ends with the run under way, or else with the next run. In other respects SetRepeat returns the
// same results and errors as [Queue.Reschedule]. [ErrInvalid] may also mean that repeat is invalid.
func (q *Queue) SetRepeat(ctx context.Context, id, repeat string) (Result, error) {
	c := driver.Change{ID: id, Repeat: repeat}
	if err := cmp.Or(q.checkOpen(ctx), checkID(id)); repeat != "" && err == nil {
		var s *series
		if s, err = parseSeries(repeat); err == nil {
			c.At, c.Delay, err = q.part(id).firstRun(ctx, s)
		}
		if err != nil {
			return 0, fmt.Errorf("durable: message %q: %w", id, err)
		}
	}
	return q.move(ctx, driver.OpRepeat, ResultRescheduled, c)
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
		return ResultFiring, nil
	case driver.StatusInterrupted:
		return ResultInterrupted, nil
	}
	return ResultNotFound, nil
}

// change makes one transition of a message.
func (q *Queue) change(ctx context.Context, op driver.Op, c driver.Change) (answer, error) {
	if err := q.checkOpen(ctx); err != nil {
		return answer{}, err
	}
	if err := checkID(c.ID); err != nil {
		return answer{}, err
	}
	return q.part(c.ID).changes[op].do(ctx, q.limiter, c)
}

// Shutdown closes the queue gracefully. It ends the calls to [Queue.Consume] and the receivers,
// waits until the handlers have returned and their messages are settled (see
// ConsumerOptions.Grace), and closes the queue. If ctx ends first, Shutdown closes the queue
// without waiting any longer and returns the cause of ctx. No crash is counted in either case,
// unless a handler overran its HandlerTimeout or the store does not answer: see [Queue.Close].
//
// A handler must not call Shutdown, because Shutdown would wait for the handler. If ctx is a
// handler's context, or derived from one, Shutdown does nothing and returns [ErrInvalid]. It also
// returns ErrInvalid if ctx is nil. To shut down the queue from a handler, call Shutdown in another
// goroutine with another context.
func (q *Queue) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("durable: shut down queue %q: %w context: nil",
			q.options.Queue, ErrInvalid)
	}
	if ctx.Value(handlerKey{q}) != nil {
		return fmt.Errorf("durable: shut down queue %q: %w context: it belongs to a handler, which Shutdown would wait for; pass another context",
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

// closeTime is the maximum time for which Close waits for handlers and the store. It is longer than
// settleTime.
const closeTime = 5 * time.Second

// Close closes the queue. It stops claiming messages, cancels the contexts of handlers with
// [ErrClosed] as the cause, and waits one second for the handlers. It then releases all messages
// that q has claimed and not settled, including messages from [Queue.Take]. A release counts
// neither as an attempt nor as a crash. Calls that change something return ErrClosed, unless the
// store has already received them.
//
// Close returns immediately if the process holds no messages. It returns after five seconds if the
// store is unreachable or does not answer. If so, messages are redelivered when their leases
// expire, which counts as a crash for each message that had begun. This also applies to a message
// whose handler overran its HandlerTimeout. Calling Close again has no effect. A handler may call
// Close, which then waits a second for the handler. Options.OnError must not call Close.
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
	waitFor(ended, closeTime, q.ctx.Done())
	q.cancel(ErrClosed)
}

// endConsumers prevents new consumers from starting and returns the current ones.
func (q *Queue) endConsumers() (consumers []*consumer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closing = true
	for c := range q.claiming {
		consumers = append(consumers, c)
	}
	return consumers
}
