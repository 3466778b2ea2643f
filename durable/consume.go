package durable

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Handler is called for each delivery. Nil acknowledges it. An error, or a panic, is a failed attempt: the message comes again after
// ConsumerOptions.Backoff, or after what [RetryAfter] says, until it has had its attempts; then, or at once after [Reject], it is a dead letter.
// Where the handler has itself called Ack, Nack or Bury, what it returns counts for nothing.
//
// A message may be delivered more than once: where a process crashes, where the lease ends as the store could not be reached, and where an
// acknowledgement is lost. So a handler has to be idempotent. Its context is cancelled, with [ErrLeaseLost] as the cause, before the message is given to
// somebody else, and when the queue is closed; not when the context of Consume ends.
type Handler func(ctx context.Context, d *Delivery) error

// Consume claims messages and calls the handler for each that is due, until ctx ends or the queue is closed. Then it gives back what it has not
// begun, waits for the handlers that run and for what they have asked of the store, and returns: nil where ctx has ended, or [ErrClosed].
//
// Any number of calls, in any number of processes, share the queue's partitions.
func (q *Queue) Consume(ctx context.Context, handler Handler, options ConsumerOptions) error {
	opts, err := options.withDefaults()
	if err == nil && handler == nil {
		err = fmt.Errorf("%w handler nil", ErrInvalid)
	}
	if err != nil {
		return fmt.Errorf("durable: consume: %w", err)
	}
	q.mu.Lock()
	c, err := q.newConsumer(opts)
	q.mu.Unlock()
	if err != nil {
		return fmt.Errorf("durable: consume: %w", err)
	}
	defer context.AfterFunc(ctx, c.retire)()
	w := &workers{c: c, handler: handler, acks: make(chan struct{}, ackWindow)}
	w.base = context.WithValue(q.ctx, handling{q}, true)
	for range opts.Concurrency {
		w.start(ctx)
	}
	w.all.Wait()
	c.stop()
	if ctx.Err() == nil || q.ctx.Err() != nil { // the queue was closed, or is being shut down
		return fmt.Errorf("durable: consume: %w", ErrClosed)
	}
	return nil
}

// workers are the goroutines of a call of Consume, each of which handles one message after another.
type workers struct {
	c       *consumer
	handler Handler
	base    context.Context // parent of the handlers' contexts
	acks    chan struct{}   // holds a token for each result that the store has not answered
	all     sync.WaitGroup
}

// ackWindow is the number of results of handlers that may be under way to the store.
const ackWindow = 4096

// handling is the key of a value that contexts of a queue's handlers have.
type handling struct{ q *Queue }

func (w *workers) start(ctx context.Context) { w.all.Go(func() { w.work(ctx) }) }

// work takes and handles messages until ctx or the consumer ends.
func (w *workers) work(ctx context.Context) {
	t := newTaker()
	for {
		h, err := w.c.dispatcher.take(ctx, t)
		if err != nil {
			return
		}
		if d := w.c.dispatcher.delivery(h); d != nil {
			w.deliver(ctx, d)
		}
	}
}

// deliver calls the handler and settles the message. If the handler ends its goroutine (by
// runtime.Goexit, or FailNow of a test), another worker replaces this one.
func (w *workers) deliver(ctx context.Context, d *Delivery) {
	err, returned := errGoexit, false
	defer func() {
		w.acks <- struct{}{}
		if !w.settle(d, err, func() { <-w.acks }) {
			<-w.acks
		}
		if !returned {
			w.start(ctx)
		}
	}()
	err = w.handle(d)
	returned = true
}

var errGoexit = errors.New("the handler has ended its goroutine")

// handle calls the handler. The lease is extended meanwhile.
func (w *workers) handle(d *Delivery) (err error) {
	ctx, cancel := context.WithCancelCause(w.base)
	defer cancel(nil)
	w.c.dispatcher.handle(d.h, cancel)
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return w.handler(ctx, d)
}

// settle does what the result of a handler asks for. It calls done when the store has answered, and
// does not wait for that. It reports false, and does not call done, if the handler has settled the
// message itself.
func (w *workers) settle(d *Delivery, err error, done func()) bool {
	op, change := driver.OpAck, driver.Change{}
	if err != nil {
		op, change = w.failed(d, err)
	}
	_, own := d.send(op, change, func(failure error) {
		if failure != nil {
			w.c.dispatcher.letEnd(d.h)
			w.c.q.reportFault(w.c.q.faultOf(d.ID, failure))
		}
		done()
	})
	if !own {
		w.c.dispatcher.letEnd(d.h)
	}
	return own
}

// failed decides what becomes of a message whose handler has failed.
func (w *workers) failed(d *Delivery, err error) (op driver.Op, change driver.Change) {
	change.Reason = reasonOf(err)
	defer func() { // the methods of the error, and Backoff, are the user's
		if v := recover(); v != nil {
			op, change.Delay = driver.OpRetry, time.Second
			change.Reason = fmt.Sprintf("panic in the handler's error or in Backoff: %v", v)
			if d.last() {
				op = driver.OpBury
			}
		}
	}()
	var retry *retryError
	switch {
	case errors.Is(err, errRejected) || d.last():
		return driver.OpBury, change
	case errors.As(err, &retry):
		change.Delay = retry.after
	default:
		change.Delay = max(0, w.c.opts.Backoff(d, err))
	}
	return driver.OpRetry, change
}

// reasonOf is the text of an error, or empty for nil. An error may be a nil pointer whose method
// panics.
func reasonOf(err error) (reason string) {
	defer func() {
		if v := recover(); v != nil {
			reason = fmt.Sprintf("panic in the error's method: %v", v)
		}
	}()
	if err == nil {
		return ""
	}
	return err.Error()
}

var errRejected = errors.New("rejected")

// Reject is an error for handlers: the message is a dead letter at once, however many attempts are left. A nil err is a rejection all the same.
func Reject(err error) error {
	if err == nil {
		return errRejected
	}
	return fmt.Errorf("%w: %w", errRejected, err)
}

type retryError struct {
	after time.Duration
	err   error
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// RetryAfter is an error for handlers: the message is due again after d, in place of what ConsumerOptions.Backoff would say. A nil err is a failed
// attempt all the same.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = errRetry
	}
	return &retryError{max(0, d), err}
}

var errRetry = errors.New("to be tried again")
