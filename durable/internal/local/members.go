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
}

// Beat enters a member for another ttl, or takes it out where that is 0 or less, and returns all that are there.
func (m *Members) Beat(now time.Time, member string, ttl time.Duration) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ends == nil {
		m.ends = make(map[string]driver.Instant)
	}
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
