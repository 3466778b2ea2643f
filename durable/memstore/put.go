package memstore

import (
	"bytes"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// put stores messages.
func (p *partition) put(now time.Time, put *driver.Put) []driver.Status {
	statuses := make([]driver.Status, len(put.Items))
	for i := range put.Items {
		statuses[i] = p.putOne(now, &put.Items[i], put.Replace)
	}
	p.hint()
	return statuses
}

func (p *partition) putOne(now time.Time, item *driver.PutItem, replace bool) driver.Status {
	if old := p.entries[item.ID]; old != nil {
		switch {
		case !replace:
			return driver.StatusDuplicate
		case old.State == driver.StateFiring:
			return driver.StatusFiring
		}
		p.drop(old)
	}
	e := &entry{Record: driver.Record{
		ID:          item.ID,
		Body:        bytes.Clone(item.Body),
		Enqueued:    local.Floor(now),
		MaxAttempts: item.MaxAttempts,
	}}
	p.entries[e.ID] = e
	p.schedule(e, local.DueAt(now, item.At, item.Delay))
	p.counters.Enqueued++
	return driver.StatusDone
}
