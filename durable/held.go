package durable

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// heldMessage is a message that this process has claimed. It is guarded by the dispatcher's mutex.
type heldMessage struct {
	record     driver.Record
	part       *consumerPart
	headers    map[string]string // for events; nil without OnEvent
	series     *series           // of a recurring message that was taken; otherwise nil
	state      heldState
	since      uint              // admission.checks when the message began to wait for a taker
	timer      timingwheel.Timer // of an armed or waiting message
	until      time.Time         // the earliest end of the lease, on this process's clock
	extending  bool              // an extension of the lease is in progress
	renew      bool              // the lease of a taken message is extended: its handler runs
	slow       bool              // it was reported because of ConsumerOptions.SlowHandler
	unanswered EventKind         // of a call that has failed, and may have taken effect
	settling   *settleCall       // the last call that ends the delivery; nil if there was none
	handed     time.Time         // when it was passed to the handler's worker or to the receiver
	run        *run              // the call to the handler; nil: no handler was called
}

// heldState is the state of a held message. The dispatcher makes all transitions.
//
//	state      the message                               next state, and the event
//	-          is in the store                           armed, ready: claimed
//	                                                     begun, taken: begun with its claim
//	armed      waits in the wheel until it may begin     ready: its timer fires
//	                                                     gone: released
//	ready      is due and waits for a free taker, and    beginning: match
//	           a suspect also for its turn
//	                                                     gone: released, lease lost
//	beginning  the store was asked to begin it and has   waiting, begun, taken: begun
//	           not answered                              armed: the store's clock was set back
//	                                                     gone: cancelled, rescheduled, lease lost,
//	                                                     paused, not answered
//	waiting    has begun slightly early, and waits in    begun, taken: its timer fires
//	           the wheel for its due time                gone: released, lease lost
//	begun      waits for a taker                         taken: take
//	                                                     gone: released, lease lost
//	taken      a handler or receiver has it              gone: settled, released, lease lost
//	gone       is no longer held
//
// In the store, armed, ready and beginning messages are leased, and waiting, begun and taken
// messages are firing. The former count as claimed and not begun (see admission.claimed). A taker
// is reserved for each beginning or waiting message (see admission.reserved).
type heldState uint8

const (
	heldArmed heldState = iota
	heldReady
	heldBeginning
	heldWaiting
	heldBegun
	heldTaken
	heldGone
)

// unbegun reports whether the message has not begun.
func (h *heldMessage) unbegun() bool { return h.state <= heldBeginning }

// releasable reports whether the message can be released without counting a crash.
func (h *heldMessage) releasable() bool { return h.state < heldTaken && h.state != heldBeginning }

// unsettled reports whether a handler or receiver has the message and has not settled it. If the
// handler has just returned, its worker settles the message.
func (h *heldMessage) unsettled() bool {
	return h.state == heldTaken && !h.isSettling() && (h.run == nil || h.run.state.Load() != runReturned)
}

// isSettling reports whether the store was asked to end the delivery, and may have done so.
func (h *heldMessage) isSettling() bool { return h.settling != nil && !h.settling.failed }

// isPrepared reports whether a transaction may have acknowledged the message: see PrepareAck.
func (h *heldMessage) isPrepared() bool { return h.settling != nil && h.settling.prepared != nil }

// firing asks the store whether the message is firing with the token of this delivery. It is called
// without the mutex.
func (h *heldMessage) firing() (firing bool, err error) {
	err = h.part.q.retry(func(ctx context.Context) error {
		r, err := h.part.q.backend.Get(ctx, h.part.index, h.record.ID)
		firing = err == nil && (r.State == driver.StateFiring || r.State == driver.StateLeased) && r.Token == h.record.Token
		return err
	})
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	return firing, err
}

// runningFor returns how long the message has been in a handler, or with a receiver.
func (h *heldMessage) runningFor(now time.Time) time.Duration {
	if h.handed.IsZero() {
		return 0
	}
	return now.Sub(h.handed)
}

// suspect reports whether the message may be one that ends its process.
func (h *heldMessage) suspect() bool { return contract.CrashDelay(h.record.Crashes) > 0 }

// turn is the suspect that this process has begun or is beginning, or nil. The turn lasts until the
// delivery is over and its handler has returned, or was abandoned. Other suspects wait unbegun.
var turn atomic.Pointer[heldMessage]

// endTurn ends any turn of the message. The check of a dispatcher soon begins the next suspect.
func (h *heldMessage) endTurn() {
	if h.suspect() {
		turn.CompareAndSwap(h, nil)
	}
}

// remove removes a message that is gone and whose handler does not run, and ends its turn.
func (h *heldMessage) remove() {
	delete(h.part.d.held, h)
	h.endTurn()
}

// gone reports whether the message is no longer held.
func (h *heldMessage) gone() bool { return h.state == heldGone }

// fault returns a fault that concerns the message.
func (h *heldMessage) fault(err error) fault {
	return fault{partition: h.part.index, id: h.record.ID, err: err}
}

// change returns a change of the message, with its token.
func (h *heldMessage) change() driver.Change {
	return driver.Change{ID: h.record.ID, Token: h.record.Token}
}

// A prefetched message has a lease of ConsumerOptions.hold, which is short: if the consumer is
// killed, another consumer soon gets the message, and no crash is counted. The lease is extended by
// hold while the message waits for a taker. When the message begins, its lease becomes Visibility.

// leaseChecks is the number of checks of the leases during the shortest lease.
const leaseChecks = 8

// leaseAction is the next step for a lease.
type leaseAction uint8

const (
	leaseKeep   leaseAction = iota
	leaseExtend             // a third has passed, which leaves time for several attempts
	leaseLose               // it has expired, or is about to expire
)

// leaseAction returns the next step for the lease of the message. The lease of an armed message
// lasts beyond its due time. A receiver extends the leases of its messages itself.
func (h *heldMessage) leaseAction(opts *ConsumerOptions, now time.Time) leaseAction {
	left, length := h.until.Sub(now), opts.Visibility
	if h.unbegun() {
		length = opts.hold()
	}
	switch {
	case h.state == heldArmed || h.gone() || h.state == heldTaken && !h.renew && left > 0:
	case left < length/4:
		return leaseLose
	case left < length*2/3 && !h.extending:
		return leaseExtend
	}
	return leaseKeep
}

// beginLead is how long before its due time a message begins, so that the store's answer arrives
// when the message is due. Until then the message can be cancelled.
const beginLead = 2 * time.Millisecond
