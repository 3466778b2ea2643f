package durable

import "time"

// readyQueue holds the messages that are due and wait until they may begin, in the order in which
// they became due. It has no lock. The dispatcher's mutex guards it.
type readyQueue struct {
	messages lazyFifo[*held]
}

// push adds a message that has become due.
func (r *readyQueue) push(h *held) {
	h.state = heldReady
	r.messages.push(h)
}

// next takes the first message whose partition is not stalled, or nil. It parks the messages of
// stalled partitions that come before it.
func (r *readyQueue) next() *held {
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

// unpark adds the parked messages of a partition again, before all others: those of the partition
// that are not parked became due later. It costs O(n).
func (r *readyQueue) unpark(p *consumerPart) {
	var all fifo[*held]
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
	r.messages, p.parked = lazyFifo[*held]{items: all}, lazyFifo[*held]{}
}

// remove notes that a ready or parked message has gone.
func (r *readyQueue) remove(h *held, state heldState) {
	switch state {
	case heldReady:
		r.messages.removed()
	case heldParked:
		h.part.parked.removed()
	}
}

// handover brings messages that have begun and takers together, both in the order in which they
// came. Either takers wait or messages do, never both. It has no lock and no clock. The
// dispatcher's mutex guards it.
type handover struct {
	takers lazyFifo[*taker]
	begun  lazyFifo[*held] // messages that have begun and wait for a taker
	used   time.Time       // when a taker came or left last
}

// taker is a handler's worker or a receiver that waits for a message.
type taker struct {
	ready chan *held // of capacity one
	left  bool
}

func newTaker() *taker { return &taker{ready: make(chan *held, 1)} }

// gone reports whether the taker does not wait any more.
func (t *taker) gone() bool { return t.left }

// give gives a message that has begun to the taker that has waited longest. It returns nil if no
// taker waits.
func (o *handover) give(h *held, now time.Time) *taker {
	t, ok := o.takers.pop()
	if !ok {
		return nil
	}
	h.state, o.used = heldTaken, now
	return t
}

// keep keeps a message for the next taker.
func (o *handover) keep(h *held) {
	h.state = heldBegun
	o.begun.push(h)
}

// take takes the message that has waited longest. If there is none it returns nil, and the taker
// waits.
func (o *handover) take(t *taker, now time.Time) *held {
	o.used = now
	h, ok := o.begun.pop()
	if !ok {
		o.takers.push(t)
		return nil
	}
	h.state = heldTaken
	return h
}

// leave ends the wait of a taker that was given no message.
func (o *handover) leave(t *taker, now time.Time) {
	t.left, o.used = true, now
	o.takers.removed()
}

// idle returns how long no taker has waited.
func (o *handover) idle(now time.Time) time.Duration {
	if o.takers.len() > 0 {
		return 0
	}
	return now.Sub(o.used)
}
