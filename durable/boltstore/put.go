package boltstore

import (
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// put stores messages.
func (w *partitionWriter) put(put *driver.Put) ([]driver.Status, error) {
	statuses := make([]driver.Status, len(put.Items))
	for i := range put.Items {
		var err error
		if statuses[i], err = w.putOne(&put.Items[i], put.Replace); err != nil {
			return nil, err
		}
	}
	return statuses, nil
}

func (w *partitionWriter) putOne(item *driver.PutItem, replace bool) (driver.Status, error) {
	old := w.get(item.ID)
	if old != nil {
		switch {
		case !replace:
			return driver.StatusDuplicate, nil
		case w.isFiring(item.ID):
			return driver.StatusFiring, nil
		}
	}
	r := &record{Record: driver.Record{
		ID:          item.ID,
		Body:        item.Body,
		Enqueued:    local.Floor(w.now),
		Due:         local.DueAt(w.now, item.At, item.Delay),
		MaxAttempts: item.MaxAttempts,
		State:       driver.StateScheduled,
	}}
	w.state.enqueued++
	return driver.StatusDone, w.move(old, r, effect{})
}
