package memstore

import (
	"slices"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

func (p *partition) count(now driver.Instant) driver.Counts {
	c := p.counters
	c.Now = now
	c.Scheduled = int64(p.scheduled.Len())
	c.Due = p.scheduled.until(now)
	c.InFlight = int64(p.leased.Len())
	c.Dead = int64(p.dead.Len())
	c.DeadBytes = p.deadBytes
	c.NextDue = p.scheduled.firstAt()
	c.Paused = p.paused
	return c
}

// list returns the messages after the message with a time and an id.
func (p *partition) list(state driver.State, at driver.Instant, id string, limit int) ([]driver.Record, string) {
	set := map[driver.State]*ordered{
		driver.StateScheduled: &p.scheduled, driver.StateLeased: &p.leased, driver.StateDead: &p.dead,
	}[state]
	position := &entry{Record: driver.Record{ID: id}, at: at}
	var rest []*entry
	for _, e := range set.All() {
		if position.Before(e) {
			rest = append(rest, e)
		}
	}
	slices.SortFunc(rest, func(a, b *entry) int {
		if a.Before(b) {
			return -1
		}
		return 1
	})
	var records []driver.Record
	for room := driver.PageBytes; len(records) < min(limit, len(rest)) && room > 0; {
		r := rest[len(records)].copy()
		records, room = append(records, r), room-len(r.Body)
	}
	if len(records) == len(rest) {
		return records, ""
	}
	last := rest[len(records)-1]
	return records, driver.FormatCursor(last.at, last.ID)
}
