package durable

import (
	"context"
	"errors"
	"fmt"
)

// Receiver takes messages one at a time, instead of calling a handler. Take is safe for concurrent
// use. A receiver shares the queue's partitions with other receivers, with calls to
// [Queue.Consume], and with other processes.
//
// A receiver prefetches messages for the next calls. If the context of a call ends after a message
// has begun for that call, the message is kept for the next call, and is released if no call takes
// it within about 100 ms. If Take is not called for as long as ConsumerOptions.Membership, the
// receiver releases the messages that it has prefetched. The next call claims again.
type Receiver struct {
	q    *Queue
	opts ConsumerOptions

	consumer *consumer // q.mu guards it, and closed; nil if there was no recent call
	closed   bool
}

// Receiver returns a receiver with its own options. The receiver claims nothing before the first
// call to Take. It ignores Concurrency, Grace and HandlerTimeout. The error is [ErrInvalid] if the
// options are invalid.
func (q *Queue) Receiver(options ConsumerOptions) (*Receiver, error) {
	opts, err := options.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("durable: receiver: %w", err)
	}
	opts.Concurrency = 1 // its least capacity: see consumer.member
	return &Receiver{q: q, opts: opts}, nil
}

// Take waits for a message with a receiver that has default options: see [Receiver.Take].
func (q *Queue) Take(ctx context.Context) (*Delivery, error) { return q.receiver.Take(ctx) }

// Take waits for a message that is due and begins it. The caller must settle the message with one
// of the methods of [Delivery] within ConsumerOptions.Visibility, or call [Delivery.Extend]: unlike
// in a handler, the lease is not extended automatically. If the message is a suspect (see
// ConsumerOptions.MaxCrashes), other suspects wait until it is settled or its lease expires.
//
// Take returns the cause of ctx if ctx ends, [ErrClosed] if the receiver or the queue is closed,
// [ErrBroken] if the store is broken, [ErrNoQueue] if the queue was deleted, [ErrLocked] if only
// another process may consume from it, and [ErrInvalid] if ctx is nil.
func (r *Receiver) Take(ctx context.Context) (*Delivery, error) {
	if ctx == nil {
		return nil, fmt.Errorf("durable: take: %w context: nil", ErrInvalid)
	}
	for {
		c, err := r.claiming()
		if err != nil {
			return nil, fmt.Errorf("durable: take: %w", err)
		}
		h, err := c.dispatcher.take(ctx, newTaker())
		switch {
		case err == nil:
			if d := newDelivery(c.dispatcher, h, nil); d != nil {
				return d, nil
			}
		case ctx.Err() != nil || !errors.Is(err, ErrClosed) || c.failure() != nil:
			return nil, fmt.Errorf("durable: take: %w", err)
		}
		// The consumer has ended, because there was no call for a while or because of Close.
	}
}

// Close closes the receiver. Waiting and later calls to Take return [ErrClosed]. Messages that no
// call has taken are released. Messages that were taken can still be settled. Calling Close again
// has no effect.
func (r *Receiver) Close() {
	r.q.mu.Lock()
	c := r.consumer
	r.closed, r.consumer = true, nil
	r.q.mu.Unlock()
	if c != nil {
		c.retire()
	}
}

// claiming returns the consumer of the receiver, and starts one if there is none.
func (r *Receiver) claiming() (*consumer, error) {
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	if r.consumer != nil && r.consumer.ctx.Err() == nil {
		return r.consumer, nil
	}
	c, err := r.q.newConsumer(r.opts, budget{})
	if err != nil {
		return nil, err
	}
	r.consumer = c
	go r.watch(c)
	return c, nil
}

// watch retires a consumer when no call to Take has waited for a while. It stops the consumer when
// each taken message has been settled or has lost its lease, or when the queue is closed.
func (r *Receiver) watch(c *consumer) {
	for c.ctx.Err() == nil {
		sleep(c.ctx, c.opts.Membership/2)
		if _, _, idle := c.dispatcher.load(); idle > c.opts.Membership {
			break
		}
	}
	c.retire()
	r.q.consumers.Done()
	for c.life.Err() == nil {
		unbegun, begun, _ := c.dispatcher.load()
		if unbegun+begun == 0 || waitFor(c.aborted, c.opts.hold()/leaseChecks, c.life.Done()) {
			break
		}
	}
	c.dispatcher.release((*heldMessage).unsettled)
	c.stop()
}
