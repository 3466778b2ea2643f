package memstore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

func (p *partition) count(now driver.Instant) driver.Counts {
	c := p.seen
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

// list returns the entries behind a position.
func (p *partition) list(state driver.State, position *entry, limit int) ([]driver.Record, string) {
	set := map[driver.State]*ordered{
		driver.StateScheduled: &p.scheduled, driver.StateLeased: &p.leased, driver.StateDead: &p.dead,
	}[state]
	var rest []*entry
	for _, e := range set.All() {
		if position == nil || position.Before(e) {
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
	return records, cursorOf(rest[len(records)-1])
}

// cursorOf is the position behind an entry: its key and its id.
func cursorOf(e *entry) string { return strconv.FormatInt(int64(e.at), 10) + ":" + e.ID }

// parseCursor makes of a cursor an entry to compare others with, nil for the first page.
func parseCursor(cursor string) (*entry, error) {
	if cursor == "" {
		return nil, nil
	}
	number, id, found := strings.Cut(cursor, ":")
	at, err := strconv.ParseInt(number, 10, 64)
	if !found || err != nil {
		return nil, fmt.Errorf("memstore: %w cursor %.40q: the one that came with the last page is accepted", driver.ErrInvalid, cursor)
	}
	return &entry{Record: driver.Record{ID: id}, at: driver.Instant(at)}, nil
}
