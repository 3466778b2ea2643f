// Package local is shared by the stores whose consumers all run in one process. [State] is the
// state machine of memstore and pebblestore, over a sorted map. The package also contains members,
// hints, conversions of clock readings to instants, and a heap.
package local

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Members are the consumers of a queue with their last heartbeats. The zero value is ready to use.
type Members struct {
	mu   sync.Mutex
	all  map[string]driver.Member
	last driver.Instant // time of the last call
}

// Beat adds a member for another ttl, or removes it if ttl <= 0. It returns the sorted names of all
// members. It is O(m log m) for m members.
func (m *Members) Beat(now time.Time, member driver.Member, ttl time.Duration) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(Floor(now))
	delete(m.all, member.Name)
	if ttl > 0 {
		member.Seen, member.Until = Floor(now), After(now, ttl)
		member.Partitions = slices.Clone(member.Partitions)
		m.all[member.Name] = member
	}
	names := make([]string, 0, len(m.all))
	for name := range m.all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// List returns the members, sorted by name. It is O(m log m) for m members.
func (m *Members) List(now time.Time) []driver.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(Floor(now))
	all := make([]driver.Member, 0, len(m.all))
	for _, member := range m.all {
		member.Partitions = slices.Clone(member.Partitions)
		all = append(all, member)
	}
	slices.SortFunc(all, func(a, b driver.Member) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// advance removes expired members. If the clock was set back since the last call, advance moves the
// times of all members back by the same amount. Otherwise a member whose process is gone would
// remain for that amount of time.
func (m *Members) advance(now driver.Instant) {
	if m.all == nil {
		m.all = make(map[string]driver.Member)
	}
	back := max(0, m.last-now)
	m.last = now
	for name, member := range m.all {
		member.Seen -= back
		member.Until -= back
		if member.Until <= now {
			delete(m.all, name)
		} else if back > 0 {
			m.all[name] = member
		}
	}
}
