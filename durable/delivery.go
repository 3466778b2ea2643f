package durable

import (
	"context"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Delivery is a message that has begun. Exactly one of Ack, Nack, Bury and Release settles it. The
// caller of [Receiver.Take] calls one of them, else the message is delivered again when its lease
// has ended. A handler of [Queue.Consume] returns an error or nil instead, or calls one of them if
// it needs to know the result. The methods may be called from several goroutines.
type Delivery struct {
	Queue    string // its name
	ID       string
	Body     []byte            // the caller may change it
	Headers  map[string]string // the caller may change it; nil if there are none
	Enqueued time.Time
	Due      time.Time // on the store's clock, as Enqueued
	ExpireAt time.Time // on the store's clock; zero if the message does not expire

	// Attempts is the number of earlier deliveries that ended in an error. Crashes is the number of
	// those whose lease ended, because the process crashed or hung.
	Attempts, Crashes, MaxAttempts int

	// Token rises with each delivery of the message. A system that remembers the highest token can
	// refuse a consumer that was delayed past the end of its lease.
	Token uint64

	from *dispatcher
	h    *held

	// The dispatcher's mutex guards these.
	settling   *settleCall // the last call that settles the message; nil: none was made
	first      settleCall  // mostly the only call
	unanswered bool        // an Ack has failed, and may have taken place
}

// settleCall is a call that settles a delivery. The dispatcher's mutex guards it.
type settleCall struct {
	op     driver.Op
	over   bool          // the store has answered, or the call has failed
	done   chan struct{} // closed when the call is over; made by the first caller that waits
	err    error         // of a call that is over
	failed bool          // it is over and has no answer: it may be repeated
	taken  bool          // a caller has its result
}

// newDelivery returns a message that was taken, for its handler, whose lease is extended (renew),
// or for its receiver. It records how late the message is. It returns nil if the message must not
// be delivered because its lease is lost, because it has expired, or because this program cannot
// read its content. It settles the message in the last two cases.
func newDelivery(d *dispatcher, h *held, renew bool) *Delivery {
	if !d.hand(h, renew, nil) {
		return nil
	}
	r := &h.record
	content, err := decodeEnvelope(r.Body)
	m := &Delivery{
		Queue: d.q.options.Queue, ID: r.ID, Body: content.body, Headers: content.headers,
		Enqueued: r.Enqueued.Time(), Due: r.Due.Time(), ExpireAt: timeOf(content.expire),
		Attempts: r.Attempts, Crashes: r.Crashes, MaxAttempts: r.MaxAttempts, Token: r.Token, from: d, h: h,
	}
	now := h.part.clock.now()
	switch {
	case err != nil:
		d.q.reportFault(h.fault(err))
		m.refuse(driver.OpRetry, driver.Change{Delay: unreadablePause, Reason: err.Error(), Uncounted: true})
	case content.expired(now):
		m.refuse(driver.OpExpire, driver.Change{})
	default:
		d.q.lateness.record(now.Sub(r.Due.Time()))
		h.emit(EventDelivered, time.Time{})
		return m
	}
	return nil
}

// unreadablePause is the time between two attempts to read a message whose content this program
// cannot read. They do not count as attempts, so a rolling upgrade may take any time.
const unreadablePause = time.Minute

// refuse settles a delivery that no handler or receiver gets.
func (d *Delivery) refuse(op driver.Op, change driver.Change) {
	d.send(op, change, func(err error) {
		if err != nil {
			d.from.letEnd(d.h)
			d.from.q.reportFault(d.h.fault(err))
		}
	})
}

// Ack removes the message: it was handled. [ErrLeaseLost] means that the lease had ended, so that
// the message was or will be delivered again, or that the delivery was settled before. After any
// other error, because the store could not be reached or ctx has ended, the call may be repeated.
// It then has the result of the first call, if that has taken place or is under way.
//
// One answer is not exact. If the reply to an Ack was lost, and the message is gone when the call
// is repeated, then either the first call has taken place, or another consumer has got the message
// and acknowledged it. Ack returns nil if, by the clock of this process, the lease cannot have
// ended, and ErrLeaseLost otherwise. So nil is wrong if meanwhile the store's clock was set ahead,
// or this machine was suspended, for longer than the lease.
func (d *Delivery) Ack(ctx context.Context) error {
	return d.settle(ctx, driver.OpAck, driver.Change{})
}

// Nack gives the message back as failed, because of cause, which may be nil. The message is due
// again after delay, rounded up to milliseconds; 0 or less is due at once. After its last attempt
// it becomes a dead letter. The text of cause is kept with the message, up to [driver.MaxReason]
// bytes: see [Record]. Errors are those of Ack.
func (d *Delivery) Nack(ctx context.Context, delay time.Duration, cause error) error {
	reason := reasonOf(cause)
	if d.last() {
		return d.settle(ctx, driver.OpBury, driver.Change{Reason: reason})
	}
	return d.settle(ctx, driver.OpRetry, driver.Change{Delay: max(0, delay), Reason: reason})
}

// Release gives the message back as it was. It is due at once, and neither an attempt nor a crash
// is counted. A program that ends releases the messages that it has not handled. Errors are those
// of Ack.
func (d *Delivery) Release(ctx context.Context) error {
	return d.settle(ctx, driver.OpRelease, driver.Change{})
}

// Bury makes the message a dead letter. The reason is kept with it, up to [driver.MaxReason] bytes.
// Errors are those of Ack.
func (d *Delivery) Bury(ctx context.Context, reason string) error {
	return d.settle(ctx, driver.OpBury, driver.Change{Reason: reason})
}

// Extend lets the lease end dur after now on the store's clock, or after the due time if that is
// later. A dur of 0 or less is [ErrInvalid]. In a handler, whose lease is extended by itself,
// Extend does not shorten it below ConsumerOptions.Visibility. Other errors are those of Ack.
func (d *Delivery) Extend(ctx context.Context, dur time.Duration) error {
	if dur <= 0 {
		return fmt.Errorf("durable: extend message %q: %w duration %v: more than 0 is accepted",
			d.ID, ErrInvalid, dur)
	}
	change := d.h.change()
	d.from.mu.Lock()
	if change.Delay = dur; d.h.renew {
		change.Delay = max(dur, d.from.opts.Visibility)
	}
	d.from.mu.Unlock()
	done := make(chan error, 1)
	d.h.part.changes[driver.OpExtend].send(change, func(a answer, err error) {
		if err == nil {
			err = checkHolder(a.Status)
		}
		if err == nil { // noted here, in the order in which the store has done it
			d.from.mu.Lock()
			d.h.extended(a)
			d.from.mu.Unlock()
		}
		done <- err
	})
	if err := await(ctx, done); err != nil {
		return fmt.Errorf("durable: extend message %q: %w", d.ID, err)
	}
	return nil
}

// last reports whether this is the last attempt.
func (d *Delivery) last() bool { return d.Attempts+1 >= d.MaxAttempts }

// settle settles the delivery.
func (d *Delivery) settle(ctx context.Context, op driver.Op, change driver.Change) error {
	if err := d.end(ctx, op, change); err != nil {
		return fmt.Errorf("durable: message %q: %w", d.ID, err)
	}
	return nil
}

// end waits for the call that settles the delivery: its own, or an earlier one whose caller did not
// wait for the result. If the earlier call fails, end makes its own.
func (d *Delivery) end(ctx context.Context, op driver.Op, change driver.Change) error {
	for {
		c, own := d.send(op, change, func(error) {})
		select {
		case <-d.over(c):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err, again := d.result(c, op); own || !again {
			return err
		}
	}
}

// over returns a channel that is closed when a call is over.
func (d *Delivery) over(c *settleCall) <-chan struct{} {
	d.from.mu.Lock()
	defer d.from.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.over {
			close(c.done)
		}
	}
	return c.done
}

// result returns the result of a call that is over to the first caller that asks for the same
// transition. Other callers get ErrLeaseLost, because the delivery was settled before. result also
// reports whether a call may be made again.
func (d *Delivery) result(c *settleCall, op driver.Op) (err error, again bool) {
	d.from.mu.Lock()
	defer d.from.mu.Unlock()
	if c.taken || c.op != op {
		return ErrLeaseLost, c.failed
	}
	c.taken = true
	return c.err, c.failed
}

// await waits for a result, or until ctx ends.
func await(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// send asks the store to settle the delivery. If that was done before, and has not failed, send
// returns the earlier call and false.
func (d *Delivery) send(op driver.Op, change driver.Change, then func(error)) (c *settleCall, own bool) {
	d.from.mu.Lock()
	if d.settling != nil && !d.settling.failed {
		defer d.from.mu.Unlock()
		return d.settling, false
	}
	c = &d.first
	if d.settling != nil {
		c = new(settleCall) // a caller may still wait for the one before
	}
	c.op, d.settling = op, c
	d.h.settling = true
	d.from.pending.add()
	d.from.mu.Unlock()
	change.ID, change.Token = d.h.record.ID, d.h.record.Token
	var start time.Time
	if d.from.q.options.OnEvent != nil {
		start = time.Now()
	}
	d.h.part.changes[op].send(change, func(a answer, err error) {
		if err = d.answered(c, a, err); err == nil {
			d.h.emit(settlements[op], start)
		}
		then(err)
	})
	return c, true
}

// answered takes in the answer of the store. If there is none, the lease is kept for another try.
// NotFound is the success of an Ack that was repeated without an answer, and of no other call.
func (d *Delivery) answered(c *settleCall, a answer, err error) error {
	d.from.mu.Lock()
	defer d.from.mu.Unlock()
	repeated := (a.repeated || d.unanswered) && time.Now().Before(d.h.until)
	if c.failed = err != nil; c.failed {
		d.unanswered = d.unanswered || c.op == driver.OpAck
	} else {
		d.from.forget(d.h)
	}
	d.h.settling = false
	if err == nil && !(a.Status == driver.StatusNotFound && repeated) { // else an earlier Ack
		err = checkHolder(a.Status)
	}
	c.err, c.over = err, true
	if c.done != nil {
		close(c.done)
	}
	d.from.pending.done()
	return err
}

// checkHolder returns ErrLeaseLost unless the store has done what the holder of the lease asked
// for.
func checkHolder(s driver.Status) error {
	if s == driver.StatusDone {
		return nil
	}
	return ErrLeaseLost
}
