package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Handler handles one delivery. If it returns nil, the message is acknowledged. An error, or a
// panic (see [PanicError]), is a failed attempt: the message is retried after the delay from
// ConsumerOptions.Backoff, and becomes a dead letter after its last attempt. [Fail], [Reject],
// [Postpone], [Again], [AgainAt] and [Decline] return errors with other outcomes. A handler may
// wrap them. If the handler has called a method of d that settles the message, the handler's result
// has no effect.
//
// A message may be delivered more than once: if a process crashes, if the lease expires because the
// store is unreachable, or if the reply to an acknowledgement is lost. Handlers must be idempotent.
//
// The handler's context has the values of Consume's context, but does not end with it. It is
// cancelled with one of these causes:
//
//   - [ErrLeaseLost], before another consumer can get the message.
//   - [ErrInterrupted], after Cancel with [Interrupt].
//   - [context.DeadlineExceeded], after ConsumerOptions.HandlerTimeout.
//   - [ErrClosed], when ConsumerOptions.Grace has passed since Consume began to end, or when the
//     queue is closed.
//
// Unless the cause is DeadlineExceeded, an error that the handler then returns is not a failed
// attempt. If the lease still holds, the message is released, or removed after Interrupt. Once
// Consume has begun to end, the same applies to an error that wraps [context.Canceled], or the
// error or cause of Consume's context. Panics and errors from functions such as Fail keep their
// outcomes, except after Interrupt.
type Handler func(ctx context.Context, d *Delivery) error

// Consume claims messages and calls the handler for each message that is due, until ctx ends or the
// queue is closed. Any number of calls, in any number of processes, share the queue's partitions.
// Consume ends in these steps:
//
//  1. It stops claiming and beginning messages, releases the messages that were not passed to a
//     handler, and leaves its partitions to other consumers.
//  2. It waits for running handlers for at most ConsumerOptions.Grace.
//  3. It cancels the contexts of the remaining handlers and waits another second.
//  4. It releases the messages of the handlers that are still running and reports them to
//     Options.OnError. Such a handler continues, and its calls for the message return
//     [ErrLeaseLost].
//
// A release counts neither as an attempt nor as a crash. Consume then waits until the store has
// answered, or for Options.RetryFor if the store is unreachable.
//
// Consume returns nil if ctx has ended, and [ErrClosed] if the queue was closed. It ends in the
// same steps with [ErrBroken], with [ErrNoQueue] after [DeleteQueue], and with [ErrLocked] if only
// another process may consume. It returns [ErrInvalid] for a nil ctx, a nil handler or invalid
// options.
func (q *Queue) Consume(ctx context.Context, handler Handler, options ConsumerOptions) error {
	return Consume(ctx, []Source{{Queue: q, Handler: handler}}, options)
}

// consume consumes from one source. It calls end when no more messages of the source begin.
func consume(ctx context.Context, end func(error), opts ConsumerOptions, b budget) error {
	q := b.source.Queue
	if b.source.Rate > 0 { // others would hold messages for longer, and extend their leases
		opts.Prefetch = min(opts.Prefetch, max(opts.Concurrency, int(min(b.source.Rate, math.MaxInt32))))
	}
	q.mu.Lock()
	c, err := q.newConsumer(opts, b)
	q.mu.Unlock()
	if err != nil {
		end(err)
		return err
	}
	defer q.consumers.Done()
	defer context.AfterFunc(ctx, c.retire)()
	ended := func() { end(cmp.Or(c.failure(), ErrClosed)) } // has no effect if ctx has ended before
	defer context.AfterFunc(c.ctx, ended)()
	w := newWorkers(ctx, c, b.source.Handler)
	w.wait()
	c.stop()
	ended()
	if err := c.failure(); err != nil {
		return err
	}
	if q.ctx.Err() != nil {
		return ErrClosed
	}
	return nil
}

// workers are the goroutines of one call to Consume. There are Concurrency slots. The worker that
// owns a slot handles one message after another. If a handler ends its goroutine, or does not
// return after its deadline, another worker takes over the slot.
type workers struct {
	c       *consumer
	ctx     context.Context // of Consume
	handler Handler
	base    context.Context // parent of the handlers' contexts
	cancel  context.CancelCauseFunc
	acks    chan struct{} // has a token for each result that the store has not answered
	slots   sync.WaitGroup
}

// ackWindow is the maximum number of handler results in flight to the store.
const ackWindow = 4096

// settleTime is how long handlers have to settle their messages after their contexts have ended.
const settleTime = time.Second

// handlerKey is the key of a value in the contexts of a queue's handlers.
type handlerKey struct{ q *Queue }

// newWorkers starts the workers.
func newWorkers(ctx context.Context, c *consumer, handler Handler) *workers {
	w := &workers{c: c, ctx: ctx, handler: handler, acks: make(chan struct{}, ackWindow)}
	base := context.WithValue(context.WithoutCancel(ctx), handlerKey{c.q}, true)
	w.base, w.cancel = context.WithCancelCause(base)
	w.slots.Add(c.opts.Concurrency)
	for range c.opts.Concurrency {
		go w.work()
	}
	return w
}

// wait returns when the consumer has ended and its handlers have returned or were abandoned.
func (w *workers) wait() {
	defer w.cancel(ErrClosed)
	ended := make(chan struct{})
	go func() {
		w.slots.Wait()
		close(ended)
	}()
	<-w.c.ctx.Done()
	if waitFor(ended, w.c.opts.Grace, w.c.aborted) {
		return
	}
	w.cancel(ErrClosed)
	if !waitFor(ended, settleTime, nil) {
		w.c.dispatcher.release((*heldMessage).unsettled)
	}
}

// waitFor waits until it receives from ended, d has passed or cut is closed. It reports whether it
// received from ended.
func waitFor(ended <-chan struct{}, d time.Duration, cut <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ended:
		return true
	case <-t.C:
	case <-cut:
	}
	return false
}

// work takes and handles messages until Consume ends or another worker takes over the slot.
func (w *workers) work() {
	t := newTaker()
	for {
		h, err := w.c.dispatcher.take(w.ctx, t)
		if err != nil {
			w.slots.Done()
			return
		}
		ctx, cancel := context.WithCancelCause(w.base)
		r := &run{cancel: cancel}
		if d := newDelivery(w.c.dispatcher, h, r); d == nil {
			cancel(nil)
		} else if !w.deliver(ctx, d, r) {
			return
		}
	}
}

// run is one call to a handler.
type run struct {
	cancel context.CancelCauseFunc // cancels its context
	state  atomic.Uint32           // runRunning, then runReturned or runOverran
}

const (
	runRunning  = iota
	runReturned // the handler has returned, and the message is about to be settled
	runOverran  // the handler has not returned after its deadline, and another worker owns the slot
)

// deliver calls the handler and settles the message. It reports whether the worker keeps its slot.
func (w *workers) deliver(ctx context.Context, d *Delivery, r *run) (ownsSlot bool) {
	err, exited := errGoexit, true
	defer func() {
		ownsSlot = r.state.CompareAndSwap(runRunning, runReturned)
		op, change, cause := driver.OpAck, driver.Change{}, error(nil)
		if err != nil {
			op, change, cause = d.outcome(err, func(err error) bool { return w.interrupted(ctx, err) })
		}
		w.acks <- struct{}{}
		if !d.settleLater(op, change, cause, func() { <-w.acks }) { // the handler has settled the message
			<-w.acks
			w.c.dispatcher.stopRenewal(d.h)
		}
		if ownsSlot && exited {
			go w.work() // this goroutine ends: runtime.Goexit, or FailNow of a test
		}
	}()
	err = w.handle(ctx, d, r)
	exited = false
	return ownsSlot
}

var errGoexit = errors.New("the handler ended its goroutine")

// handle calls the handler. The lease is extended in the meantime.
func (w *workers) handle(ctx context.Context, d *Delivery, r *run) (err error) {
	defer r.cancel(nil)
	if timeout := min(w.c.opts.HandlerTimeout, math.MaxInt64-settleTime); timeout > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, timeout)
		defer end()
		defer time.AfterFunc(timeout+settleTime, func() { w.overrun(d, r) }).Stop()
	}
	defer func() {
		if v := recover(); v != nil {
			p := newPanicError(v)
			w.c.q.reportFault(d.h.fault(fmt.Errorf("%w\n%s", p, p.Stack)))
			err = p
		}
	}()
	return w.handler(ctx, d)
}

// overrun takes over the slot of a handler that has not returned after its deadline. The handler's
// lease is no longer extended.
func (w *workers) overrun(d *Delivery, r *run) {
	if !r.state.CompareAndSwap(runRunning, runOverran) {
		return
	}
	w.c.dispatcher.stopRenewal(d.h)
	w.c.q.reportFault(d.h.fault(
		fmt.Errorf("the handler is still running %v after its HandlerTimeout of %v; the message is redelivered when its lease expires, which counts as a crash",
			settleTime, w.c.opts.HandlerTimeout)))
	w.work()
}
