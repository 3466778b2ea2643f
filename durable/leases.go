package durable

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// leases is the set of held messages. It decides when each lease has to be extended. It has no lock
// and no clock. The dispatcher's mutex guards it.
//
// A message that was claimed ahead has a lease of hold, which is short: if the consumer is killed,
// other consumers soon get the message, and no crash is counted. The lease is extended by hold
// while the message waits for a taker. When the message begins it gets a lease of visibility.
type leases struct {
	visibility time.Duration
	hold       time.Duration // at most visibility
	held       map[*held]struct{}
}

func newLeases(opts *ConsumerOptions) leases {
	return leases{visibility: opts.Visibility, hold: opts.hold(), held: make(map[*held]struct{})}
}

// renewals is how often leases are looked at during the shortest of them.
const renewals = 8

func (l *leases) period() time.Duration { return l.hold / renewals }

// add holds a message that was claimed by a call that began at sent and read the store's clock.
func (l *leases) add(h *held, sent, read time.Time) {
	h.until = sent.Add(h.record.LeaseEnd.Time().Sub(read))
	l.held[h] = struct{}{}
}

// remove ends the holding of a message.
func (l *leases) remove(h *held) { delete(l.held, h) }

// begin returns the change by which a message begins. Delay is the new lease if the rest of the old
// one is shorter than Visibility.
func (l *leases) begin(h *held, now time.Time) driver.Change {
	change := h.change()
	if h.until.Sub(now) < l.visibility {
		change.Delay = l.visibility
	}
	return change
}

// began notes the lease of a message that has begun. It reports whether the lease has to be
// extended: the begin call left it as it was, and took long, or the store's clock was set ahead.
func (l *leases) began(h *held, a answer, now time.Time) (extend bool) {
	if a.Lease > 0 {
		h.extended(a)
		return false
	}
	left := min(h.until.Sub(now), h.record.LeaseEnd.Time().Sub(a.Now))
	return left < l.visibility/8*7 && !h.asked
}

// extend returns the change by which the lease of a message is extended. The store knows whether
// the message has begun when the change takes place.
func (l *leases) extend(h *held) driver.Change {
	h.asked = true
	change := h.change()
	change.Delay, change.Begun = l.hold, l.visibility
	return change
}

// extended notes the answer to an extension. A begin that took place after it may have been
// answered before, with a later end of the lease.
func (l *leases) extended(h *held, a answer) {
	if a.until().After(h.until) {
		h.extended(a)
	}
}

// leaseAction is the next step for a lease.
type leaseAction uint8

const (
	leaseKeep   leaseAction = iota
	leaseExtend             // a third has passed, which leaves time for several attempts
	leaseLose               // it is about to end, or has ended before the message was handed out
	leaseForget             // it has ended; the receiver that has the message may still try to settle it
)

// action returns the next step for the lease of a message. Leases of armed messages last beyond
// their due times. A receiver extends the leases of its messages itself.
func (l *leases) action(h *held, now time.Time) leaseAction {
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
	case left < length*2/3 && !h.asked:
		return leaseExtend
	}
	return leaseKeep
}
