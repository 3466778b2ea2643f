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
	var workers sync.WaitGroup
	tokens := make(chan struct{}, ackWindow)
	for range opts.Concurrency {
		workers.Go(func() { c.work(ctx, handler, tokens, &workers) })
	}
	workers.Wait()
	c.stop()
	if ctx.Err() == nil || q.ctx.Err() != nil { // it was closed, or is being shut down
		return fmt.Errorf("durable: consume: %w", ErrClosed)
	}
	return nil
}

// ackWindow is the number of acknowledgements that may be under way at the same time.
const ackWindow = 4096

// work takes and handles one message after the other.
func (c *consumer) work(ctx context.Context, handler Handler, tokens chan struct{}, workers *sync.WaitGroup) {
	t := newTaker()
	for {
		h, err := c.take(ctx, t)
		if err != nil {
			return
		}
		if d := c.delivery(h); d != nil {
			c.deliver(handler, d, tokens, func() {
				workers.Go(func() { c.work(ctx, handler, tokens, workers) })
			})
		}
	}
}

// deliver calls the handler and settles the message, also where the handler ends the goroutine (runtime.Goexit, or FailNow of a test): then another
// worker replaces this one.
func (c *consumer) deliver(handler Handler, d *Delivery, tokens chan struct{}, replace func()) {
	err, returned := errGoexit, false
	defer func() {
		tokens <- struct{}{}
		if !c.settle(d, err, func() { <-tokens }) {
			<-tokens
		}
		if !returned {
			replace()
		}
	}()
	err = c.handle(handler, d)
	returned = true
}

var errGoexit = errors.New("the handler has ended its goroutine")

// handling is the key of a value that contexts of a queue's handlers have.
type handling struct{ q *Queue }

// handle calls the handler. Its lease is extended meanwhile.
func (c *consumer) handle(handler Handler, d *Delivery) (err error) {
	ctx, cancel := context.WithCancelCause(c.handling)
	defer cancel(nil)
	c.mu.Lock()
	d.h.renew, d.h.cancel = true, cancel
	lost := d.h.state == heldGone || !time.Now().Before(d.h.until) // the process may have slept since it began
	c.mu.Unlock()
	if lost {
		cancel(ErrLeaseLost)
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return handler(ctx, d)
}

// settle does what the result of a handler asks for, without waiting. It reports false where the handler has done that itself.
func (c *consumer) settle(d *Delivery, err error, done func()) bool {
	op, change := driver.OpAck, driver.Change{}
	if err != nil {
		op, change = c.failed(d, err)
	}
	return c.settleBy(d, op, change, done)
}

// settleBy is settle by a transition.
func (c *consumer) settleBy(d *Delivery, op driver.Op, change driver.Change, done func()) bool {
	_, own := d.send(op, change, func(failure error) {
		if failure != nil {
			c.giveUp(d)
			c.q.options.OnError(fmt.Errorf("durable: message %q: %w", d.ID, failure))
		}
		done()
	})
	if !own {
		c.giveUp(d)
	}
	return own
}

// giveUp ends the extensions of a lease, as nobody will settle the message any more.
func (c *consumer) giveUp(d *Delivery) {
	c.mu.Lock()
	d.h.renew = false
	c.mu.Unlock()
}

// failed decides what becomes of a message whose handler has failed.
func (c *consumer) failed(d *Delivery, err error) (op driver.Op, change driver.Change) {
	defer func() { // the error, which may be a nil pointer, and Backoff are the user's
		if v := recover(); v != nil {
			op, change = driver.OpRetry, driver.Change{Delay: time.Second, Reason: fmt.Sprintf("panic in the handler's error or in Backoff: %v", v)}
			if d.last() {
				op = driver.OpBury
			}
		}
	}()
	var retry *retryError
	switch {
	case errors.Is(err, errRejected) || d.last():
		return driver.OpBury, driver.Change{Reason: err.Error()}
	case errors.As(err, &retry):
		return driver.OpRetry, driver.Change{Delay: retry.after, Reason: err.Error()}
	default:
		return driver.OpRetry, driver.Change{Delay: max(0, c.opts.Backoff(d.Attempts+1)), Reason: err.Error()}
	}
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
