package memstore

import (
	"bytes"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// put stores messages one after the other: of two with the same id the second is a duplicate.
func (p *partition) put(now time.Time, put *driver.Put) ([]driver.Status, error) {
	if statuses, err := p.producers.repeated(put); statuses != nil || err != nil {
		return statuses, err
	}
	statuses := make([]driver.Status, len(put.Items))
	for i := range put.Items {
		statuses[i] = p.putOne(now, &put.Items[i], put.Replace)
	}
	p.producers.remember(now, put, statuses)
	p.hint()
	return statuses, nil
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
	p.seen.Enqueued++
	return driver.StatusDone
}
