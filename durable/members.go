package durable

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/dgryski/go-rendezvous"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// membership keeps the consumer among the members of the queue, and starts and stops its pumps as members come and go. Each partition belongs to
// the member that rendezvous hashing gives it, so that all agree without speaking to each other, and few partitions change hands.
//
// Where the store cannot be reached nothing changes: two owners of a partition do no harm.
func (c *consumer) membership() {
	defer c.disown()
	for c.ctx.Err() == nil {
		members, err := c.q.backend.Heartbeat(c.ctx, c.name, c.opts.Membership)
		switch {
		case err == nil:
			c.own(members)
		case c.ctx.Err() == nil:
			c.q.report("heartbeat: %w", err)
		}
		pause(c.ctx, c.opts.Membership/3)
	}
}

// own starts and stops pumps.
func (c *consumer) own(members []string) {
	if !slices.Contains(members, c.name) {
		members = append(slices.Clone(members), c.name)
	}
	table := rendezvous.New(members, xxhash.Sum64String)
	mine := make([]bool, len(c.parts))
	owned := 0
	for i := range c.parts {
		if mine[i] = table.Lookup(strconv.Itoa(i)) == c.name; mine[i] {
			owned++
		}
	}
	c.mu.Lock()
	c.owned = owned
	c.mu.Unlock()
	for i, p := range c.parts { // all at once: each may wait for a call that is under way, and signs of life wait for all
		if !mine[i] && p.cancel != nil {
			p.cancel()
		}
	}
	for i, p := range c.parts {
		switch {
		case mine[i] && p.cancel == nil:
			p.start()
		case !mine[i] && p.cancel != nil:
			p.stop()
		}
	}
}

func (c *consumer) disown() {
	for _, p := range c.parts {
		if p.cancel != nil {
			p.cancel()
			<-p.done
		}
	}
}

// renewal extends leases in good time: of handlers that run, and of messages that are due and have to wait for one. Where it fails,
// the context of the handler is cancelled before the lease ends.
func (c *consumer) renewal() {
	for c.life.Err() == nil {
		pause(c.life, c.holdTime()/8)
		c.renew(time.Now())
	}
}

// leaseTime is how long the lease of a message is when it is extended.
func (c *consumer) leaseTime(h *held) time.Duration {
	if h.unbegun() {
		return c.holdTime()
	}
	return c.opts.Visibility
}

// renew looks at all leases. They are extended when a third has passed, which leaves time for several attempts.
func (c *consumer) renew(now time.Time) {
	c.mu.Lock()
	defer c.unlock()
	for h := range c.held {
		left, lease := h.until.Sub(now), c.leaseTime(h)
		if h.cross {
			lease = c.holdTime()
		}
		switch {
		case h.state == heldArmed:
		case h.state == heldTaken && !h.renew: // of Take
			if left <= 0 {
				c.forget(h)
			}
		case left < lease/4:
			c.lose(h)
		case left < lease*2/3 && !h.asked:
			h.asked, h.cross = true, h.cross || h.state == heldBeginning
			c.extend(h)
		}
	}
}

// lose gives up a message whose lease is about to end, or has ended.
func (c *consumer) lose(h *held) {
	begun := h.state == heldBegun || h.state == heldTaken // what has not begun may simply have been cancelled
	if !c.forget(h) {
		return
	}
	if begun && !h.ending { // else whoever settles it is told what has become of it
		c.told = append(c.told, fmt.Errorf("message %q: %w", h.record.ID, ErrLeaseLost))
	}
	if h.cancel != nil {
		h.cancel(ErrLeaseLost)
	}
}

func (c *consumer) extend(h *held) {
	change, begun := h.change(), !h.unbegun()
	change.Delay = c.leaseTime(h)
	c.pending++
	c.q.parts[h.part].changes[driver.OpExtend].send(change, func(a answer, err error) {
		c.mu.Lock()
		defer c.unlock()
		c.done()
		h.asked = false
		switch {
		case h.state == heldGone || err != nil:
		case a.Status == driver.StatusDone:
			h.extended(a)
			if begun {
				h.cross = false
			} else if h.cross && !h.unbegun() {
				h.asked = true
				c.extend(h)
			}
		case h.ending: // it has been settled, and the answer is on its way
		default:
			c.lose(h)
		}
	})
}
