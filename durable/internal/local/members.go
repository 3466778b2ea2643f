// Package local is what the stores share whose consumers are all in one process: members, hints, their
// clock in instants, and a heap.
package local

import (
	"slices"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Members are the consumers of a queue that have given a sign of life. The zero value is ready.
type Members struct {
	mu   sync.Mutex
	ends map[string]driver.Instant // until when each one counts
	last driver.Instant            // of the last call
}

// Beat enters a member for another ttl, or removes it if ttl is 0 or less, and returns all that are
// there, sorted. If the clock was set back since the last call, all members move with it: a member
// whose process is gone would otherwise stay for as long as the step. Beat is O(m log m) for m members.
func (m *Members) Beat(now time.Time, member string, ttl time.Duration) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ends == nil {
		m.ends = make(map[string]driver.Instant)
	}
	if back := m.last - Floor(now); back > 0 {
		for name := range m.ends {
			m.ends[name] -= back
		}
	}
	m.last = Floor(now)
	delete(m.ends, member)
	if ttl > 0 {
		m.ends[member] = After(now, ttl)
	}
	present := make([]string, 0, len(m.ends))
	for name, end := range m.ends {
		if end <= Floor(now) {
			delete(m.ends, name)
			continue
		}
		present = append(present, name)
	}
	slices.Sort(present)
	return present
}
