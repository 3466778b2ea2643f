package local

import (
	"cmp"
	"maps"
	"slices"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/internal/heap"
)

// lease is a claimed message.
type lease struct {
	key      // due time and id
	end      driver.Instant
	token    uint64
	firing   bool
	crashed  bool           // the message has crashed before, so its begin waits until a further crash is counted
	planned  driver.Instant // Record.Planned
	index    int
	group    uint64         // of the change that ended it, once it has ended: see State
	enqueued driver.Instant // with replaced, tells messages of one id apart
	replaced driver.Instant // the last time of a Put that has replaced the firing message, or enqueued
}

func (l *lease) endKey() key  { return key{l.end, l.id} }
func (l *lease) marked() bool { return l.planned == driver.Never } // if firing: see driver.Backend
func (l *lease) place() place { return place{kindScheduled, l.key} }

func (l *lease) Before(o *lease) bool { return l.endKey().before(o.endKey()) }
func (l *lease) SetHeapIndex(i int)   { l.index = i }

// endedLease is a lease that has ended in memory only, with the transition by which its holder
// ended it, or 0.
type endedLease struct {
	token uint64
	op    driver.Op
}

// leases are the leases of a partition.
type leases struct {
	byID    map[string]*lease
	ends    heap.Heap[*lease] // all leases, by their ends
	ended   map[string]endedLease
	token   uint64   // the last token given out
	settled []*lease // ended with their messages by changes that may not be durable yet
}

// maxEnded is the largest number of ended leases that are kept. If a lease is no longer kept, a
// repeated Release returns StatusLeaseLost.
const maxEnded = 1 << 16

// held returns the lease that a change names, or nil if it has ended.
func (s *leases) held(c *driver.Change) *lease {
	if l := s.byID[c.ID]; l != nil && l.token == c.Token {
		return l
	}
	return nil
}

func (s *leases) add(l *lease) {
	delete(s.ended, l.id)
	s.byID[l.id] = l
	s.ends.Push(l)
}

// keepFrom adds the leases of the last State that were answered and have their messages in place,
// even if a change that was lost has ended them. Other changes have written their tokens.
func (s *leases) keepFrom(last *leases, durable uint64, p *partition) {
	s.token, s.ended = max(s.token, last.token), last.ended
	all := append(slices.Collect(maps.Values(last.byID)), last.settled...)
	slices.SortFunc(all, func(a, b *lease) int { return cmp.Compare(b.token, a.token) }) // the last one of a message first
	for _, l := range all {
		_, ended := s.ended[l.id]
		r, err := p.table.load(l.id)
		inPlace := err == nil && r != nil && r.place() == l.place() && r.msg.Token < l.token &&
			l.enqueued <= r.msg.Enqueued && r.msg.Enqueued <= l.replaced
		lives := (l.group == 0 || l.group > durable) && l.token < p.counters.Tokens && !ended && s.byID[l.id] == nil
		if lives && inPlace {
			l.group, l.planned = 0, r.msg.Planned
			p.lease(l)
		}
	}
}

// settle keeps a lease that a group of changes ends, and drops those that durable groups ended.
func (s *leases) settle(l *lease, group, durable uint64) {
	for len(s.settled) > 0 && s.settled[0].group <= durable {
		s.settled = s.settled[1:]
	}
	l.group = group
	s.settled = append(s.settled, l)
}

func (s *leases) drop(l *lease) {
	s.ends.Remove(l.index)
	delete(s.byID, l.id)
}

func (s *leases) renew(l *lease, end driver.Instant) {
	l.end = end
	s.ends.Fix(l.index)
}

// keep remembers a lease that was dropped, with the transition that ended it.
func (s *leases) keep(l *lease, op driver.Op) {
	if len(s.ended) >= maxEnded {
		clear(s.ended)
	}
	s.ended[l.id] = endedLease{l.token, op}
}

// firstEnd returns the end of the first lease to expire, or 0.
func (s *leases) firstEnd() driver.Instant {
	if l, ok := s.ends.Min(); ok {
		return l.end
	}
	return 0
}
