package memstore

import (
	"bytes"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// partition is one partition of a queue.
//
// Invariant while mu is not held: each entry is in entries and in exactly one of the three sets,
// the set of its state.
type partition struct {
	mu        sync.Mutex
	entries   map[string]*entry
	scheduled ordered       // by due time
	leased    ordered       // leased and firing, by the end of the lease
	dead      ordered       // by time of death
	token     uint64        // the last assigned token
	grants    local.Grants  // the last claims
	deadBytes int64         // size of the bodies of dead letters
	counters  driver.Counts // the counters since the queue was created
	paused    bool

	index  int
	hints  *local.Hints
	hinted driver.Instant // earliest due time after the last transition; 0: none
}

func newPartition(index int, h *local.Hints) *partition {
	return &partition{entries: make(map[string]*entry), index: index, hints: h}
}

// entry is a message in its set.
type entry struct {
	driver.Record
	at    driver.Instant // the key: due time, end of the lease, or time of death
	set   *ordered
	index int

	// last is the transition by which the holder of the last lease ended it, so that the holder can
	// repeat the call; 0: none.
	last driver.Op
}

// Before and Place implement local.Item.
func (e *entry) Before(other *entry) bool {
	return e.at < other.at || e.at == other.at && e.ID < other.ID
}

func (e *entry) Place() *int { return &e.index }

// ordered is a set of entries ordered by at and id.
type ordered struct{ local.Heap[*entry] }

// first returns the earliest entry, or nil if there is none.
func (o *ordered) first() *entry {
	if o.Len() == 0 {
		return nil
	}
	return o.First()
}

// firstAt returns the key of the earliest entry, or 0 if there is none.
func (o *ordered) firstAt() driver.Instant {
	if o.Len() == 0 {
		return 0
	}
	return o.First().at
}

func (o *ordered) add(e *entry) {
	e.set = o
	o.Add(e)
}

func (o *ordered) remove(e *entry) {
	o.Remove(e)
	e.set = nil
}

// until returns the number n of entries whose keys are not after t. It visits at most 2n+1 entries.
func (o *ordered) until(t driver.Instant) (n int64) {
	o.Walk(func(e *entry) bool {
		if e.at <= t {
			n++
		}
		return e.at <= t
	})
	return n
}

// countDue returns, for each of the ascending bounds, the number of entries whose keys are not
// after it.
func (o *ordered) countDue(bounds local.DueBounds) []int64 {
	counts := make([]int64, len(bounds))
	o.Walk(func(e *entry) bool {
		i := bounds.Find(e.at)
		if i < len(bounds) {
			counts[i]++
		}
		return i < len(bounds)
	})
	return local.Sums(counts)
}

// copy returns a copy of the record with its own body.
func (e *entry) copy() driver.Record {
	r := e.Record
	r.Body = bytes.Clone(r.Body)
	return r
}

// move moves an entry to another state and its set.
func (p *partition) move(e *entry, s driver.State) {
	p.leave(e)
	e.State = s
	if s != driver.StateLeased && s != driver.StateFiring {
		e.LeaseEnd = 0
	}
	if s != driver.StateDead {
		e.Died = 0
	}
	set := p.locate(e)
	set.add(e)
	if set == &p.dead {
		p.deadBytes += int64(len(e.Body))
	}
}

// leave removes an entry from its set, if it is in one.
func (p *partition) leave(e *entry) {
	if e.set == nil {
		return
	}
	if e.set == &p.dead {
		p.deadBytes -= int64(len(e.Body))
	}
	e.set.remove(e)
}

// locate sets the key of an entry for its state, and returns the set of the state.
func (p *partition) locate(e *entry) *ordered {
	switch e.State {
	case driver.StateScheduled:
		e.at = e.Due
		return &p.scheduled
	case driver.StateDead:
		e.at = e.Died
		return &p.dead
	default:
		e.at = e.LeaseEnd
		return &p.leased
	}
}

// schedule makes an entry due at an instant.
func (p *partition) schedule(e *entry, due driver.Instant) {
	e.Due = due
	p.move(e, driver.StateScheduled)
}

// lease gives a leased or firing entry a lease that ends at an instant.
func (p *partition) lease(e *entry, s driver.State, end driver.Instant) {
	e.LeaseEnd = end
	p.move(e, s)
}

// drop removes an entry from the partition.
func (p *partition) drop(e *entry) {
	p.leave(e)
	delete(p.entries, e.ID)
}

// bury makes an entry a dead letter.
func (p *partition) bury(now time.Time, e *entry) {
	e.Died = local.Floor(now)
	p.counters.Buried++
	p.move(e, driver.StateDead)
}

// trimDead drops the dead letters that exceed the limits, the oldest first, at most two batches per
// call. A call adds at most one batch, so a backlog shrinks with each call.
func (p *partition) trimDead(now time.Time, limits local.DeadLimits) {
	for range 2 * driver.MaxBatch {
		e := p.dead.first()
		if e == nil {
			return
		}
		if !limits.Exceeded(int64(p.dead.Len()), p.deadBytes, e.Died, local.Floor(now)) {
			return
		}
		p.counters.Trimmed++
		p.drop(e)
	}
}

// hint sends a hint if the earliest due time has become earlier.
func (p *partition) hint() {
	earliest := p.scheduled.firstAt()
	if earliest != 0 && (p.hinted == 0 || earliest < p.hinted) {
		p.hints.Send(driver.Hint{Partition: p.index, Due: earliest})
	}
	p.hinted = earliest
}
