package boltstore

import (
	"encoding/binary"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// put stores messages one after the other: of two with the same id the second is a duplicate.
func (w *partitionWriter) put(put *driver.Put) (statuses []driver.Status, refused, err error) {
	if statuses, refused = repeated(w.producers, put); statuses != nil || refused != nil {
		return statuses, refused, nil
	}
	statuses = make([]driver.Status, len(put.Items))
	for i := range put.Items {
		if statuses[i], err = w.putOne(&put.Items[i], put.Replace); err != nil {
			return nil, nil, err
		}
	}
	return statuses, nil, w.remember(put, statuses)
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

// Producers that have not put anything for producerAge are forgotten, as long as there are more than producersKept: no call is
// repeated for that long.
const (
	producerAge   = 24 * time.Hour
	producersKept = 1024
	maxProducer   = 1024 // bytes of a name
)

// An entry of a producer is its last number and the time of its last call, each as eight bytes, and a byte for each status.
const producerHeader = 16

// repeated returns the results of a put that has taken place, nil if it has not. One before the last is refused: its results are gone.
func repeated(producers *bolt.Bucket, put *driver.Put) ([]driver.Status, error) {
	if put.Producer == "" {
		return nil, nil
	}
	b := producers.Get([]byte(put.Producer))
	if len(b) < producerHeader {
		return nil, nil
	}
	last, statuses := binary.BigEndian.Uint64(b), b[producerHeader:]
	switch {
	case put.Seq > last:
		return nil, nil
	case put.Seq < last:
		return nil, fmt.Errorf("boltstore: %w sequence number %d of producer %q: %d and more are accepted, as its last one was %d",
			driver.ErrInvalid, put.Seq, put.Producer, last, last)
	case len(put.Items) != len(statuses):
		return nil, fmt.Errorf("boltstore: %w repetition of put %d of producer %q: it has %d messages, the first had %d",
			driver.ErrInvalid, put.Seq, put.Producer, len(put.Items), len(statuses))
	}
	results := make([]driver.Status, len(statuses))
	for i, s := range statuses {
		results[i] = driver.Status(s)
	}
	return results, nil
}

// remember keeps the results of a put. A producer that is new makes it look for some that are old, from a place that moves on.
func (w *partitionWriter) remember(put *driver.Put, statuses []driver.Status) error {
	if put.Producer == "" {
		return nil
	}
	name := []byte(put.Producer)
	if w.producers.Get(name) == nil {
		if err := w.forget(); err != nil {
			return err
		}
		w.known.producers++
	}
	b := make([]byte, 0, producerHeader+len(statuses))
	b = binary.BigEndian.AppendUint64(b, put.Seq)
	b = binary.BigEndian.AppendUint64(b, uint64(local.Floor(w.now)))
	for _, s := range statuses {
		b = append(b, byte(s))
	}
	w.dirty = true
	return w.producers.Put(name, b)
}

// forget looks at a few producers, and forgets those that are old.
func (w *partitionWriter) forget() error {
	if w.known.producers < producersKept {
		return nil
	}
	const looks = 4
	var old [][]byte
	c := w.producers.Cursor()
	k, v := c.Seek(w.known.forgetFrom)
	if k == nil {
		k, v = c.First()
	}
	for n := 0; n < looks && k != nil; n++ {
		oldest := local.Floor(w.now) - driver.Instant(producerAge/time.Millisecond)
		if len(v) < producerHeader || driver.Instant(binary.BigEndian.Uint64(v[8:])) < oldest {
			old = append(old, append([]byte(nil), k...))
		}
		k, v = c.Next()
	}
	w.known.forgetFrom = append([]byte(nil), k...)
	for _, k := range old {
		w.dirty = true
		w.known.producers--
		if err := w.producers.Delete(k); err != nil {
			return err
		}
	}
	return nil
}
