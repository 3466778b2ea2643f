package memstore

import (
	"slices"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// audit checks that each entry is in the set of its state with the correct key and index, that the
// sets have no other members, and that the total size of the bodies of dead letters is correct.
func (p *partition) audit(now driver.Instant, repair bool) driver.AuditReport {
	report := driver.AuditReport{Records: int64(len(p.entries))}
	for _, e := range p.entries {
		if p.consistent(e) {
			continue
		}
		report.Orphans++
		if repair {
			p.reinsert(e, now)
			report.Repaired++
		}
	}
	for _, set := range []*ordered{&p.scheduled, &p.leased, &p.dead} {
		for _, e := range slices.Clone(set.All()) {
			if p.entries[e.ID] == e {
				continue
			}
			report.Strays++
			if repair {
				set.remove(e)
				report.Repaired++
			}
		}
	}
	sum := int64(0)
	for _, e := range p.dead.All() {
		sum += int64(len(e.Body))
	}
	if sum != p.deadBytes {
		report.Wrong++
		if repair {
			p.deadBytes = sum
			report.Repaired++
		}
	}
	p.hint()
	return report
}

// consistent reports whether an entry is in the set of its state with the correct key.
func (p *partition) consistent(e *entry) bool {
	at := e.at
	set := p.locate(e)
	right := e.at == at
	e.at = at
	return right && e.set == set && set.Has(e) && set.InOrder(e)
}

// reinsert schedules an entry that is in no set, at its due time or now. A dead letter stays dead.
func (p *partition) reinsert(e *entry, now driver.Instant) {
	if e.set != nil && !e.set.Has(e) {
		e.set = nil
	}
	if e.State == driver.StateDead {
		p.move(e, driver.StateDead)
		return
	}
	if e.Due == 0 {
		e.Due = now
	}
	p.schedule(e, e.Due)
}
