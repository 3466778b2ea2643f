package durable

import (
	"context"
	"fmt"
)

// Take waits for a message that is due, and begins it. It shares the queue's partitions with other calls and other processes, as
// [Queue.Consume] does, with the options of [Queue.SetTakeOptions]. Its lease is not extended by itself: see [Delivery.Extend].
//
// Messages are claimed ahead for the calls to come, and one that has begun when its call's ctx ends is kept for the next call; where none comes for as
// long as ConsumerOptions.Membership they are given back. Take fails when ctx ends, or with [ErrClosed].
func (q *Queue) Take(ctx context.Context) (*Delivery, error) {
	for {
		c, err := q.takingConsumer()
		if err != nil {
			return nil, fmt.Errorf("durable: take: %w", err)
		}
		h, err := c.dispatcher.take(ctx, newTaker())
		switch {
		case err == nil:
			if d := c.dispatcher.delivery(h); d != nil {
				return d, nil
			}
		case ctx.Err() != nil:
			return nil, fmt.Errorf("durable: take: %w", err)
		}
		// The consumer has ended, as nobody called for a while, or the queue was closed.
	}
}

// SetTakeOptions sets the options of calls of [Queue.Take] that find no messages claimed for them: so call it before the first. Concurrency and
// Backoff mean nothing there.
func (q *Queue) SetTakeOptions(options ConsumerOptions) error {
	if _, err := options.withDefaults(); err != nil {
		return fmt.Errorf("durable: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taking = options
	return nil
}

func (q *Queue) takingConsumer() (*consumer, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taker != nil && q.taker.ctx.Err() == nil {
		return q.taker, nil
	}
	opts, err := q.taking.withDefaults()
	if err != nil {
		return nil, err
	}
	if q.taker, err = q.newConsumer(opts); err == nil {
		q.taker.dispatcher.admission.pace.fixed = true // a caller of Take may not come again
		go q.taker.watchIdle()
	}
	return q.taker, err
}

// watchIdle ends the consumer of Take when no call has waited for a while.
func (c *consumer) watchIdle() {
	for c.ctx.Err() == nil {
		pause(c.ctx, c.opts.Membership/2)
		if c.dispatcher.idle(c.opts.Membership) {
			break
		}
	}
	c.stop()
}
