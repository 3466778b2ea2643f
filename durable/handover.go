package durable

import "time"

// handover matches begun messages with takers, both in order of arrival. At any time either
// takers or messages wait, never both. It has no lock and no clock, and is guarded by the
// dispatcher's mutex.
type handover struct {
	takers lazyFIFO[*taker]
	begun  lazyFIFO[*heldMessage] // begun messages that wait for a taker
	used   time.Time              // when a taker last arrived or left
	most   int                    // the most takers that have waited since reset
	before int                    // the same for the period before
	reset  time.Time              // see mostWaiting
}

// taker is a handler's worker or a receiver that waits for a message.
type taker struct {
	ready chan *heldMessage // capacity 1
	left  bool
}

func newTaker() *taker { return &taker{ready: make(chan *heldMessage, 1)} }

// gone reports whether the taker no longer waits.
func (t *taker) gone() bool { return t.left }

// give passes a begun message to the taker that has waited longest, or returns nil if none waits.
func (o *handover) give(h *heldMessage, now time.Time) *taker {
	t, ok := o.takers.pop()
	if !ok {
		return nil
	}
	h.state, o.used = heldTaken, now
	return t
}

// keep stores a message for the next taker.
func (o *handover) keep(h *heldMessage) {
	h.state = heldBegun
	o.begun.push(h)
}

// take returns the message that has waited longest. Without one it returns nil, and t waits.
func (o *handover) take(t *taker, now time.Time) *heldMessage {
	o.used = now
	h, ok := o.begun.pop()
	if !ok {
		o.takers.push(t)
		o.most = max(o.most, o.takers.len())
		return nil
	}
	h.state = heldTaken
	return h
}

// leave ends the wait of a taker that received no message.
func (o *handover) leave(t *taker, now time.Time) {
	t.left, o.used = true, now
	o.takers.removed()
}

// idle returns the time since a taker last waited.
func (o *handover) idle(now time.Time) time.Duration {
	if o.takers.len() > 0 {
		return 0
	}
	return now.Sub(o.used)
}

// mostWaiting returns the most takers that have waited at a time in about the last period.
func (o *handover) mostWaiting(now time.Time, period time.Duration) int {
	if now.Sub(o.reset) >= period {
		o.before, o.most, o.reset = o.most, o.takers.len(), now
	}
	return max(o.before, o.most)
}
