package memstore

import (
	"strings"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// apply makes a transition of each message.
func (p *partition) apply(now time.Time, b *durable.Batch, limits deadLimits) []durable.Outcome {
	outcomes := make([]durable.Outcome, len(b.Changes))
	for i := range b.Changes {
		o := &outcomes[i]
		o.Now = now
		c := &b.Changes[i]
		e := p.entries[c.ID]
		switch b.Op {
		case durable.OpBegin:
			p.begin(now, b, c, e, o)
		case durable.OpExtend:
			p.extend(now, c, e, o)
		case durable.OpAck, durable.OpRetry, durable.OpBury, durable.OpRelease:
			o.Status = p.end(now, b.Op, c, e)
		case durable.OpCancel, durable.OpReschedule:
			o.Status = p.intervene(now, b.Op, c, e)
		default:
			o.Status = p.exhume(now, b.Op, c, e)
		}
	}
	p.trimDead(now, limits)
	p.hint()
	return outcomes
}

// holds reports whether the change comes from the one who has the lease of a message.
func (e *entry) holds(c *durable.Change) bool {
	return e != nil && e.Token == c.Token && (e.State == durable.StateLeased || e.State == durable.StateFiring)
}

func (p *partition) begin(now time.Time, b *durable.Batch, c *durable.Change, e *entry, o *durable.Outcome) {
	if !e.holds(c) {
		o.Status = durable.StatusLeaseLost
		return
	}
	o.Due = e.Due
	if e.State == durable.StateLeased && e.Due > local.Floor(now).Add(b.Lead) {
		o.Status = durable.StatusEarly
		return
	}
	end := e.LeaseEnd
	if b.Visibility > 0 {
		end = local.After(now, b.Visibility)
		o.Lease = end
	}
	p.lease(e, durable.StateFiring, end)
	o.Status = durable.StatusDone
}

func (p *partition) extend(now time.Time, c *durable.Change, e *entry, o *durable.Outcome) {
	if !e.holds(c) {
		o.Status = durable.StatusLeaseLost
		return
	}
	p.lease(e, e.State, local.LeaseEnd(now, e.Due, c.Delay))
	o.Status, o.Lease = durable.StatusDone, e.LeaseEnd
}

// end ends a lease as its holder wishes. Of a message that has not begun it can only be released.
func (p *partition) end(now time.Time, op durable.Op, c *durable.Change, e *entry) durable.Status {
	switch {
	case op == durable.OpAck && (e == nil || e.State == durable.StateDead):
		return durable.StatusNotFound
	case e != nil && e.Token == c.Token && e.last == op:
		return durable.StatusDone // a repetition, be it that others have moved the message since
	case !e.holds(c) || e.State == durable.StateLeased && op != durable.OpRelease:
		return durable.StatusLeaseLost
	}
	e.last = op
	switch op {
	case durable.OpAck:
		p.seen.Acked++
		p.drop(e)
	case durable.OpRetry:
		e.Attempts++
		e.Reason = strings.Clone(durable.CutReason(c.Reason)) // the rest is not kept
		p.seen.Retried++
		p.schedule(e, local.After(now, c.Delay))
	case durable.OpBury:
		e.Attempts++
		e.Reason = strings.Clone(durable.CutReason(c.Reason)) // the rest is not kept
		p.bury(now, e)
	case durable.OpRelease:
		p.schedule(e, e.Due)
	}
	return durable.StatusDone
}

// intervene cancels or reschedules a message that has not begun. Who has claimed it loses his lease.
func (p *partition) intervene(now time.Time, op durable.Op, c *durable.Change, e *entry) durable.Status {
	switch {
	case e == nil || e.State == durable.StateDead:
		return durable.StatusNotFound
	case e.State == durable.StateFiring:
		return durable.StatusFiring
	case op == durable.OpCancel:
		p.seen.Cancelled++
		p.drop(e)
	default:
		p.schedule(e, local.DueAt(now, c.At, c.Delay))
	}
	return durable.StatusDone
}

// exhume replays or purges a dead letter.
func (p *partition) exhume(now time.Time, op durable.Op, c *durable.Change, e *entry) durable.Status {
	switch {
	case e != nil && e.replayed && op == durable.OpReplay:
		return durable.StatusDone // a repetition, be it that the message has been claimed since
	case e == nil || e.State != durable.StateDead:
		return durable.StatusNotFound
	case op == durable.OpPurge:
		p.drop(e)
	default:
		e.Attempts, e.Crashes = 0, 0
		e.replayed = true
		p.schedule(e, local.After(now, c.Delay))
	}
	return durable.StatusDone
}
