package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// dispatcher passes claimed messages to takers. It keeps a message in a timing wheel until the
// message is due, begins it when a taker is free, extends its lease, and releases it if it does not
// begin. The comment of heldState lists the transitions. The claimers supply messages, and handlers
// and receivers take them.
//
// The dispatcher owns the lock. Its parts have no locks and do not know the dispatcher: admission
// (how much is claimed and begun), leases (the held messages), readyQueue (messages that may begin)
// and handover (begun messages and takers).
//
// Calls to the store never run under mu. They are sent to batchers, whose goroutines deliver the
// answers.
type dispatcher struct {
	q     *Queue
	opts  *ConsumerOptions
	ctx   context.Context // ends when no more messages begin
	parts []*consumerPart
	wheel *timingwheel.Timeouts[*heldMessage]

	mu        sync.Mutex
	admission admission
	leases    leases
	ready     readyQueue
	handover  handover
	pending   pending // what drain waits for: see pending
	faults    []fault // reported when mu is unlocked
}

// consumerPart is the state of a partition in one consumer.
type consumerPart struct {
	*part
	claimer *partitionClaimer
	begins  batcher[driver.Change, answer]

	// Guarded by the dispatcher's mutex.
	share  share
	parked lazyFIFO[*heldMessage] // see readyQueue
	slow   *time.Timer            // for the claim in progress, if it has a grant
}

// wheelTick is finer than the millisecond resolution of due times, so that rounding up to a tick
// costs little.
const wheelTick = 250 * time.Microsecond

// newDispatcher returns a dispatcher for all partitions of a queue, without their claimers.
func newDispatcher(ctx context.Context, q *Queue, opts *ConsumerOptions) (*dispatcher, error) {
	d := &dispatcher{q: q, opts: opts, ctx: ctx, leases: newLeases(opts)}
	d.handover.used = time.Now()
	d.admission.opts, d.admission.handover = opts, &d.handover
	wheel, err := timingwheel.NewTimeouts(timingwheel.Options{Tick: wheelTick, Shards: 1}, d.expire)
	if err != nil {
		return nil, err
	}
	d.wheel = wheel
	for i, part := range q.parts {
		p := &consumerPart{part: part, share: share{partition: i}}
		part.initBatcher(&p.begins, func(changes []driver.Change) ([]answer, error) { return d.begin(p, changes) })
		d.parts = append(d.parts, p)
	}
	return d, nil
}

// pending counts operations in progress: calls to the store, with the calls to OnEvent and OnError
// that follow them, and messages that begin or wait in the wheel.
type pending struct {
	n    int
	none chan struct{} // closed when n becomes 0; nil if there is no waiter
}

func (p *pending) add() { p.n++ }

func (p *pending) done() {
	if p.n--; p.n == 0 && p.none != nil {
		close(p.none)
		p.none = nil
	}
}

// over returns a channel that is closed when n becomes 0. n must be positive.
func (p *pending) over() <-chan struct{} {
	if p.none == nil {
		p.none = make(chan struct{})
	}
	return p.none
}

// unlock unlocks mu and then reports the faults that were recorded under it, because OnError may
// call methods of the queue. The reports are pending.
func (d *dispatcher) unlock() {
	faults := d.faults
	if len(faults) == 0 {
		d.mu.Unlock()
		return
	}
	d.faults = nil
	d.pending.add()
	d.mu.Unlock()
	for _, f := range faults {
		d.q.reportFault(f)
	}
	d.done()
}

// done ends a pending operation.
func (d *dispatcher) done() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pending.done()
}

// send asks the store for a change of a held message. The caller holds mu. The function then
// receives the answer and is called with mu held.
func (d *dispatcher) send(h *heldMessage, op driver.Op, change driver.Change, then func(answer, error)) {
	d.pending.add()
	h.part.changes[op].send(change, func(a answer, err error) {
		d.mu.Lock()
		defer d.unlock()
		then(a, err)
		d.pending.done()
	})
}

// drain waits until nothing is pending. The end of an operation may add the report of its fault.
func (d *dispatcher) drain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.pending.n > 0 {
		over := d.pending.over()
		d.mu.Unlock()
		<-over
		d.mu.Lock()
	}
}

// setOwned sets the number of partitions that share the prefetch limits.
func (d *dispatcher) setOwned(partitions int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.admission.owned = partitions
}

// disowned removes a partition from the grants.
func (d *dispatcher) disowned(p *consumerPart) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.admission.disowned(&p.share)
	d.match()
}

// expect records that a message may be overdue when the next claim reaches the store. The store
// makes the decision, because this process's estimate of its clock may be behind by the duration of
// a call.
func (d *dispatcher) expect(p *consumerPart, due driver.Instant) {
	left := p.clock.until(due)
	d.mu.Lock()
	defer d.mu.Unlock()
	p.share.overdue = p.share.overdue || left <= p.share.roundTrip && !p.share.paused
}

// plan returns the next claim of a partition, or false if the partition must wait for a grant,
// which wakes its claimer. The caller makes the claim and calls hold with the answer.
//
// If the claim is slow because a Cluster master is unreachable, other partitions get its grant. The
// claim continues, and the messages that it begins wait for the next takers.
func (d *dispatcher) plan(p *consumerPart, stale bool) (driver.Claim, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	plan, ok := d.admission.plan(&p.share, stale)
	if plan.Begin > 0 {
		number := p.share.claims
		p.slow = time.AfterFunc(stallTime, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if p.share.claims == number {
				d.admission.ungrant(&p.share)
				d.match()
			}
		})
	}
	return plan, ok
}

// hold adds the messages of a claim that began at sent. A failed claim has none. If the partition
// is paused, hold releases all of its messages that no taker has.
func (d *dispatcher) hold(p *consumerPart, claimed driver.Claimed, sent time.Time) {
	roundTrip := time.Duration(-1)
	if !claimed.Now.IsZero() {
		p.clock.observe(claimed.Now, sent)
		roundTrip = time.Since(sent)
	}
	overdue := claimed.Next > 0 && !claimed.Next.Time().After(claimed.Now) && !claimed.Paused
	messages := make([]*heldMessage, len(claimed.Records))
	for i := range claimed.Records {
		messages[i] = &heldMessage{record: claimed.Records[i], part: p}
	}
	d.q.emitClaims(messages, sent)
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.slow != nil {
		p.slow.Stop()
	}
	d.admission.claimEnded(&p.share, roundTrip, overdue)
	if roundTrip >= 0 && p.share.paused != claimed.Paused {
		if p.share.paused = claimed.Paused; p.share.paused {
			d.releaseHeld(func(h *heldMessage) bool { return h.part == p && h.releasable() })
		}
	}
	for _, h := range messages {
		if p.share.paused {
			h.state = heldGone
			d.sendRelease(h)
			continue
		}
		d.leases.add(h, sent, claimed.Now)
		if h.record.State == driver.StateFiring {
			d.offer(h)
			continue
		}
		d.admission.claimed(&p.share, len(h.record.Body))
		if wait := p.clock.until(h.record.Due) - beginLead; wait > 0 {
			h.state, h.timer = heldArmed, d.wheel.Add(wait, h)
		} else {
			d.ready.push(h)
		}
	}
	d.match()
}

// expire is called by the wheel with the messages whose timers have expired.
func (d *dispatcher) expire(due []*heldMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range due {
		switch h.state {
		case heldArmed:
			d.ready.push(h)
		case heldWaiting:
			d.offer(h)
			d.admission.beginDone()
			d.pending.done()
		}
	}
	d.match()
}

// match begins as many ready messages as there are free takers, and grants the remaining takers to
// waiting partitions. It is called after each change of either. mu is held.
func (d *dispatcher) match() {
	if d.ctx.Err() != nil {
		return
	}
	for d.admission.free() > 0 {
		h := d.ready.next()
		if h == nil {
			break
		}
		h.state = heldBeginning
		d.admission.beginSent(&h.part.share)
		d.pending.add()
		h.part.begins.send(d.leases.begin(h, time.Now()), func(a answer, err error) { d.begun(h, a, err) })
	}
	d.admission.grantNext()
}

// begin calls Begin for a partition. The partition is stalled while the call is slow.
func (d *dispatcher) begin(p *consumerPart, changes []driver.Change) ([]answer, error) {
	d.mu.Lock()
	number := d.admission.callStarts(&p.share)
	d.mu.Unlock()
	slow := time.AfterFunc(stallTime, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.admission.stall(&p.share, number)
		d.match()
	})
	batch := driver.Batch{Partition: p.index, Op: driver.OpBegin, Lead: beginLead, Changes: changes}
	for i := range changes { // leases change only if one of them would be too short
		batch.Visibility = max(batch.Visibility, changes[i].Delay)
	}
	answers, err := p.apply(batch)
	slow.Stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.admission.callEnds(&p.share) { // before the answers are passed on
		p.share.wake()
		d.ready.unpark(p)
		d.match()
	}
	return answers, err
}

// begun handles the store's answer to the begin of a message.
func (d *dispatcher) begun(h *heldMessage, a answer, err error) {
	done := err == nil && a.Status == driver.StatusDone
	if err == nil {
		h.part.clock.observe(a.Now, a.sent)
	}
	if done {
		h.emit(Event{Kind: EventBegun}, a.sent)
	}
	d.mu.Lock()
	defer d.unlock()
	d.admission.beginAnswered(&h.part.share)
	if done && h.state != heldGone {
		d.admission.unclaimed(&h.part.share, len(h.record.Body))
		if d.leases.began(h, a, time.Now()) {
			d.extend(h)
		}
	}
	if a.Status == driver.StatusPaused {
		h.part.share.overdue = false // otherwise the claimer might wait for a grant
		h.part.share.wake()          // the next claim reports the pause
	}
	next, wait := h.beginResult(a, err, d.ctx.Err() != nil)
	switch next {
	case beginWait:
		h.state, h.timer = heldWaiting, d.wheel.Add(wait, h)
		return // it still occupies a taker
	case beginDeliver:
		d.offer(h)
	case beginRepeat:
		h.record.Due, h.state, h.timer = a.Due, heldArmed, d.wheel.Add(wait, h)
	case beginRelease:
		d.forget(h)
		d.sendRelease(h)
	case beginForget:
		if d.forget(h) && err != nil {
			d.faults = append(d.faults, h.fault(fmt.Errorf("begin: %w", err)))
		}
	}
	d.admission.beginDone()
	d.match()
	d.pending.done()
}

// offer passes a begun message to a taker, or keeps it for the next one, because a handler or
// receiver is usually free soon and a released message would be queued behind later ones. If
// receivers had to be waiting when the store answers, a Take that waits for less than a round trip
// would never get a message. If no taker comes, the message is released when the consumer retires.
// A message of a paused partition is released immediately.
func (d *dispatcher) offer(h *heldMessage) {
	if !h.part.share.paused {
		now := time.Now()
		if t := d.handover.give(h, now); t != nil {
			d.admission.readAhead.delivered(now)
			t.ready <- h
			return
		}
		if d.ctx.Err() == nil {
			d.handover.keep(h)
			return
		}
	}
	h.state = heldTaken // it no longer occupies a taker
	d.forget(h)
	d.sendRelease(h)
}

// take waits for a message that has begun and is due. After an error t must not be used again.
func (d *dispatcher) take(ctx context.Context, t *taker) (*heldMessage, error) {
	d.mu.Lock()
	if d.ctx.Err() != nil { // begun messages are being released
		d.mu.Unlock()
		return nil, context.Cause(d.ctx)
	}
	now := time.Now()
	h := d.handover.take(t, now)
	if h != nil {
		d.admission.readAhead.delivered(now)
	}
	d.match()
	d.mu.Unlock()
	if h != nil {
		return h, nil
	}
	var err error
	select {
	case h := <-t.ready:
		return h, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-d.ctx.Done():
		err = context.Cause(d.ctx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case h := <-t.ready: // received in the meantime
		return h, nil
	default:
		d.handover.leave(t, time.Now())
		return nil, err
	}
}

// forget changes the state of a message to gone, and reports whether the message was not gone
// before. mu is held. The caller must call match.
func (d *dispatcher) forget(h *heldMessage) bool {
	state := h.state
	if state == heldGone {
		return false
	}
	h.timer.Stop()
	h.state = heldGone
	d.leases.remove(h)
	if state <= heldBeginning {
		d.admission.unclaimed(&h.part.share, len(h.record.Body))
	}
	switch state {
	case heldReady, heldParked:
		d.ready.remove(h, state)
	case heldWaiting:
		d.admission.beginDone()
		d.pending.done()
	case heldBegun:
		d.handover.begun.removed()
	}
	return true
}

// release releases the held messages for which ok returns true.
func (d *dispatcher) release(ok func(*heldMessage) bool) {
	d.mu.Lock()
	defer d.unlock()
	d.releaseHeld(ok)
}

// releaseHeld is release with mu held.
func (d *dispatcher) releaseHeld(ok func(*heldMessage) bool) {
	var back []*heldMessage
	for h := range d.leases.held {
		if ok(h) {
			back = append(back, h)
		}
	}
	for _, h := range back {
		if h.run != nil {
			d.faults = append(d.faults, h.fault(errStillRuns))
		}
		d.forget(h)
	}
	for _, h := range back {
		d.sendRelease(h)
	}
	d.match()
}

var errStillRuns = errors.New("released because the consumer is ending while the handler is still running")

// sendRelease sends the release of a message to the store. If the call fails, the message is
// redelivered when its lease expires. mu is held.
func (d *dispatcher) sendRelease(h *heldMessage) {
	d.send(h, driver.OpRelease, h.change(), func(_ answer, err error) {
		if err != nil && d.q.ctx.Err() == nil {
			d.faults = append(d.faults, h.fault(fmt.Errorf("release: %w", err)))
		}
	})
}

// renew checks all leases: of messages with a running handler, and of messages that are due and
// wait for a handler.
func (d *dispatcher) renew(now time.Time) {
	d.mu.Lock()
	defer d.unlock()
	for h := range d.leases.held {
		switch d.leases.action(h, now) {
		case leaseExtend:
			d.extend(h)
		case leaseLose:
			d.loseLease(h)
		case leaseForget:
			d.forget(h)
		case leaseKeep:
		}
	}
}

// extend extends a lease. mu is held.
func (d *dispatcher) extend(h *heldMessage) {
	d.send(h, driver.OpExtend, d.leases.extend(h), func(a answer, err error) {
		h.extending = false
		switch {
		case h.state == heldGone || err != nil:
		case a.Status == driver.StatusDone:
			d.leases.extended(h, a)
		case h.settling: // the message was settled, and the answer has not arrived yet
		default:
			d.loseLease(h)
		}
	})
}

// loseLease drops a message whose lease has expired or is about to expire, and cancels the context
// of its handler. mu is held.
func (d *dispatcher) loseLease(h *heldMessage) {
	begun := h.state == heldBegun || h.state == heldTaken // others may have been cancelled
	if !d.forget(h) {
		return
	}
	if begun && !h.settling { // otherwise the call that settles the message reports the result
		d.faults = append(d.faults, h.fault(ErrLeaseLost))
	}
	if h.run != nil {
		h.run.cancel(ErrLeaseLost)
	}
	d.match()
}

// handOff records that a taken message is passed to a receiver or to a handler's worker. If renew
// is set, the lease is extended from now on. If r is not nil, the handler is about to be called,
// and r is cancelled if the lease is lost.
//
// handOff reports whether the lease still holds. It is over if the message was cancelled, or if the
// process was suspended after the message was taken, so that another consumer has the message. The
// message is then dropped and reported.
func (d *dispatcher) handOff(h *heldMessage, renew bool, r *run) bool {
	d.mu.Lock()
	defer d.unlock()
	if r != nil {
		h.run = r
	}
	if h.state == heldGone || !time.Now().Before(h.until) {
		d.loseLease(h)
		return false
	}
	h.renew, h.handed = renew, true
	return true
}

// stopRenewal stops extending a lease, because the message will not be settled.
func (d *dispatcher) stopRenewal(h *heldMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h.renew = false
}

// load has the numbers of messages that a dispatcher holds.
type load struct {
	unbegun int           // messages that have not begun
	begun   int           // messages that have begun
	waiting int           // takers that wait for a message
	idle    time.Duration // time since a taker last waited
}

// held returns the number of all messages.
func (l load) held() int { return l.unbegun + l.begun }

// load returns the current load. It is O(partitions).
func (d *dispatcher) load() load {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := load{waiting: d.handover.takers.len(), idle: d.handover.idle(time.Now())}
	for _, p := range d.parts {
		l.unbegun += p.share.unbegun
	}
	l.begun = len(d.leases.held) - l.unbegun
	return l
}
