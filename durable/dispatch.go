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

// dispatcher hands messages that a consumer has claimed to takers: it waits for their due times in
// a timing wheel, begins them when takers are free, keeps their leases, and releases those that did
// not begin. The table of heldState shows its transitions. The pumps give it messages, and handlers
// and receivers take them.
//
// Calls of the store never run under mu: they are sent to batchers, whose goroutines bring the
// answers.
type dispatcher struct {
	q     *Queue
	opts  *ConsumerOptions
	ctx   context.Context // ends when no message begins any more
	parts []*consumerPart
	wheel *timingwheel.Timeouts[*held]

	mu        sync.Mutex
	admission admission
	leases    leases
	ready     fifo[*held]   // in the order in which they became due, with some that are gone
	gone      int           // about so many of ready
	begun     fifo[*held]   // that wait for a taker
	takers    fifo[*taker]  // with some that have left
	idleSince time.Time     // when a taker waited last
	pending   int           // messages and calls of the store that drain waits for
	drained   chan struct{} // closed when pending becomes 0; made by drain
	told      []fault       // to be reported when mu is unlocked
}

// consumerPart is what a consumer has of a partition.
type consumerPart struct {
	*part
	pump   *pump
	begins batcher[driver.Change, answer]
	share  share       // dispatcher.mu guards it, and parked
	parked fifo[*held] // ready messages that wait until the partition no longer stands aside
}

// wheelTick is finer than the milliseconds of due times, so that rounding up to it costs little.
const wheelTick = 250 * time.Microsecond

// newDispatcher makes a dispatcher for all partitions of a queue, without their pumps.
func newDispatcher(ctx context.Context, q *Queue, opts *ConsumerOptions) (*dispatcher, error) {
	d := &dispatcher{q: q, opts: opts, ctx: ctx, idleSince: time.Now()}
	d.admission.opts = opts
	d.leases = leases{visibility: opts.Visibility, hold: min(opts.Membership, opts.Visibility), held: make(map[*held]struct{})}
	wheel, err := timingwheel.NewTimeouts(timingwheel.Options{Tick: wheelTick, Shards: 1}, d.expire)
	if err != nil {
		return nil, err
	}
	d.wheel = wheel
	for i, part := range q.parts {
		p := &consumerPart{part: part, share: share{partition: i}}
		part.gather(&p.begins, func(changes []driver.Change) ([]answer, error) { return d.beginAll(p, changes) })
		d.parts = append(d.parts, p)
	}
	return d, nil
}

// unlock unlocks mu, and then reports the errors that were noted under it: OnError may ask
// something of the queue.
func (d *dispatcher) unlock() {
	told := d.told
	d.told = nil
	d.mu.Unlock()
	for _, f := range told {
		d.q.reportFault(f)
	}
}

// send asks the store for a change of a held message. Then is called with the answer, with mu held.
// mu is held.
func (d *dispatcher) send(h *held, op driver.Op, change driver.Change, then func(answer, error)) {
	d.pending++
	h.part.changes[op].send(change, func(a answer, err error) {
		d.mu.Lock()
		defer d.unlock()
		then(a, err)
		d.done()
	})
}

// done ends something that was pending. mu is held.
func (d *dispatcher) done() {
	if d.pending--; d.pending == 0 && d.drained != nil {
		close(d.drained)
		d.drained = nil
	}
}

// drain waits until nothing is pending.
func (d *dispatcher) drain() {
	d.mu.Lock()
	if d.pending == 0 {
		d.mu.Unlock()
		return
	}
	drained := make(chan struct{})
	d.drained = drained
	d.mu.Unlock()
	<-drained
}

// setOwned notes how many partitions share what may be claimed.
func (d *dispatcher) setOwned(partitions int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.admission.owned = partitions
}

// plan is the next claim of a partition. It reports false if the partition has to wait for a grant,
// which wakes its pump.
func (d *dispatcher) plan(p *consumerPart, stale bool) (driver.Claim, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	claim, ok := d.admission.plan(&p.share, stale)
	claim.Visibility, claim.Hold = d.leases.visibility, d.leases.hold
	return claim, ok
}

// emptyClaim is a claim of no messages.
func (d *dispatcher) emptyClaim(p *consumerPart) driver.Claim {
	return driver.Claim{
		Partition: p.index, Visibility: d.leases.visibility, Hold: d.leases.hold, MaxCrashes: d.opts.MaxCrashes,
	}
}

// expect notes that a message may be overdue when the next claim comes to the store. The store
// decides that; the clock here may be behind by the duration of a call.
func (d *dispatcher) expect(p *consumerPart, due driver.Instant) {
	left := p.clock.until(due)
	d.mu.Lock()
	defer d.mu.Unlock()
	p.share.overdue = p.share.overdue || left <= p.share.trip && !p.share.paused
}

// disowned ends a partition's part in the grants.
func (d *dispatcher) disowned(p *consumerPart) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.admission.disowned(&p.share)
	d.match()
}

// ungrantSlow returns the grant of a claim that takes long, as one master of a Cluster may be away.
// The claim goes on, and the messages that it begins wait for the next takers. The caller stops the
// timer when the claim has ended.
func (d *dispatcher) ungrantSlow(p *consumerPart) *time.Timer {
	d.mu.Lock()
	defer d.mu.Unlock()
	claim := p.share.claims
	return time.AfterFunc(beginPatience, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if p.share.claims == claim {
			d.admission.ungrant(&p.share)
			d.match()
		}
	})
}

// hold takes in the messages of a claim that began at sent; a claim that failed has none. If the
// partition is paused, hold gives back all of its messages that no taker has.
func (d *dispatcher) hold(p *consumerPart, claimed driver.Claimed, sent time.Time) {
	trip := time.Duration(-1)
	if !claimed.Now.IsZero() {
		p.clock.observe(claimed.Now, sent)
		trip = time.Since(sent)
	}
	overdue := claimed.Next > 0 && !claimed.Next.Time().After(claimed.Now) && !claimed.Paused
	messages := make([]*held, len(claimed.Records))
	for i := range claimed.Records {
		messages[i] = &held{record: claimed.Records[i], part: p}
	}
	d.emitClaims(messages, sent)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.admission.claimEnded(&p.share, trip, overdue)
	if trip >= 0 && p.share.paused != claimed.Paused {
		if p.share.paused = claimed.Paused; p.share.paused {
			d.releaseHeld(p)
		}
	}
	for _, h := range messages {
		if p.share.paused {
			h.state = heldGone
			d.giveBack(h)
			continue
		}
		d.leases.add(h, sent, claimed.Now)
		if h.record.State == driver.StateFiring {
			d.give(h)
			continue
		}
		d.admission.claimed(&p.share, len(h.record.Body))
		d.arm(h)
	}
	d.match()
}

// beginLead is how long before its due time a message begins, so that the store's answer has
// arrived when the message is due. Until then the message can be cancelled.
const beginLead = 2 * time.Millisecond

// arm lets a message wait in the wheel until it may begin, or makes it ready.
func (d *dispatcher) arm(h *held) {
	wait := h.part.clock.until(h.record.Due) - beginLead
	if wait > 0 {
		h.state = heldArmed
		h.timer = d.wheel.Add(wait, h)
		return
	}
	h.state = heldReady
	d.ready.push(h)
}

// expire is called by the wheel with the messages whose timers have expired.
func (d *dispatcher) expire(due []*held) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range due {
		switch h.state {
		case heldArmed:
			h.state = heldReady
			d.ready.push(h)
		case heldWaiting:
			d.give(h)
			d.arrived()
		}
	}
	d.match()
}

// match begins as many of the ready messages as there are free takers, and feeds the hungry
// partitions. It is called after each change of either. mu is held.
func (d *dispatcher) match() {
	if d.ctx.Err() != nil {
		return
	}
	for d.ready.len() > 0 && d.admission.free() > 0 {
		h := d.ready.pop()
		switch {
		case h.state != heldReady:
			d.gone--
			continue
		case h.part.share.away:
			h.part.parked.push(h)
			continue
		}
		h.state = heldBeginning
		d.admission.asked(&h.part.share)
		d.pending++
		h.part.begins.send(d.leases.begin(h, time.Now()), func(a answer, err error) { d.onBegin(h, a, err) })
	}
	d.admission.feed()
}

// beginAll is the begin call of a partition. If the call takes long the partition stands aside.
func (d *dispatcher) beginAll(p *consumerPart, changes []driver.Change) ([]answer, error) {
	d.mu.Lock()
	call := d.admission.callStarts(&p.share)
	d.mu.Unlock()
	slow := time.AfterFunc(beginPatience, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.admission.standAside(&p.share, call)
		d.match()
	})
	batch := driver.Batch{Partition: p.index, Op: driver.OpBegin, Lead: beginLead, Changes: changes}
	for i := range changes { // leases are moved only if one of them would be too short
		batch.Visibility = max(batch.Visibility, changes[i].Delay)
	}
	answers, err := p.apply(batch)
	slow.Stop()
	d.comeBack(p)
	return answers, err
}

// comeBack ends a partition's standing aside before the answers of its call are handed on.
func (d *dispatcher) comeBack(p *consumerPart) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.admission.callEnds(&p.share) {
		return
	}
	p.share.wake()
	p.parked.push(d.ready.rest()...) // behind: those of the partition that are not parked are due later
	d.ready = p.parked
	d.ready.keep(func(h *held) bool { return h.state == heldReady })
	p.parked, d.gone = fifo[*held]{}, 0
	d.match()
}

// onBegin hands a message that the store has begun to a taker.
func (d *dispatcher) onBegin(h *held, a answer, err error) {
	if err == nil {
		h.part.clock.observe(a.Now, a.sent)
		if a.Status == driver.StatusDone {
			d.emitOf(EventBegun, h, a.sent)
		}
	}
	d.mu.Lock()
	defer d.unlock()
	d.admission.answered(&h.part.share)
	if err == nil && a.Status == driver.StatusDone && h.state != heldGone {
		d.admission.unclaimed(&h.part.share, len(h.record.Body))
		if d.leases.began(h, a, time.Now()) {
			d.extend(h)
		}
		if wait := a.Due.Time().Sub(a.Now); wait > 0 { // the store read its clock before now
			h.state = heldWaiting
			h.timer = d.wheel.Add(wait, h)
			return
		}
		d.give(h)
	} else {
		d.notBegun(h, a, err)
	}
	d.arrived()
}

// notBegun puts a message aside that cannot be given to a taker.
func (d *dispatcher) notBegun(h *held, a answer, err error) {
	switch {
	case h.state == heldGone: // given up meanwhile, because no answer came
		if err == nil && a.Status == driver.StatusDone {
			d.giveBack(h)
		}
	case err != nil:
		d.forget(h)
		d.told = append(d.told, d.q.faultOf(h.record.ID, fmt.Errorf("begin: %w", err)))
	case a.Status == driver.StatusEarly && d.ctx.Err() == nil: // the store's clock was set back
		h.record.Due, h.state = a.Due, heldArmed
		h.timer = d.wheel.Add(max(a.Due.Time().Sub(a.Now)-beginLead, time.Millisecond), h)
	case a.Status == driver.StatusEarly: // release has passed already
		d.forget(h)
		d.giveBack(h)
	case a.Status == driver.StatusPaused:
		d.forget(h)
		d.giveBack(h)
		h.part.share.wake() // the next claim says so for the whole partition
	default: // the message was cancelled or rescheduled, or its lease has ended
		d.forget(h)
	}
}

// arrived ends the account of a message that was beginning or waiting. mu is held.
func (d *dispatcher) arrived() {
	d.admission.arrived()
	d.match()
	d.done()
}

// give hands a message that has begun to a taker, or keeps it for the next one. A handler or
// receiver comes again soon, and a message that is given back would come behind later ones. If
// receivers had to wait when the store answers, a Take that waits for less than a round trip would
// never get a message. If no taker comes, the message is given back when the consumer retires. A
// message of a partition that is paused is given back at once.
func (d *dispatcher) give(h *held) {
	h.state = heldBegun
	paused := h.part.share.paused
	for !paused && d.takers.len() > 0 {
		if t := d.takers.pop(); !t.left {
			d.admission.waiting--
			d.taken(h)
			t.ready <- h
			return
		}
	}
	if !paused && d.ctx.Err() == nil {
		d.begun.push(h)
		d.admission.begun = d.begun.len()
		return
	}
	d.forget(h)
	d.giveBack(h)
}

// taken notes that a taker has a message. mu is held.
func (d *dispatcher) taken(h *held) {
	h.state = heldTaken
	d.idleSince = time.Now()
	d.admission.pace.delivered(d.idleSince)
}

// taker is a handler's worker or a receiver that waits for a message.
type taker struct {
	ready chan *held // of capacity one
	left  bool
}

func newTaker() *taker { return &taker{ready: make(chan *held, 1)} }

// take waits for a message that is due, and has begun it when it returns. After an error t must not
// be used again.
func (d *dispatcher) take(ctx context.Context, t *taker) (*held, error) {
	d.mu.Lock()
	if d.ctx.Err() != nil { // what has begun is being given back
		d.mu.Unlock()
		return nil, context.Cause(d.ctx)
	}
	if h := d.takeBegun(); h != nil {
		d.match()
		d.mu.Unlock()
		return h, nil
	}
	d.takers.push(t)
	d.admission.waiting++
	d.match()
	d.mu.Unlock()
	select {
	case h := <-t.ready:
		return h, nil
	case <-ctx.Done():
		return d.leave(t, context.Cause(ctx))
	case <-d.ctx.Done():
		return d.leave(t, context.Cause(d.ctx))
	}
}

// takeBegun returns a message that has begun and waits, or nil. mu is held.
func (d *dispatcher) takeBegun() (h *held) {
	for h == nil && d.begun.len() > 0 {
		if next := d.begun.pop(); next.state == heldBegun {
			d.taken(next)
			h = next
		}
	}
	d.admission.begun = d.begun.len()
	return h
}

// leave ends the wait of a taker. The taker may have been given a message just now.
func (d *dispatcher) leave(t *taker, err error) (*held, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case h := <-t.ready:
		return h, nil
	default:
		t.left = true
		d.admission.waiting--
		if d.takers.len() > 2*d.admission.waiting+16 {
			d.takers.keep(func(t *taker) bool { return !t.left })
		}
		d.idleSince = time.Now()
		return nil, err
	}
}

// idle reports whether no taker has waited for the given time.
func (d *dispatcher) idle(since time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.admission.waiting == 0 && time.Since(d.idleSince) > since
}

// forget makes a message gone, whatever its state is. It reports false if it was gone. mu is held.
func (d *dispatcher) forget(h *held) bool {
	if h.state == heldGone {
		return false
	}
	switch {
	case h.unbegun():
		d.admission.unclaimed(&h.part.share, len(h.record.Body))
	case h.state == heldWaiting:
		d.arrived()
	}
	ready := h.state == heldReady
	h.timer.Stop()
	h.state = heldGone
	d.leases.remove(h)
	if ready {
		d.dropGone()
	}
	return true
}

// dropGone drops the messages of ready that are gone when they are more than half: while all
// handlers are busy match does not drop them.
func (d *dispatcher) dropGone() {
	if d.gone++; d.gone*2 > d.ready.len()+16 {
		d.ready.keep(func(h *held) bool { return h.state == heldReady })
		d.gone = 0
	}
}

// release gives messages back to the store that did not begin or have no taker: those of one
// partition or, if p is nil, all of them.
func (d *dispatcher) release(p *consumerPart) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.releaseHeld(p)
}

// releaseHeld is release with mu held.
func (d *dispatcher) releaseHeld(p *consumerPart) {
	var back []*held
	for h := range d.leases.held {
		if (p == nil || h.part == p) && h.releasable() {
			back = append(back, h)
		}
	}
	for _, h := range back {
		d.forget(h)
	}
	for _, h := range back {
		d.giveBack(h)
	}
}

// giveBack releases a message. If the call fails the message comes when its lease ends. mu is held.
func (d *dispatcher) giveBack(h *held) {
	d.send(h, driver.OpRelease, h.change(), func(_ answer, err error) {
		if err != nil && d.q.ctx.Err() == nil {
			d.told = append(d.told, d.q.faultOf(h.record.ID, fmt.Errorf("release: %w", err)))
		}
	})
}

// renew looks at all leases: of handlers that run, and of messages that are due and wait for one.
func (d *dispatcher) renew(now time.Time) {
	d.mu.Lock()
	defer d.unlock()
	for h := range d.leases.held {
		switch d.leases.action(h, now) {
		case leaseExtend:
			d.extend(h)
		case leaseLose:
			d.lose(h)
		case leaseForget:
			d.forget(h)
		case leaseKeep:
		}
	}
}

// extend extends a lease. mu is held.
func (d *dispatcher) extend(h *held) {
	d.send(h, driver.OpExtend, d.leases.extend(h), func(a answer, err error) {
		h.asked = false
		switch {
		case h.state == heldGone || err != nil:
		case a.Status == driver.StatusDone:
			d.leases.extended(h, a)
		case h.ending: // the message was settled, and the answer is on its way
		default:
			d.lose(h)
		}
	})
}

// lose gives up a message whose lease is about to end, or has ended, and cancels the context of its
// handler. mu is held.
func (d *dispatcher) lose(h *held) {
	begun := h.state == heldBegun || h.state == heldTaken // an armed or ready one may have been cancelled
	if !d.forget(h) {
		return
	}
	if begun && !h.ending { // else the call that settles the message reports its result
		d.told = append(d.told, d.q.faultOf(h.record.ID, ErrLeaseLost))
	}
	if h.run != nil {
		h.run.cancel(ErrLeaseLost)
	}
}

// holds is how many messages are held that have not begun, and that have.
func (d *dispatcher) holds() (unbegun, begun int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.parts {
		unbegun += p.share.unbegun
	}
	return unbegun, len(d.leases.held) - unbegun
}

// handle notes that a handler is about to be called for a message: the handler's context is
// cancelled if the lease is lost. It returns false if the lease is lost already.
func (d *dispatcher) handle(h *held, r *run) bool {
	d.mu.Lock()
	defer d.unlock()
	h.run = r
	return d.keeps(h)
}

// hand notes that a message that was taken is handed to the handler's worker, whose lease is
// extended from now on, or to the receiver. It returns false if the lease is lost already.
func (d *dispatcher) hand(h *held, renew bool) bool {
	d.mu.Lock()
	defer d.unlock()
	if !d.keeps(h) {
		return false
	}
	h.renew, h.handed = renew, true
	return true
}

// keeps reports whether the lease of a message that was taken is not over. The process may have
// been suspended since the message was taken, so that another consumer has the message, or it was
// cancelled. A message that is lost is given up and reported. mu is held.
func (d *dispatcher) keeps(h *held) bool {
	if h.state != heldGone && time.Now().Before(h.until) {
		return true
	}
	d.lose(h)
	return false
}

// releaseTaken gives back the messages that handlers and receivers have and did not settle, because
// the consumer is forced to end. A message whose handler has just returned is settled by its worker.
func (d *dispatcher) releaseTaken() {
	d.mu.Lock()
	defer d.unlock()
	for h := range d.leases.held {
		if h.state != heldTaken || h.ending || h.run != nil && h.run.returned() {
			continue
		}
		if h.run != nil {
			d.told = append(d.told, d.q.faultOf(h.record.ID, errors.New("it is given back, because the consumer ends and the handler still runs")))
		}
		d.forget(h)
		d.giveBack(h)
	}
}

// empty reports whether no message is held.
func (d *dispatcher) empty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.leases.held) == 0
}

// letEnd ends the extensions of a lease, because the message is not settled any more.
func (d *dispatcher) letEnd(h *held) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h.renew = false
}
