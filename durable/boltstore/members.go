package boltstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
)

// members are the consumers of a queue that have given a sign of life. They are all in this process. The zero value is ready.
type members struct {
	mu   sync.Mutex
	ends map[string]durable.Instant // until when each one counts
}

// beat enters a member for another ttl, or takes it out where that is 0 or less, and returns all that are there.
func (m *members) beat(now time.Time, member string, ttl time.Duration) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ends == nil {
		m.ends = make(map[string]durable.Instant)
	}
	delete(m.ends, member)
	if ttl > 0 {
		m.ends[member] = after(now, ttl)
	}
	present := make([]string, 0, len(m.ends))
	for name, end := range m.ends {
		if end <= floor(now) {
			delete(m.ends, name)
			continue
		}
		present = append(present, name)
	}
	slices.Sort(present)
	return present
}

// hints hands hints to all watchers of a queue. Its lock is taken under that of a partition. The zero value is ready.
type hints struct {
	mu       sync.Mutex
	watchers map[chan durable.Hint]struct{}
}

// hintBuffer is the number of hints that wait for a watcher.
const hintBuffer = 256

// watch makes a watcher, which ends with ctx.
func (h *hints) watch(ctx context.Context) <-chan durable.Hint {
	c := make(chan durable.Hint, hintBuffer)
	h.mu.Lock()
	if h.watchers == nil {
		h.watchers = make(map[chan durable.Hint]struct{})
	}
	h.watchers[c] = struct{}{}
	h.mu.Unlock()
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, c)
		close(c) // under the lock, so nobody sends any more
	})
	return c
}

// send never blocks: a watcher that does not keep up loses the hint.
func (h *hints) send(hint durable.Hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.watchers {
		select {
		case c <- hint:
		default:
		}
	}
}

// stop ends the hints of a store that is closed. The channels are closed when their contexts end, as for any watcher.
func (h *hints) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers = nil
}
