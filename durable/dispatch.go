package durable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
// (how much is claimed and begun) and handover (begun messages and takers).
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
	held      map[*heldMessage]struct{} // messages that are not gone, or whose handlers run
	handover  handover
	checker   *time.Timer // calls check
	checking  bool        // checker is running
	faults    []fault     // reported when mu is unlocked

	// pending counts operations in progress: calls to the store, with the calls to OnEvent and
	// OnError that follow them.
	pending int
	drained sync.Cond // signals that pending became 0
}

// consumerPart is the state of a partition in one consumer.
type consumerPart struct {
	*part
	d       *dispatcher
	claimer *partitionClaimer
	begins  batcher[driver.Change, answer]

	share share // guarded by the dispatcher's mutex

	// left is the time when suspects were last released. For Fallback from then on, claims that can
	// wait are left to other consumers. Guarded by the dispatcher's mutex.
	left time.Time
}

// wheelTick is finer than the millisecond resolution of due times, so rounding up costs little.
const wheelTick = 250 * time.Microsecond

// newDispatcher returns a dispatcher for all partitions of a queue, without their claimers.
func newDispatcher(ctx context.Context, q *Queue, opts *ConsumerOptions, b budget) (*dispatcher, error) {
	d := &dispatcher{q: q, opts: opts, ctx: ctx, held: make(map[*heldMessage]struct{})}
	d.drained.L = &d.mu
	d.handover.used, d.handover.most = time.Now(), opts.Concurrency
	d.admission = admission{opts: opts, handover: &d.handover, budget: b}
	d.checker = time.AfterFunc(time.Hour, d.check)
	d.checker.Stop()
	d.admission.budget.timer = time.AfterFunc(time.Hour, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.match()
	})
	d.admission.budget.timer.Stop()
	wheel, err := timingwheel.NewTimeouts(timingwheel.Options{Tick: wheelTick, Shards: 1}, d.expire)
	if err != nil {
		return nil, err
	}
	d.wheel = wheel
	for i, part := range q.parts {
		p := &consumerPart{part: part, d: d, share: share{partition: i, overdue: true}}
		part.initChanges(&p.begins, nil, driver.Batch{Op: driver.OpBegin, Lead: beginLead, Visibility: opts.Visibility})
		d.parts = append(d.parts, p)
	}
	return d, nil
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
	d.pending++
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
	d.doneLocked()
}

// doneLocked is done with mu held.
func (d *dispatcher) doneLocked() {
	if d.pending--; d.pending == 0 {
		d.drained.Broadcast()
	}
}

// send asks the store for a change of a held message. The caller holds mu. The function then
// receives the answer and is called with mu held.
func (d *dispatcher) send(h *heldMessage, op driver.Op, change driver.Change, then func(answer, error)) {
	d.pending++
	h.part.changes[op].send(change, func(a answer, err error) {
		d.mu.Lock()
		defer d.unlock()
		then(a, err)
		d.doneLocked()
	})
}

// drain waits until nothing is pending. The end of an operation may add the report of its fault.
func (d *dispatcher) drain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.pending > 0 {
		d.drained.Wait()
	}
}

// setMembers records which partitions the consumer owns, and how many of the other members, and of
// those in other processes, have free takers. It returns its partitions and whether they changed.
func (d *dispatcher) setMembers(own func(int) bool, freeOthers, freeElsewhere int) (owned []int, changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, p := range d.parts {
		before := p.share.own
		if p.share.own = own(i); p.share.own {
			owned = append(owned, i)
		}
		if p.share.own != before {
			changed = true
			p.share.wake()
		}
	}
	a := &d.admission
	a.freeOthers, a.freeElsewhere, a.owned = freeOthers, freeElsewhere, len(owned)
	return owned, changed
}

// heartbeat sets the own partitions of a member, what waits and runs in it, and the number of
// takers that were free at some time since the last heartbeat, or the one before if it is recent.
func (d *dispatcher) heartbeat(m *driver.Member) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	m.Free = d.handover.mostWaiting(now, d.opts.Membership/4)
	if b := &d.admission.budget; b.source.MaxRunning > 0 {
		m.Free = min(m.Free, b.running) // else others would leave their messages to it
	}
	for i, p := range d.parts {
		if p.share.own {
			m.Partitions = append(m.Partitions, i)
		}
	}
	for _, waiting := range []*lazyFIFO[*heldMessage]{&d.admission.ready, &d.admission.suspects, &d.handover.begun} {
		if h, ok := waiting.first(); ok {
			m.Waiting += waiting.len()
			m.WaitingFor = max(m.WaitingFor, -h.part.clock.until(h.record.Due))
		}
	}
	for h := range d.held {
		m.OldestRun = max(m.OldestRun, h.runningFor(now))
	}
}

// claimPeriod returns the longest time between two claims of the partition, and whether the
// consumer owns it. All consumers with free takers together visit a partition of another consumer
// about once per Fallback. The times are random, so that the consumers do not visit it together.
func (p *consumerPart) claimPeriod() (period time.Duration, own bool) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	if period = p.d.opts.Fallback; !p.share.own {
		period = time.Duration((0.5 + rand.Float64()) * float64(p.d.admission.freeOthers+1) * float64(period))
	}
	return period, p.share.own
}

// expect records that a message of an own partition is due when the next claim reaches the store,
// because the time left until then is at most beginLead. It returns whether the partition is an own
// one, and the number of consumers that have free takers.
func (p *consumerPart) expect(left time.Duration) (own bool, free int) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	s := &p.share
	s.overdue = s.overdue || s.own && !s.paused && left <= beginLead
	return s.own, p.d.admission.freeOthers + 1
}

// plan returns the next claim of the partition, or false if none is necessary now: see
// admission.plan. The caller makes the claim and calls hold with the answer.
func (p *consumerPart) plan(must bool) (claim driver.Claim, own, ok bool) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	if !must && time.Since(p.left) < p.d.opts.Fallback {
		p.d.admission.ungrant(&p.share)
		return claim, p.share.own, false
	}
	claim, ok = p.d.admission.plan(&p.share, must)
	p.d.match()
	return claim, p.share.own, ok
}

// hold adds the messages of a claim that began at sent. A failed claim has none. If the partition
// is paused, hold releases all of its messages that no taker has, and if the consumer has ended,
// the claim's messages. It reports whether the store may have more messages that are due.
func (p *consumerPart) hold(claimed driver.Claimed, sent time.Time) (overdue bool) {
	answered, overdue := !claimed.Now.IsZero(), true
	if answered {
		p.observe(claimed.Now, sent)
		overdue = claimed.Next > 0 && !claimed.Next.Time().After(claimed.Now) && !claimed.Paused
	}
	messages := make([]*heldMessage, len(claimed.Records))
	for i := range messages {
		messages[i] = &heldMessage{record: claimed.Records[i], part: p}
	}
	d := p.d
	if d.ctx.Err() == nil { // else the messages are released
		p.q.emitClaims(messages, sent)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.admission.claimEnded(&p.share, overdue)
	if answered && p.share.paused != claimed.Paused {
		if p.share.paused = claimed.Paused; p.share.paused {
			d.releaseHeld(func(h *heldMessage) bool { return h.part == p && h.releasable() })
		}
	}
	for _, h := range messages {
		h.until = sent.Add(h.record.LeaseEnd.Time().Sub(claimed.Now))
		p.add(h)
	}
	d.match()
	return overdue
}

// add adds a claimed message. mu is held.
func (p *consumerPart) add(h *heldMessage) {
	d := p.d
	if p.share.paused || d.ctx.Err() != nil {
		h.state = heldGone
		d.sendRelease(h)
		return
	}
	d.held[h] = struct{}{}
	if h.record.State == driver.StateFiring {
		d.offer(h)
		return
	}
	d.admission.claimed(&p.share, len(h.record.Body))
	if wait := p.clock.until(h.record.Due) - beginLead; wait > 0 {
		h.state, h.timer = heldArmed, d.wheel.Add(wait, h)
	} else {
		d.admission.pushReady(h)
	}
}

// expire is called by the wheel with the messages whose timers have expired.
func (d *dispatcher) expire(due []*heldMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range due {
		switch h.state {
		case heldArmed:
			d.admission.pushReady(h)
		case heldWaiting:
			d.admission.reserve(&h.part.share, -1)
			d.offer(h)
		}
	}
	d.match()
}

// match begins as many ready messages as there are spare takers, grants the remaining takers to
// waiting partitions, and starts the checker if it is needed. It is called after each change of
// these. mu is held.
func (d *dispatcher) match() {
	if d.ctx.Err() != nil {
		return
	}
	a := &d.admission
	n := a.ready.len()
	if a.suspects.len() > 0 && turn.Load() == nil {
		n++
	}
	for n = a.spare(n); n > 0; n-- {
		h, ok := a.popReady()
		if !ok {
			break
		}
		h.state = heldBeginning
		a.reserve(&h.part.share, 1)
		h.part.share.beginning++
		d.pending++
		h.part.begins.send(h.change(), func(outcome answer, err error) { d.begun(h, outcome, err) })
	}
	a.grantNext()
	denied := a.budget.endRound(a)
	if !d.checking && (denied || a.reserved > 0 || a.ready.len()+a.suspects.len()+d.handover.begun.len() > 0) {
		d.checking = true
		d.checker.Reset(checkPeriod)
	}
}

// check frees the takers of slow partitions, and releases the messages that have waited too long
// for a taker: those that have begun, because they can no longer be cancelled, and the others if
// another consumer has a free taker. Suspects that wait for their turn are left to other processes.
func (d *dispatcher) check() {
	d.mu.Lock()
	defer d.unlock()
	d.checking = false
	if d.ctx.Err() != nil {
		return
	}
	a := &d.admission
	a.checks++
	a.readAhead.delivered(0, time.Now())
	for _, p := range d.parts {
		a.check(&p.share)
	}
	a.crowded = d.giveBackLate(&d.handover.begun) || a.crowded
	if h, ok := a.ready.first(); ok && a.checks-h.since >= lateChecks {
		a.crowded = true
		if a.freeOthers > 0 {
			d.giveBackLate(&a.ready)
		}
	}
	if turn.Load() == nil && a.freeOthers > 0 { // the suspects wait for takers too
		a.crowded = d.giveBackLate(&a.suspects) || a.crowded
	}
	if h, ok := a.suspects.first(); ok && a.freeElsewhere > 0 && time.Since(h.part.left) >= leavePause {
		d.giveBackLate(&a.suspects)
	}
	d.match()
}

// giveBackLate releases the messages that have waited too long for a taker, and reports whether
// there were any.
func (d *dispatcher) giveBackLate(waiting *lazyFIFO[*heldMessage]) (found bool) {
	for h, ok := waiting.first(); ok && d.admission.checks-h.since >= lateChecks; h, ok = waiting.first() {
		found = true
		if h.part.share.overdue = true; h.suspect() && h.unbegun() && turn.Load() != nil {
			h.part.left = time.Now()
		}
		d.giveBack(h)
		h.part.share.wake()
	}
	return found
}

// begun handles the store's answer to the begin of a message.
func (d *dispatcher) begun(h *heldMessage, a answer, err error) {
	done := err == nil && a.Status == driver.StatusDone
	if err == nil {
		h.part.observe(a.Now, a.sent)
	}
	if done {
		h.emit(Event{Kind: EventBegun}, a.sent)
	}
	d.mu.Lock()
	defer d.unlock()
	s := &h.part.share
	d.admission.callEnded(s)
	s.beginning--
	d.admission.reserve(s, -1)
	wait := a.Due.Time().Sub(a.Now) // the store read its clock before now
	switch {
	case done && h.state == heldGone: // dropped before the answer arrived
		d.sendRelease(h)
	case done:
		d.admission.unclaimed(s, len(h.record.Body))
		h.until = a.until()
		if wait <= 0 {
			d.offer(h)
			break
		}
		d.admission.reserve(s, 1) // it still occupies a taker
		if h.state, h.timer = heldWaiting, d.wheel.Add(wait, h); d.ctx.Err() != nil {
			d.giveBack(h) // retire may have released the others
		}
	case err == nil && a.Status == driver.StatusPaused:
		s.overdue = false // otherwise the claimer might wait for a taker
		s.wake()          // the next claim reports the pause
		d.giveBack(h)
	case err == nil && a.Status == driver.StatusEarly && d.ctx.Err() != nil: // like the messages that retire has released
		d.giveBack(h)
	case err == nil && a.Status == driver.StatusEarly && h.state != heldGone: // the store's clock was set back
		h.endTurn()
		h.record.Due, h.state, h.timer = a.Due, heldArmed, d.wheel.Add(max(wait-beginLead, time.Millisecond), h)
	case d.forget(h) && err != nil: // else it was cancelled, or its lease is lost
		d.faults = append(d.faults, h.fault(fmt.Errorf("begin: %w", err)))
	}
	d.match()
	d.doneLocked()
}

// giveBack releases a message unless it is gone.
func (d *dispatcher) giveBack(h *heldMessage) {
	if d.forget(h) {
		d.sendRelease(h)
	}
}

// offer passes a begun message to a taker, or keeps it for the next one, because a handler or
// receiver is usually free soon. If receivers had to be waiting when the store answers, a Take that
// waits for less than a round trip would never get a message. If no taker comes soon, check
// releases the message. A message of a paused partition is released immediately.
func (d *dispatcher) offer(h *heldMessage) {
	now := time.Now()
	d.admission.budget.delivered(now)
	if !h.part.share.paused {
		if t := d.handover.give(h, now); t != nil {
			d.admission.readAhead.delivered(1, now)
			t.ready <- h
			return
		}
		if d.ctx.Err() == nil {
			h.since = d.admission.checks
			d.handover.keep(h)
			return
		}
	}
	h.state = heldTaken // it no longer occupies a taker
	d.giveBack(h)
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
		d.admission.readAhead.delivered(1, now)
	} else if d.admission.ready.len() == 0 {
		d.admission.crowded = false
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
	if h.run == nil || h.run.state.Load() != runRunning {
		h.remove()
	}
	state := h.state
	if state == heldGone {
		return false
	}
	if h.unbegun() {
		d.admission.unclaimed(&h.part.share, len(h.record.Body))
	}
	h.timer.Stop()
	h.state = heldGone
	switch state {
	case heldReady:
		d.admission.readyList(h).removed()
	case heldWaiting:
		d.admission.reserve(&h.part.share, -1)
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
	for h := range d.held {
		if ok(h) {
			if h.run != nil {
				d.faults = append(d.faults, h.fault(errStillRuns))
			}
			d.giveBack(h)
		}
	}
	d.match()
}

var errStillRuns = errors.New("released because the consumer is ending while the handler is still running")

// sendRelease sends the release of a message to the store. If the call fails, the message is
// redelivered when its lease expires. mu is held.
func (d *dispatcher) sendRelease(h *heldMessage) {
	d.send(h, driver.OpRelease, h.change(), func(_ answer, err error) {
		if err != nil && d.q.ctx.Err() == nil && !deleted(err) {
			d.faults = append(d.faults, h.fault(fmt.Errorf("release: %w", err)))
		}
	})
}

// renew checks all leases: of messages with a running handler, and of messages that are due and
// wait for a handler.
func (d *dispatcher) renew(now time.Time) {
	d.mu.Lock()
	defer d.unlock()
	for h := range d.held {
		if h.runningFor(now) > d.opts.SlowHandler && !h.slow {
			h.slow = true
			d.faults = append(d.faults, h.fault(fmt.Errorf(
				"the handler has not returned for %v (ConsumerOptions.SlowHandler)", d.opts.SlowHandler)))
		}
		switch h.leaseAction(d.opts, now) {
		case leaseExtend:
			d.extend(h)
		case leaseLose:
			d.loseLease(h)
		case leaseKeep:
		}
	}
}

// extend extends a lease. mu is held.
func (d *dispatcher) extend(h *heldMessage) {
	h.extending = true
	change := h.change()
	change.Delay, change.Begun = d.opts.hold(), d.opts.Visibility // the store knows whether it has begun
	d.send(h, driver.OpExtend, change, func(a answer, err error) {
		h.extending = false
		switch {
		case h.state == heldGone || err != nil:
		case a.Status == driver.StatusDone || a.Status == driver.StatusInterrupted:
			if a.until().After(h.until) { // else a begin took effect later and was answered earlier
				h.until = a.until()
			}
			if a.Status == driver.StatusInterrupted && h.run != nil {
				h.run.cancel(ErrInterrupted)
			}
		case h.isSettling(): // the message was settled, and the answer has not arrived yet
		case h.isPrepared(): // the transaction may have committed while the handler runs
			d.pending++
			go func(prepared *Delivery) {
				defer d.done()
				if firing, err := h.firing(); !firing && err == nil {
					prepared.settleLater(driver.OpAck, driver.Change{}, nil, func() {})
				}
			}(h.settling.prepared)
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
	// A receiver, or a handler after its deadline, loses its message without a report. While the
	// message is being settled, that call reports the result.
	if begun && !h.isSettling() && (h.renew || h.handed.IsZero()) {
		d.faults = append(d.faults, h.fault(ErrLeaseLost))
		if h.handed.IsZero() { // the claim may have reached the store late, and the lease may last
			d.sendRelease(h)
		}
	}
	if h.run != nil {
		h.run.cancel(ErrLeaseLost)
	}
	d.match()
}

// handOff records that a taken message is passed to a receiver or to the run of a handler. The
// lease of a handler is extended from now on, and the run is cancelled if the lease is lost.
//
// handOff reports whether the lease still holds. It is over if the message was cancelled, or if the
// process was suspended after the message was taken, so that another consumer has the message. The
// message is then dropped and reported.
func (d *dispatcher) handOff(h *heldMessage, r *run) bool {
	d.mu.Lock()
	defer d.unlock()
	if h.state == heldGone || !time.Now().Before(h.until) {
		d.loseLease(h)
		return false
	}
	h.run, h.renew, h.handed = r, r != nil, time.Now()
	return true
}

// stopRenewal stops extending a lease, because the message will not be settled.
func (d *dispatcher) stopRenewal(h *heldMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.renew = false; h.gone() {
		h.remove()
	}
}

// load returns the numbers of messages that the dispatcher holds and that have not begun or have
// begun, and the time since a taker last waited. It is O(messages).
func (d *dispatcher) load() (unbegun, begun int, idle time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for h := range d.held {
		switch {
		case h.gone():
		case h.unbegun():
			unbegun++
		default:
			begun++
		}
	}
	return unbegun, begun, d.handover.idle(time.Now())
}
