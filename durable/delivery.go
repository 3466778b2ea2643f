package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Delivery is a message whose delivery has begun. Exactly one call to Ack, Nack, NackAfter, Bury,
// Release, Postpone, Again or AgainAt settles it. The caller of [Receiver.Take] must call one of
// them. Otherwise the message is redelivered when its lease expires. A handler of [Queue.Consume]
// normally returns nil or an error instead. It may call one of the methods if it needs the result.
// The methods are safe for concurrent use.
type Delivery struct {
	Queue    string            // the name of the queue
	ID       string            // of the message
	Body     []byte            // may be modified
	Headers  map[string]string // may be modified; nil if there are none
	Enqueued time.Time         // on the store's clock, in milliseconds
	Due      time.Time         // on the store's clock
	Planned  time.Time         // of a recurring message: the time of this run, which retries do not change; otherwise zero
	ExpireAt time.Time         // on the store's clock; zero if the message does not expire

	// Attempts is the number of earlier deliveries that failed. Crashes is the number of earlier
	// deliveries whose lease expired because the process crashed or hung. Postponed is the number
	// of postponements since the last failure, crash or use of Again.
	Attempts, Crashes, Postponed, MaxAttempts int

	// Token is a fencing token that rises with each delivery of the message. A system that stores
	// the highest token can reject a consumer that was delayed past the end of its lease.
	Token uint64

	h *heldMessage
}

// from returns the dispatcher of the delivery.
func (d *Delivery) from() *dispatcher { return d.h.part.d }

// settleCall is a call that settles a delivery. It is guarded by the dispatcher's mutex.
type settleCall struct {
	event    EventKind     // of the outcome; 0: released
	done     chan struct{} // closed when the store has answered, or the call has failed
	err      error         // set before
	failed   bool          // there was no answer, so the call may be repeated
	taken    bool          // a caller has received the result
	looking  bool          // the store has not been asked for the change: see look
	prepared *Delivery     // the delivery after PrepareAck; otherwise nil
}

// newDelivery returns a delivery for a message that was taken: for the run of its handler, or for
// its receiver if run is nil. It records how late the message is. It returns nil if the message
// must not be delivered: the lease is lost, the message has expired, or this program cannot read
// its content. In the last two cases it settles the message.
func newDelivery(d *dispatcher, h *heldMessage, run *run) *Delivery {
	r := &h.record
	content, err := decodeEnvelope(r.Body)
	if r.Repeat != "" && err == nil {
		h.series, err = parseSeries(r.Repeat)
	}
	m := &Delivery{
		Queue: d.q.options.Queue, ID: r.ID, Body: content.body, Headers: content.headers,
		Enqueued: r.Enqueued.Time(), Due: r.Due.Time(), Planned: timeOf(r.Planned), ExpireAt: timeOf(content.expire),
		Attempts: r.Attempts, Crashes: r.Crashes, Postponed: r.Postponed, MaxAttempts: r.MaxAttempts, Token: r.Token, h: h,
	}
	now := h.part.clock.now()
	switch {
	case err != nil:
		d.q.reportFault(h.fault(err))
		m.settleLater(driver.OpRetry, driver.Change{Delay: unreadablePause, Reason: err.Error(), Uncounted: true}, nil, func() {})
	case content.expired(now):
		m.settleLater(driver.OpExpire, driver.Change{}, nil, func() {})
	default:
		d.q.lateness.record(now.Sub(r.Due.Time()))
		h.emit(Event{Kind: EventDelivered}, time.Time{})
		if d.handOff(h, run) { // OnEvent may have taken longer than the lease
			return m
		}
	}
	return nil
}

// unreadablePause is the delay between two attempts to read a message whose content this program
// cannot read. These attempts are not counted, so a rolling upgrade may take any length of time.
const unreadablePause = time.Minute

// settleLater settles the delivery without waiting for the store, and calls then when the store has
// answered. It reports false, without calling then, if the delivery was already settled.
func (d *Delivery) settleLater(op driver.Op, change driver.Change, cause error, then func()) bool {
	op, change = d.endRun(op, change)
	_, own := d.send(op, change, cause, func(err error) {
		if err != nil {
			d.from().stopRenewal(d.h)
		}
		if err != nil && (op != driver.OpRelease || !errors.Is(err, ErrLeaseLost)) { // else it was reported
			d.from().q.reportFault(d.h.fault(err))
		}
		then()
	})
	return own
}

// PrepareAck is for store packages. Programs call a package's AckTx instead, which acknowledges a
// delivery in their transaction. PrepareAck returns the backend and the batch that the transaction
// must apply. The package must check that the batch has an effect: a repeated transition may return
// Done without one. The delivery can be prepared again for another attempt at the transaction. The
// error is [ErrLeaseLost] if the delivery was settled, is being settled, or has lost its lease.
//
// After PrepareAck, before the handler's result or a call settles the delivery, the consumer checks
// whether the transaction has committed. If it has, the delivery is over, and the call returns nil.
// If not, the result or call has its usual effect, except that an acknowledgement releases the
// message and returns an error, which for a handler is passed to Options.OnError.
func (d *Delivery) PrepareAck() (driver.Backend, driver.Batch, error) {
	op, change := d.endRun(driver.OpAck, d.h.change())
	d.from().mu.Lock()
	defer d.from().mu.Unlock()
	if d.h.gone() || d.h.isSettling() || d.h.settling != nil && !d.h.isPrepared() {
		return nil, driver.Batch{}, fmt.Errorf("durable: message %q: %w", d.ID, ErrLeaseLost)
	}
	d.h.settling = &settleCall{prepared: d, failed: true}
	return d.from().q.backend, driver.Batch{Partition: d.h.part.index, Op: op, Changes: []driver.Change{change}}, nil
}

// Ack acknowledges the message and removes it from the queue. [ErrLeaseLost] means that the
// delivery was already settled, or that the lease had expired and the message was or will be
// redelivered. After any other error, for example because the store was unreachable or ctx ended,
// Ack may be called again. It then returns the result of the first call if that has taken effect or
// is still in progress.
//
// The result is inexact in one case: the store's reply was lost, and the message is gone when the
// call is retried. Either the first call has taken effect, or another consumer has received and
// acknowledged the message. Ack then returns nil if the lease cannot have expired on this process's
// clock, and ErrLeaseLost otherwise. This nil is wrong if, in the meantime, the store's clock was
// set forward or this machine was suspended for longer than the lease.
func (d *Delivery) Ack(ctx context.Context) error {
	return d.settle(ctx, driver.OpAck, driver.Change{}, nil)
}

// Release returns the message to the queue unchanged. The message is due immediately, and neither
// an attempt nor a crash is counted. [Queue.Close] does this for messages that are not settled.
// Release returns the same errors as [Delivery.Ack].
func (d *Delivery) Release(ctx context.Context) error {
	return d.settle(ctx, driver.OpRelease, driver.Change{}, nil)
}

// Extend extends the lease until dur after the current time on the store's clock, or after the due
// time if that is later. It returns [ErrInvalid] if dur <= 0. Within a handler, where the lease is
// extended automatically, Extend does not shorten the lease below ConsumerOptions.Visibility. It
// returns [ErrInterrupted], after it has extended the lease, if the message was cancelled.
// Otherwise it returns the same errors as [Delivery.Ack].
func (d *Delivery) Extend(ctx context.Context, dur time.Duration) error {
	if dur <= 0 {
		return fmt.Errorf("durable: extend message %q: %w duration %v; it must be positive",
			d.ID, ErrInvalid, dur)
	}
	change, done := d.h.change(), make(chan error, 1)
	d.from().mu.Lock()
	if change.Delay = dur; d.h.renew {
		change.Delay = max(dur, d.from().opts.Visibility)
	}
	d.from().send(d.h, driver.OpExtend, change, func(a answer, err error) {
		if err == nil {
			err = a.checkHolder()
		}
		if err == nil || errors.Is(err, ErrInterrupted) { // recorded here, in the order of the store's calls
			d.h.until = a.until()
		}
		done <- err
	})
	d.from().mu.Unlock()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = unknown(context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("durable: extend message %q: %w", d.ID, err)
	}
	return nil
}

// settle settles the delivery. If it has failed, cause is the error. settle waits for its own call,
// or for an earlier one whose caller did not wait for the result. If the earlier call fails, settle
// makes its own call.
func (d *Delivery) settle(ctx context.Context, op driver.Op, change driver.Change, cause error) (err error) {
	op, change = d.endRun(op, change)
	for again := true; again; {
		c, own := d.send(op, change, cause, func(error) {})
		select {
		case <-c.done:
			err, again = d.result(c, outcomeEvent(op, &change))
			again = again && !own
		case <-ctx.Done():
			err, again = unknown(context.Cause(ctx)), false
		}
	}
	if err != nil {
		return fmt.Errorf("durable: message %q: %w", d.ID, err)
	}
	return nil
}

// result returns the result of a finished call to the first caller that requests the same
// outcome. Other callers receive ErrLeaseLost, because the delivery was already settled. result
// also reports whether a call may be made again.
func (d *Delivery) result(c *settleCall, event EventKind) (err error, again bool) {
	d.from().mu.Lock()
	defer d.from().mu.Unlock()
	if c.taken || c.event != event {
		return ErrLeaseLost, c.failed
	}
	c.taken = true
	return c.err, c.failed
}

// send asks the store to settle the delivery, and logs the cause of a failure. If an earlier call
// did that and has not failed, send returns that call and false.
func (d *Delivery) send(op driver.Op, change driver.Change, cause error, then func(error)) (c *settleCall, own bool) {
	d.from().mu.Lock()
	if d.h.isSettling() {
		defer d.from().mu.Unlock()
		return d.h.settling, false
	}
	c = &settleCall{event: outcomeEvent(op, &change), done: make(chan struct{})}
	if d.h.isPrepared() {
		c.prepared, c.looking = d, true
	}
	d.h.settling = c
	d.from().pending++
	d.from().mu.Unlock()
	var start time.Time
	if d.from().q.options.OnEvent != nil {
		start = time.Now()
	}
	if c.looking {
		go c.look(d, op, change, cause, start, then)
	} else {
		c.ask(d, op, change, cause, start, then)
	}
	return c, true
}

// ask sends the call.
func (c *settleCall) ask(d *Delivery, op driver.Op, change driver.Change, cause error, start time.Time, then func(error)) {
	if cause != nil {
		d.logFailure(&change, cause)
	}
	change.ID, change.Token = d.h.record.ID, d.h.record.Token
	kind, delay := outcomeEvent(op, &change), change.Delay // so that the function does not keep change
	d.h.part.changes[op].send(change, func(a answer, err error) {
		c.end(d, a, err, Event{Kind: kind, Err: cause, Delay: delay}, start, then)
	})
}

// look asks the store whether a transaction has acknowledged the message of a prepared delivery,
// which is then over. Otherwise it makes the call, or a release instead of an acknowledgement.
func (c *settleCall) look(d *Delivery, op driver.Op, change driver.Change, cause error, start time.Time, then func(error)) {
	if firing, err := d.h.firing(); !firing {
		c.end(d, answer{Outcome: driver.Outcome{Status: driver.StatusLeaseLost}}, err, Event{}, start, then)
		return
	}
	if op == driver.OpAck || change.Incarnation != 0 && change.Reason == "" {
		op, change, c.err = driver.OpRelease, driver.Change{}, errNotCommitted
	}
	c.looking = false
	c.ask(d, op, change, cause, start, then)
}

var errNotCommitted = errors.New("the transaction that acknowledges the message has not committed, so the message was released")

// end ends the call with the store's answer. The event is for a call that succeeds.
func (c *settleCall) end(d *Delivery, a answer, err error, e Event, start time.Time, then func(error)) {
	defer d.from().done() // after OnEvent and OnError
	if err = d.answered(c, a, err); err == nil {
		if c.prepared != nil && a.Status != driver.StatusDone { // the transaction has committed
			op, change := d.endRun(driver.OpAck, driver.Change{})
			e = Event{Kind: outcomeEvent(op, &change), Delay: change.Delay}
		}
		d.h.emit(e, start)
	}
	then(err)
}

// answered processes the store's answer. If there is no answer, the lease is kept for another
// attempt. NotFound is a success only for an Ack that was repeated after an unanswered Ack. If a
// prepared delivery is over, and its lease cannot have ended, the transaction has committed.
func (d *Delivery) answered(c *settleCall, a answer, err error) error {
	d.from().mu.Lock()
	defer d.from().mu.Unlock()
	before := cmp.Or(d.h.unanswered, c.event)
	a.repeated = a.repeated || d.h.unanswered != 0
	held := time.Now().Before(d.h.until)
	committed := c.prepared != nil && a.Status != driver.StatusDone && held && !a.repeated && !d.h.gone()
	switch c.failed = err != nil; {
	case !c.failed:
		d.from().forget(d.h)
	case !c.looking:
		d.h.unanswered = cmp.Or(before, EventError) // EventError: of a release
	}
	switch done := a.repeated && held; {
	case committed && err == nil:
	case err != nil || done && before == EventAcked && c.event == EventAcked && a.Status == driver.StatusNotFound: // the earlier Ack
	case before != c.event && before.retries() && c.event.retries():
		err = unknown(ErrLeaseLost) // the store does not tell which of them has taken effect
	default:
		err = cmp.Or(a.checkHolder(), c.err)
	}
	c.err = err
	close(c.done)
	return err
}

// checkHolder returns ErrLeaseLost unless the store has made the change that the lease holder
// requested.
func (a *answer) checkHolder() error {
	switch {
	case a.Status == driver.StatusDone:
		return nil
	case a.Status == driver.StatusInterrupted:
		return ErrInterrupted
	case a.repeated: // the earlier copy may have taken effect
		return unknown(ErrLeaseLost)
	}
	return ErrLeaseLost
}
