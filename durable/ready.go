package durable

import "time"

// readyQueue holds the messages that are due and wait until they may begin, in the order in which
// they became due. It has no lock, and is guarded by the dispatcher's mutex.
type readyQueue struct {
	messages lazyFIFO[*heldMessage]
}

// push adds a message that has become due.
func (r *readyQueue) push(h *heldMessage) {
	h.state = heldReady
	r.messages.push(h)
}

// next removes and returns the first message whose partition is not stalled, or nil. It parks the
// messages of stalled partitions before it.
func (r *readyQueue) next() *heldMessage {
	for {
		h, ok := r.messages.pop()
		if !ok {
			return nil
		}
		if !h.part.share.stalled {
			return h
		}
		h.state = heldParked
		h.part.parked.push(h)
	}
}

// unpark adds the parked messages of a partition again, before all other messages: the partition's
// other messages became due later. It is O(n).
func (r *readyQueue) unpark(p *consumerPart) {
	var all fifo[*heldMessage]
	for _, h := range p.parked.items.rest() {
		if !h.gone() {
			h.state = heldReady
			all.push(h)
		}
	}
	for _, h := range r.messages.items.rest() {
		if !h.gone() {
			all.push(h)
		}
	}
	r.messages, p.parked = lazyFIFO[*heldMessage]{items: all}, lazyFIFO[*heldMessage]{}
}

// remove records that a ready or parked message is gone.
func (r *readyQueue) remove(h *heldMessage, state heldState) {
	switch state {
	case heldReady:
		r.messages.removed()
	case heldParked:
		h.part.parked.removed()
	}
}

// handover matches begun messages with takers, both in the order of arrival. At any time either
// takers or messages wait, never both. It has no lock and no clock, and is guarded by the
// dispatcher's mutex.
type handover struct {
	takers lazyFIFO[*taker]
	begun  lazyFIFO[*heldMessage] // begun messages that wait for a taker
	used   time.Time              // when a taker last arrived or left
}

// taker is a handler's worker or a receiver that waits for a message.
type taker struct {
	ready chan *heldMessage // capacity 1
	left  bool
}

func newTaker() *taker { return &taker{ready: make(chan *heldMessage, 1)} }

// gone reports whether the taker no longer waits.
func (t *taker) gone() bool { return t.left }

// give passes a begun message to the taker that has waited longest. It returns nil if no taker
// waits.
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

// take returns the message that has waited longest. If there is none, it returns nil and the taker
// waits.
func (o *handover) take(t *taker, now time.Time) *heldMessage {
	o.used = now
	h, ok := o.begun.pop()
	if !ok {
		o.takers.push(t)
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
