package durable

import (
	"context"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// held is a message that this process has claimed. The consumer's mu guards it.
type held struct {
	record driver.Record
	part   int
	state  heldState
	timer  timingwheel.Timer       // armed
	until  time.Time               // the lease ends no earlier, on the clock of this process
	asked  bool                    // its lease is being extended
	cross  bool                    // it begins while its lease is extended by holdTime: see beganUntil
	renew  bool                    // its lease is extended by itself also when it has been taken
	ending bool                    // the store has been asked to end its delivery, and may have done so
	cancel context.CancelCauseFunc // of its handler's context; nil: none runs
}

type heldState uint8

const (
	heldArmed     heldState = iota // it waits in the wheel
	heldReady                      // it is due and waits for somebody to take it
	heldBeginning                  // the store has been told that it begins
	heldWaiting                    // it has begun, a moment before its due time, and waits for that
	heldBegun                      // it waits for somebody
	heldTaken                      // somebody has it
	heldGone                       // settled, released or lost
)

// unbegun reports whether nobody has it yet.
func (h *held) unbegun() bool { return h.state <= heldBeginning }

// hold takes in what was claimed by a call that began at sent, nothing where it failed. mu is not held.
func (c *consumer) hold(part int, claimed driver.Claimed, sent time.Time) {
	p := c.parts[part]
	if !claimed.Now.IsZero() {
		p.clock.observe(claimed.Now, sent)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ungrant(p)
	p.claims++
	if !claimed.Now.IsZero() {
		p.trip = min(time.Since(sent), beginPatience)
	}
	p.overdue = claimed.Next > 0 && !claimed.Next.Time().After(claimed.Now)
	for i := range claimed.Records {
		h := &held{record: claimed.Records[i], part: part}
		h.until = sent.Add(h.record.LeaseEnd.Time().Sub(claimed.Now))
		c.held[h] = struct{}{}
		if h.record.State == driver.StateFiring {
			c.give(h)
			continue
		}
		p.unbegun++
		p.bytes += len(h.record.Body)
		c.arm(h)
	}
	c.match()
}

// holdTime is the lease of a message that was claimed ahead and has not begun. It is short, so that others soon get what a
// consumer that was killed had claimed ahead, and costs no crash when it ends.
func (c *consumer) holdTime() time.Duration { return min(c.opts.Membership, c.opts.Visibility) }

// begin is the change by which a message begins. Delay is the new lease, where what is left of the old one is not long enough.
func (c *consumer) begin(h *held, now time.Time) driver.Change {
	change := h.change()
	if h.until.Sub(now) < c.opts.Visibility {
		change.Delay = c.opts.Visibility
	}
	return change
}

// extended notes a new end of the lease. mu is held.
func (h *held) extended(a answer) { h.until, h.record.LeaseEnd = a.until(), a.Lease }

// beganUntil notes the lease of a message that has begun. If it was left as it was, and the call took long, or the store's clock was set ahead, it is
// extended. If an extension by the shorter holdTime crossed the begin, the store may have made it after that: so the lease counts as the shorter one until it has been extended once more. mu is held.
func (c *consumer) beganUntil(h *held, a answer) {
	left := min(time.Until(h.until), h.record.LeaseEnd.Time().Sub(a.Now))
	switch {
	case h.cross && !h.asked:
		h.asked = true
		c.extend(h)
	case h.cross: // it is extended when that extension is answered
	case a.Lease > 0:
		h.extended(a)
	case left < c.opts.Visibility/8*7 && !h.asked:
		h.asked = true
		c.extend(h)
	}
}

// beginLead is how long before its due time a message begins, so that the store's answer is here when it is due. Until then it can be cancelled.
const beginLead = 2 * time.Millisecond

// arm lets the wheel wait until a message may begin, or makes it ready.
func (c *consumer) arm(h *held) {
	wait := c.parts[h.part].clock.until(h.record.Due) - beginLead
	if wait > 0 {
		h.state = heldArmed
		h.timer = c.wheel.Add(wait, h)
		return
	}
	h.state = heldReady
	c.ready.push(h)
}

// expire is called by the wheel with what is due.
func (c *consumer) expire(due []*held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range due {
		switch h.state {
		case heldArmed:
			h.state = heldReady
			c.ready.push(h)
		case heldWaiting:
			c.give(h)
			c.waited()
		}
	}
	c.match()
}

// forget gives up a message, in whatever state it is. It reports false where that has been done before.
func (c *consumer) forget(h *held) bool {
	if h.state == heldGone {
		return false
	}
	switch {
	case h.unbegun():
		c.began(h)
	case h.state == heldWaiting:
		c.waited()
	}
	ready := h.state == heldReady
	h.timer.Stop()
	h.state = heldGone
	delete(c.held, h)
	if ready {
		c.dropGone()
	}
	return true
}

// dropGone drops the messages of ready that are gone when they are more than half: while all handlers are busy nobody takes them out.
func (c *consumer) dropGone() {
	if c.gone++; c.gone*2 > c.ready.len()+16 {
		c.ready.keep(func(h *held) bool { return h.state == heldReady })
		c.gone = 0
	}
}

// began takes a message out of the account of those that have not.
func (c *consumer) began(h *held) {
	p := c.parts[h.part]
	p.unbegun--
	p.bytes -= len(h.record.Body)
	if p.starved && p.unbegun <= c.quota()/2 && p.bytes <= c.quotaBytes()/2 {
		p.starved = false
		p.wake()
	}
}

// release gives messages back to the store that have not begun, of one partition or, with -1, of all.
func (c *consumer) release(part int) {
	c.mu.Lock()
	var back []*held
	for h := range c.held {
		if (part < 0 || h.part == part) && (h.state == heldArmed || h.state == heldReady || h.state == heldBegun) {
			back = append(back, h)
		}
	}
	for _, h := range back {
		c.forget(h)
	}
	for _, h := range back {
		c.giveBack(h)
	}
	c.mu.Unlock()
}

// giveBack tells the store. Where that fails, the message comes back when its lease ends. mu is held.
func (c *consumer) giveBack(h *held) {
	c.pending++
	c.q.parts[h.part].changes[driver.OpRelease].send(h.change(), func(_ answer, err error) {
		c.mu.Lock()
		defer c.unlock()
		c.done()
		if err != nil && c.q.ctx.Err() == nil {
			c.told = append(c.told, fmt.Errorf("release message %q: %w", h.record.ID, err))
		}
	})
}

func (h *held) change() driver.Change { return driver.Change{ID: h.record.ID, Token: h.record.Token} }
