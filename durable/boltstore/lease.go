package boltstore

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// leaseChanges begins, extends or releases. It changes nothing and is false where a release needs a commit.
func (p *partition) leaseChanges(now time.Time, b *driver.Batch) ([]driver.Outcome, bool) {
	if b.Op == driver.OpRelease && p.needsCommit(b.Changes) {
		return nil, false
	}
	outcomes := make([]driver.Outcome, len(b.Changes))
	for i := range b.Changes {
		c, o := &b.Changes[i], &outcomes[i]
		o.Now, o.Status = now, driver.StatusDone
		l := p.holds(c)
		switch {
		case l == nil && b.Op == driver.OpRelease && c.Token != 0 && p.former[c.ID] == former{c.Token, b.Op}:
		case l == nil:
			o.Status = driver.StatusLeaseLost
		case b.Op == driver.OpBegin:
			p.begin(now, b, l, o)
		case b.Op == driver.OpExtend:
			l.end = local.LeaseEnd(now, l.due, local.Extension(c, l.state()))
			p.ends.Fix(l)
			o.Lease = l.end
		default:
			p.endLease(l, b.Op)
		}
	}
	return outcomes, true
}

// needsCommit reports whether one of the messages has begun, so that the file may have a note of it.
func (p *partition) needsCommit(changes []driver.Change) bool {
	for i := range changes {
		if l := p.holds(&changes[i]); l != nil && l.firing {
			return true
		}
	}
	return false
}

func (p *partition) begin(now time.Time, b *driver.Batch, l *lease, o *driver.Outcome) {
	o.Due = l.due
	if !l.firing && l.due > local.Floor(now).Add(b.Lead) {
		o.Status = driver.StatusEarly
		return
	}
	if !l.firing {
		l.firing = true
		p.notes[l.id] = struct{}{}
	}
	if b.Visibility > 0 {
		l.end = local.After(now, b.Visibility)
		p.ends.Fix(l)
		o.Lease = l.end
	}
}

// endLeases ends leases that are over, at most a batch. Those of what has not begun are ended; the others are returned, as
// that needs a commit. What the committer is at work on is left alone.
func (p *partition) endLeases(now time.Time) (firing []string) {
	var kept []*lease
	for range driver.MaxBatch {
		if p.ends.Len() == 0 || p.ends.First().end > local.Floor(now) {
			break
		}
		l := p.ends.First()
		_, busy := p.busy[l.id]
		switch {
		case !busy && !l.firing:
			p.endLease(l, 0)
			continue
		case !busy:
			firing = append(firing, l.id)
		}
		p.ends.Remove(l)
		kept = append(kept, l)
	}
	for _, l := range kept {
		p.ends.Add(l)
	}
	return firing
}
