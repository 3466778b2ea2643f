package durable

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// leases is the set of held messages. It decides when each lease must be extended. It has no lock
// and no clock, and is guarded by the dispatcher's mutex.
//
// A prefetched message has a lease of hold, which is short: if the consumer is killed, another
// consumer soon gets the message, and no crash is counted. The lease is extended by hold while the
// message waits for a taker. When the message begins, its lease becomes visibility.
type leases struct {
	visibility time.Duration
	hold       time.Duration // at most visibility
	held       map[*heldMessage]struct{}
}

func newLeases(opts *ConsumerOptions) leases {
	return leases{visibility: opts.Visibility, hold: opts.hold(), held: make(map[*heldMessage]struct{})}
}

// renewals is the number of checks of the leases during the shortest lease.
const renewals = 8

func (l *leases) period() time.Duration { return l.hold / renewals }

// add adds a message whose claim began at sent and read the store's clock as read.
func (l *leases) add(h *heldMessage, sent, read time.Time) {
	h.until = sent.Add(h.record.LeaseEnd.Time().Sub(read))
	l.held[h] = struct{}{}
}

// remove removes a message.
func (l *leases) remove(h *heldMessage) { delete(l.held, h) }

// begin returns the change that begins a message. Its Delay is a new lease if the rest of the old
// lease is shorter than Visibility.
func (l *leases) begin(h *heldMessage, now time.Time) driver.Change {
	change := h.change()
	if h.until.Sub(now) < l.visibility {
		change.Delay = l.visibility
	}
	return change
}

// began records the lease of a message that has begun. It reports whether the lease must be
// extended, because the begin call left it unchanged and was slow, or the store's clock was set
// forward.
func (l *leases) began(h *heldMessage, a answer, now time.Time) (extend bool) {
	if a.Lease > 0 {
		h.extended(a)
		return false
	}
	left := min(h.until.Sub(now), h.record.LeaseEnd.Time().Sub(a.Now))
	return left < l.visibility/8*7 && !h.extending
}

// extend returns the change that extends the lease of a message. The store knows whether the
// message has begun when the change takes effect.
func (l *leases) extend(h *heldMessage) driver.Change {
	h.extending = true
	change := h.change()
	change.Delay, change.Begun = l.hold, l.visibility
	return change
}

// extended records the answer to an extension. If a begin took effect after the extension and was
// answered before it, the lease already has a later end.
func (l *leases) extended(h *heldMessage, a answer) {
	if a.until().After(h.until) {
		h.extended(a)
	}
}

// leaseAction is the next step for a lease.
type leaseAction uint8

const (
	leaseKeep   leaseAction = iota
	leaseExtend             // a third has passed, which leaves time for several attempts
	leaseLose               // it is about to expire, or expired before the message was passed on
	leaseForget             // it has expired; its receiver may still try to settle the message
)

// action returns the next step for the lease of a message. The lease of an armed message lasts
// beyond its due time. A receiver extends the leases of its messages itself.
func (l *leases) action(h *heldMessage, now time.Time) leaseAction {
	left, length := h.until.Sub(now), l.visibility
	if h.unbegun() {
		length = l.hold
	}
	switch {
	case h.state == heldArmed:
	case h.state == heldTaken && !h.renew:
		switch {
		case left > 0:
		case h.handed:
			return leaseForget
		default:
			return leaseLose
		}
	case left < length/4:
		return leaseLose
	case left < length*2/3 && !h.extending:
		return leaseExtend
	}
	return leaseKeep
}
