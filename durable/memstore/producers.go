package memstore

import (
	"container/list"
	"fmt"
	"slices"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Producers that have not put anything for producerAge are forgotten, as long as there are more than producersKept: no call is
// repeated for that long.
const (
	producerAge   = 24 * time.Hour
	producersKept = 1024
)

// producers is the last put of each producer, so that it can be repeated. The zero value is ready.
type producers struct {
	byName map[string]*list.Element
	byUse  list.List // of *lastPut, the one that was used longest ago in front
}

type lastPut struct {
	producer string
	seq      uint64
	used     time.Time
	statuses []driver.Status
}

// repeated returns the results of a put that has taken place, nil if it has not. One before the last is an error: its results are gone.
func (ps *producers) repeated(put *driver.Put) ([]driver.Status, error) {
	element := ps.byName[put.Producer]
	if put.Producer == "" || element == nil {
		return nil, nil
	}
	last := element.Value.(*lastPut)
	switch {
	case put.Seq > last.seq:
		return nil, nil
	case put.Seq < last.seq:
		return nil, fmt.Errorf("memstore: %w sequence number %d of producer %q: %d and more are accepted, as its last one was %d",
			driver.ErrInvalid, put.Seq, put.Producer, last.seq, last.seq)
	case len(put.Items) != len(last.statuses):
		return nil, fmt.Errorf("memstore: %w repetition of put %d of producer %q: it has %d messages, the first had %d",
			driver.ErrInvalid, put.Seq, put.Producer, len(put.Items), len(last.statuses))
	}
	return append(make([]driver.Status, 0, len(last.statuses)), last.statuses...), nil
}

// remember keeps the results of a put, and forgets at most two producers.
func (ps *producers) remember(now time.Time, put *driver.Put, statuses []driver.Status) {
	if put.Producer == "" {
		return
	}
	element := ps.byName[put.Producer]
	if element == nil {
		if ps.byName == nil {
			ps.byName = make(map[string]*list.Element)
		}
		element = ps.byUse.PushBack(&lastPut{producer: put.Producer})
		ps.byName[put.Producer] = element
	}
	last := element.Value.(*lastPut)
	last.seq, last.used, last.statuses = put.Seq, now, slices.Clone(statuses)
	ps.byUse.MoveToBack(element)
	for range 2 {
		oldest := ps.byUse.Front().Value.(*lastPut)
		if len(ps.byName) <= producersKept || now.Sub(oldest.used) < producerAge {
			return
		}
		ps.byUse.Remove(ps.byUse.Front())
		delete(ps.byName, oldest.producer)
	}
}
