package boltstore

import (
	"context"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// apply makes a transition of each message, in a transaction.
func (w *partitionWriter) apply(b *driver.Batch, limits local.DeadLimits) ([]driver.Outcome, error) {
	outcomes := make([]driver.Outcome, len(b.Changes))
	for i := range b.Changes {
		c := &b.Changes[i]
		step := w.exhume
		switch b.Op {
		case driver.OpAck, driver.OpExpire, driver.OpRetry, driver.OpBury, driver.OpRelease:
			step = w.end
		case driver.OpCancel, driver.OpReschedule:
			step = w.intervene
		}
		status, err := step(b.Op, c, w.get(c.ID))
		if err != nil {
			return nil, err
		}
		outcomes[i] = driver.Outcome{Status: status, Now: w.now}
	}
	return outcomes, w.trimDead(limits)
}

// leaseOf is a copy of the lease of a message, if it has one. It belongs to the group of the committer, so nobody changes it but a claim
// of what was scheduled.
func (w *partitionWriter) leaseOf(id string) (lease, bool) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if l := w.p.leases[id]; l != nil {
		return *l, true
	}
	return lease{}, false
}

func (w *partitionWriter) isFiring(id string) bool {
	l, ok := w.leaseOf(id)
	return ok && l.firing
}

// end ends the lease of a message that has begun, as its holder wishes.
func (w *partitionWriter) end(op driver.Op, c *driver.Change, r *record) (driver.Status, error) {
	switch {
	case (op == driver.OpAck || op == driver.OpExpire) && (r == nil || r.State != driver.StateScheduled):
		return driver.StatusNotFound, nil
	case w.isRepeated(op, c, r):
		return driver.StatusDone, nil
	}
	l, ok := w.leaseOf(c.ID)
	if !ok || r == nil || r.State != driver.StateScheduled || c.Token == 0 || l.token != c.Token || !l.firing && op != driver.OpRelease {
		return driver.StatusLeaseLost, nil
	}
	if err := w.begun.Delete([]byte(c.ID)); err != nil {
		return 0, err
	}
	is := *r
	is.Token, is.last, is.suspect = c.Token, op, false
	switch op {
	case driver.OpAck:
		w.state.acked++
		return driver.StatusDone, w.move(r, nil, effect{})
	case driver.OpExpire:
		w.state.expired++
		return driver.StatusDone, w.move(r, nil, effect{})
	case driver.OpRetry:
		w.state.retried++
		if !c.Uncounted {
			is.Attempts = counted(is.Attempts)
		}
		is.Reason, is.Due = driver.CutReason(c.Reason), local.After(w.now, c.Delay)
	case driver.OpBury:
		is.Attempts, is.Reason = counted(is.Attempts), driver.CutReason(c.Reason)
		w.die(&is)
	case driver.OpRelease:
		w.dirty = true
		w.effects = append(w.effects, effect{id: c.ID, was: r.Due, is: r.Due, released: former{c.Token, op}})
		return driver.StatusDone, nil
	}
	return driver.StatusDone, w.move(r, &is, effect{})
}

// isRepeated reports whether a transition has taken place already, and nothing after it.
func (w *partitionWriter) isRepeated(op driver.Op, c *driver.Change, r *record) bool {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if r == nil || c.Token == 0 || w.p.leases[c.ID] != nil && w.p.leases[c.ID].due == r.Due {
		return false
	}
	if f, ok := w.p.former[c.ID]; ok {
		return f == former{c.Token, op}
	}
	return r.Token == c.Token && r.last == op
}

// die makes a record that of a dead letter.
func (w *partitionWriter) die(r *record) {
	r.State, r.Died, r.suspect = driver.StateDead, local.Floor(w.now), false
	w.state.buried++
}

// intervene cancels or reschedules a message that has not begun. Who has claimed it loses his lease.
func (w *partitionWriter) intervene(op driver.Op, c *driver.Change, r *record) (driver.Status, error) {
	switch {
	case r == nil || r.State != driver.StateScheduled || op == driver.OpCancel && !c.Meant(r.Enqueued):
		return driver.StatusNotFound, nil
	case w.isFiring(c.ID):
		return driver.StatusFiring, nil
	case op == driver.OpCancel:
		w.state.cancelled++
		return driver.StatusDone, w.move(r, nil, effect{})
	}
	is := *r
	is.last, is.Due = 0, local.DueAt(w.now, c.At, c.Delay)
	if l, ok := w.leaseOf(c.ID); ok {
		is.Token = l.token
	}
	return driver.StatusDone, w.move(r, &is, effect{})
}

// exhume replays or purges a dead letter.
func (w *partitionWriter) exhume(op driver.Op, c *driver.Change, r *record) (driver.Status, error) {
	switch {
	case r == nil || r.State != driver.StateDead || !c.Meant(r.Died):
		return driver.StatusNotFound, nil
	case op == driver.OpPurge:
		return driver.StatusDone, w.move(r, nil, effect{})
	}
	is := *r
	is.State, is.Due, is.Died = driver.StateScheduled, local.After(w.now, c.Delay), 0
	is.Attempts, is.Crashes, is.last = 0, 0, 0
	return driver.StatusDone, w.move(r, &is, effect{})
}

// applyInMemory makes transitions that need no commit. It is not done where there is one that does: a release of what
// has begun.
func (b *backend) applyInMemory(ctx context.Context, p *partition, batch *driver.Batch) (outcomes []driver.Outcome, done bool, err error) {
	for {
		p.mu.Lock()
		wait := p.busyWith(batch.Changes)
		if wait == nil {
			break
		}
		p.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
		if err := b.store.usable(ctx); err != nil {
			return nil, false, err
		}
	}
	head := p.head
	outcomes, done = p.leaseChanges(b.store.options.Now(), batch)
	p.hint(head)
	noted := len(p.notes) > 0
	p.mu.Unlock()
	if noted && batch.Op == driver.OpBegin {
		b.store.commits.note(p)
	}
	return outcomes, done, nil
}

// busyWith is closed when the commit is over that touches one of the messages; nil if there is none.
func (p *partition) busyWith(changes []driver.Change) <-chan struct{} {
	for i := range changes {
		if _, busy := p.busy[changes[i].ID]; busy {
			if p.settled == nil {
				p.settled = make(chan struct{})
			}
			return p.settled
		}
	}
	return nil
}
