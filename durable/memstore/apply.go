package memstore

import (
	"strings"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// apply makes one transition of each message.
func (p *partition) apply(now time.Time, b *driver.Batch, limits local.DeadLimits) []driver.Outcome {
	outcomes := make([]driver.Outcome, len(b.Changes))
	for i := range b.Changes {
		o := &outcomes[i]
		o.Now = now
		c := &b.Changes[i]
		e := p.entries[c.ID]
		switch b.Op {
		case driver.OpBegin:
			p.begin(now, b, c, e, o)
		case driver.OpExtend:
			p.extend(now, c, e, o)
		case driver.OpAck, driver.OpExpire, driver.OpRetry, driver.OpBury, driver.OpRelease:
			o.Status = p.end(now, b.Op, c, e)
		case driver.OpCancel, driver.OpReschedule:
			o.Status = p.cancelOrReschedule(now, b.Op, c, e)
		default:
			o.Status = p.replayOrPurge(now, b.Op, c, e)
		}
	}
	p.trimDead(now, limits)
	p.hint()
	return outcomes
}

// holdsLease reports whether the change has the token of the current lease of the message.
func (e *entry) holdsLease(c *driver.Change) bool {
	return e != nil && e.Token == c.Token && (e.State == driver.StateLeased || e.State == driver.StateFiring)
}

func (p *partition) begin(now time.Time, b *driver.Batch, c *driver.Change, e *entry, o *driver.Outcome) {
	if !e.holdsLease(c) {
		o.Status = driver.StatusLeaseLost
		return
	}
	o.Due = e.Due
	switch {
	case e.State == driver.StateFiring:
	case p.paused:
		o.Status = driver.StatusPaused
		return
	case e.Due > local.Floor(now).Add(b.Lead):
		o.Status = driver.StatusEarly
		return
	}
	end := e.LeaseEnd
	if b.Visibility > 0 {
		end = local.After(now, b.Visibility)
		o.Lease = end
	}
	p.lease(e, driver.StateFiring, end)
	o.Status = driver.StatusDone
}

func (p *partition) extend(now time.Time, c *driver.Change, e *entry, o *driver.Outcome) {
	if !e.holdsLease(c) {
		o.Status = driver.StatusLeaseLost
		return
	}
	p.lease(e, e.State, local.LeaseEnd(now, e.Due, local.Extension(c, e.State)))
	o.Status, o.Lease = driver.StatusDone, e.LeaseEnd
}

// end ends a lease by a transition of its holder. A message that has not begun can only be
// released.
func (p *partition) end(now time.Time, op driver.Op, c *driver.Change, e *entry) driver.Status {
	switch {
	case (op == driver.OpAck || op == driver.OpExpire) && (e == nil || e.State == driver.StateDead):
		return driver.StatusNotFound
	case e != nil && e.Token == c.Token && e.last == op:
		return driver.StatusDone // a repetition, even if the message was moved since then
	case !e.holdsLease(c) || e.State == driver.StateLeased && op != driver.OpRelease:
		return driver.StatusLeaseLost
	}
	e.last = op
	switch op {
	case driver.OpAck:
		p.counters.Acked++
		p.drop(e)
	case driver.OpExpire:
		p.counters.Expired++
		p.drop(e)
	case driver.OpRetry:
		if !c.Uncounted {
			e.Attempts++
		}
		e.Reason = strings.Clone(driver.CutReason(c.Reason)) // the rest is not kept
		p.counters.Retried++
		p.schedule(e, local.After(now, c.Delay))
	case driver.OpBury:
		e.Attempts++
		e.Reason = strings.Clone(driver.CutReason(c.Reason)) // the rest is not kept
		p.bury(now, e)
	case driver.OpRelease:
		p.schedule(e, e.Due)
	}
	return driver.StatusDone
}

// cancelOrReschedule cancels or reschedules a message that has not begun, and ends its lease if it
// has one.
func (p *partition) cancelOrReschedule(now time.Time, op driver.Op, c *driver.Change, e *entry) driver.Status {
	switch {
	case e == nil || e.State == driver.StateDead || op == driver.OpCancel && !c.Meant(e.Enqueued):
		return driver.StatusNotFound
	case e.State == driver.StateFiring:
		return driver.StatusFiring
	case op == driver.OpCancel:
		p.counters.Cancelled++
		p.drop(e)
	default:
		p.schedule(e, local.DueAt(now, c.At, c.Delay))
	}
	return driver.StatusDone
}

// replayOrPurge replays or purges a dead letter.
func (p *partition) replayOrPurge(now time.Time, op driver.Op, c *driver.Change, e *entry) driver.Status {
	switch {
	case e == nil || e.State != driver.StateDead || !c.Meant(e.Died):
		return driver.StatusNotFound
	case op == driver.OpPurge:
		p.drop(e)
	default:
		e.Attempts, e.Crashes = 0, 0
		p.schedule(e, local.After(now, c.Delay))
	}
	return driver.StatusDone
}
