package durable

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// A message that is due when it is claimed may begin with the claim. That saves the call by which it would begin, about a third of the store's work, and
// half of the time that a message without a delay waits. It is done where there is somebody to handle it: a claim is granted a number of the takers
// that are there, or will be in a moment (see pace), and they are put aside while it is under way.
//
// Where takers are many and quick, a partition whose messages are overdue claims nothing but what it has been granted. What it would claim ahead would only
// have to begin by a call of its own.

// quickPace is from how many messages ahead on takers are quick.
const quickPace = 64

func (c *consumer) quick() bool { return c.pace.ahead >= quickPace }

// free is the number of takers for whom nothing is under way. mu is held.
func (c *consumer) free() int { return c.waiting + c.pace.ahead - c.beginning - c.begun.len() }

// least is the smallest grant. Where takers are quick it is a quarter of them, as a claim of few costs nearly as much as one of many. mu is held.
func (c *consumer) least() int {
	if !c.quick() {
		return 1
	}
	return max(1, min(driver.MaxBatch/2, (c.waiting+c.pace.ahead)/4))
}

// grant puts takers aside for the next claim of a partition, unless messages that it has claimed before are about to begin: these come first. mu is held.
func (c *consumer) grant(p *consumed) {
	n := c.free()
	if p.granted > 0 || !p.overdue || p.asked > 0 || n < c.least() {
		return
	}
	if !c.quick() {
		n = (n + 1) / 2 // others may need takers, too
	}
	p.granted = min(n, driver.MaxBatch)
	c.beginning += p.granted
}

// ungrant ends what a claim was granted: its messages are here, or it takes long. mu is held.
func (c *consumer) ungrant(p *consumed) {
	c.beginning -= p.granted
	p.granted = 0
}

// expect notes that there is an earlier message, which may be overdue when a claim comes to the store. That decides it; the clock here may be
// behind by a call's time.
func (c *consumer) expect(p *consumed, due driver.Instant) {
	left := p.clock.until(due)
	c.mu.Lock()
	p.overdue = p.overdue || left <= p.trip
	c.mu.Unlock()
}

// plan is what the next claim of a partition may take, and false where it has to wait for a grant. What is stale has not been claimed from for long: it
// does not wait, as the claim also ends leases.
func (c *consumer) plan(p *consumed, stale bool) (claim driver.Claim, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	claim = driver.Claim{Partition: p.part, Visibility: c.opts.Visibility, Hold: c.holdTime(), MaxCrashes: c.opts.MaxCrashes}
	claim.Max, claim.MaxBytes, claim.Horizon = c.room(p)
	if c.hungry.len() == 0 && (claim.Max > 0 || c.quick()) { // else others come first
		c.grant(p)
	}
	claim.Begin = p.granted
	switch {
	case stale || !p.overdue || !c.quick():
		if claim.Begin > claim.Max { // there is no room for as many that are not due yet
			claim.Max, claim.Horizon = claim.Begin, 0
		}
	case p.granted > 0:
		claim.Max, claim.MaxBytes, claim.Horizon = claim.Begin, maxBatchBytes, 0
	default:
		if !p.hungry && !p.away { // it is woken when it comes back
			p.hungry = true
			c.hungry.push(p)
		}
		return claim, false
	}
	c.sated(p)
	claim.Max, claim.MaxBytes = min(claim.Max, driver.MaxBatch), min(claim.MaxBytes, maxBatchBytes)
	return claim, true
}

// feed grants takers to the partitions that wait for them, one after the other. mu is held.
func (c *consumer) feed() {
	for range c.hungry.len() {
		if c.quick() && c.free() < c.least() {
			return
		}
		p := c.hungry.pop()
		if c.quick() {
			if c.grant(p); p.granted == 0 && p.overdue && !p.away {
				c.hungry.push(p)
				continue
			}
		}
		p.hungry = false
		p.wake()
	}
}

// sated ends a partition's waiting for a grant. Its claim may go without one, and what it were granted while that is under way it could not use, and might
// keep for long. mu is held.
func (c *consumer) sated(p *consumed) {
	if p.hungry {
		p.hungry = false
		c.hungry.keep(func(other *consumed) bool { return other != p })
	}
}

// starve ends a partition's waiting for a grant, and what it has been granted.
func (c *consumer) starve(p *consumed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sated(p)
	c.ungrant(p)
	p.overdue = false
	c.match()
}

// patient ends a grant when its claim takes long, as the master of one partition is away: others need the takers. The claim stays as it is: what it begins
// all the same waits for the next taker.
func (c *consumer) patient(p *consumed) *time.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	claim := p.claims
	return time.AfterFunc(beginPatience, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if p.claims == claim {
			c.ungrant(p)
			c.match()
		}
	})
}
