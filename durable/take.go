package durable

import (
	"context"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// taker is somebody who waits for a message.
type taker struct {
	ready chan *held // of capacity one: whoever gives him a message does not wait
	left  bool
}

func newTaker() *taker { return &taker{ready: make(chan *held, 1)} }

// take waits for a message that is due, and has begun it when it returns. After an error t must not be used again.
func (c *consumer) take(ctx context.Context, t *taker) (*held, error) {
	c.mu.Lock()
	if h := c.takeBegun(); h != nil {
		c.match()
		c.mu.Unlock()
		return h, nil
	}
	c.takers.push(t)
	c.waiting++
	c.match()
	c.mu.Unlock()
	select {
	case h := <-t.ready:
		return h, nil
	case <-ctx.Done():
		return c.leave(t, context.Cause(ctx))
	case <-c.ctx.Done():
		return c.leave(t, ErrClosed)
	}
}

// leave ends the waiting of a taker, who may have been given a message just now.
func (c *consumer) leave(t *taker, err error) (*held, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case h := <-t.ready:
		return h, nil
	default:
		t.left = true
		c.waiting--
		if c.takers.len() > 2*c.waiting+16 {
			c.takers.keep(func(t *taker) bool { return !t.left })
		}
		c.idleSince = time.Now()
		return nil, err
	}
}

// match begins as many of the ready messages as there are takers for. mu is held.
func (c *consumer) match() {
	if c.ctx.Err() != nil {
		return
	}
	for c.ready.len() > 0 && c.free() > 0 {
		h := c.ready.pop()
		p := c.parts[h.part]
		switch {
		case h.state != heldReady:
			c.gone--
			continue
		case p.away:
			p.parked.push(h)
			continue
		}
		h.state = heldBeginning
		c.beginning++
		c.pending++
		p.asked++
		p.begins.send(c.begin(h, time.Now()), func(a answer, err error) { c.onBegin(h, a, err) })
	}
	c.feed()
}

// onBegin hands a message to a taker when the store has noted that it begins.
func (c *consumer) onBegin(h *held, a answer, err error) {
	if err == nil {
		c.parts[h.part].clock.observe(a.Now, a.sent)
	}
	c.mu.Lock()
	defer c.unlock()
	c.parts[h.part].asked--
	if err == nil && a.Status == driver.StatusDone && h.state != heldGone {
		c.began(h)
		c.beganUntil(h, a)
		if wait := a.Due.Time().Sub(a.Now); wait > 0 { // the store read its clock before now
			h.state = heldWaiting
			h.timer = c.wheel.Add(wait, h)
			return
		}
		c.give(h)
	} else {
		c.notBegun(h, a, err)
	}
	c.waited()
}

// notBegun puts a message aside that cannot be given to a taker.
func (c *consumer) notBegun(h *held, a answer, err error) {
	switch {
	case h.state == heldGone: // given up meanwhile, as no answer came
		if err == nil && a.Status == driver.StatusDone {
			c.giveBack(h)
		}
	case err != nil:
		c.forget(h)
		c.told = append(c.told, fmt.Errorf("begin message %q: %w", h.record.ID, err))
	case a.Status == driver.StatusEarly && c.ctx.Err() == nil: // the store's clock was set back
		h.record.Due, h.state = a.Due, heldArmed
		h.timer = c.wheel.Add(max(a.Due.Time().Sub(a.Now)-beginLead, time.Millisecond), h)
	case a.Status == driver.StatusEarly: // all others have been given back already
		c.forget(h)
		c.giveBack(h)
	default: // it was cancelled or rescheduled, or its lease has ended
		c.forget(h)
	}
}

// waited ends the account of a message that was beginning, or waited for its due time. A taker had been put aside for it.
func (c *consumer) waited() {
	c.beginning--
	c.match()
	c.done()
}

// give hands a message that has begun to a taker, or keeps it for the next one: who handles messages comes again, and to give it back would put it behind
// later ones. Who takes by hand mostly comes again, too, and had he to be there when the store answers, a Take that waits for less than that would
// get nothing ever. Where nobody comes it is given back when the consumer retires.
func (c *consumer) give(h *held) {
	h.state = heldBegun
	for c.takers.len() > 0 {
		if t := c.takers.pop(); !t.left {
			c.waiting--
			c.taken(h)
			t.ready <- h
			return
		}
	}
	if c.ctx.Err() == nil {
		c.begun.push(h)
		return
	}
	c.forget(h)
	c.giveBack(h)
}

// takeBegun returns a message that has begun and waits, nil if none does.
func (c *consumer) takeBegun() *held {
	for c.begun.len() > 0 {
		if h := c.begun.pop(); h.state == heldBegun {
			c.taken(h)
			return h
		}
	}
	return nil
}

// taken notes that somebody has a message.
func (c *consumer) taken(h *held) {
	h.state = heldTaken
	c.idleSince = time.Now()
	c.pace.delivered(c.idleSince)
}

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
		h, err := c.take(ctx, newTaker())
		switch {
		case err == nil:
			if d := c.delivery(h); d != nil {
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
		q.taker.pace.fixed = true // who takes by hand may not come again
		go q.taker.watchIdle()
	}
	return q.taker, err
}

// watchIdle ends the consumer of Take when nobody has called it for a while.
func (c *consumer) watchIdle() {
	for c.ctx.Err() == nil {
		pause(c.ctx, c.opts.Membership/2)
		c.mu.Lock()
		idle := c.waiting == 0 && time.Since(c.idleSince) > c.opts.Membership
		c.mu.Unlock()
		if idle {
			break
		}
	}
	c.stop()
}
