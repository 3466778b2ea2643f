package local

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/transition"
)

// Shared holds what outlives a [State]: the clock, and the members and watchers of queues.
type Shared struct {
	Name     string           // package of the store, for errors
	Now      func() time.Time // the store's clock
	Groups   bool             // the Runner groups calls: see [contract.Grouper]
	Snapshot bool             // no queue is created

	queues sync.Map // *presence by name
}

// presence holds the members of a queue and the watchers of its hints.
type presence struct {
	members
	hints
}

func (s *Shared) of(name string) *presence {
	p, _ := s.queues.LoadOrStore(name, &presence{
		members: members{all: make(map[string]driver.Member)},
		hints:   hints{watchers: make(map[chan driver.Hint]struct{})},
	})
	return p.(*presence)
}

// members are the consumers of a queue with their last heartbeats.
type members struct {
	all  map[string]driver.Member
	mu   sync.Mutex
	last driver.Instant // time of the last call
}

// beat adds a member for another ttl, or removes it if ttl <= 0. It returns all members, sorted by
// name. It is O(m log m) for m members.
func (m *members) beat(now time.Time, member driver.Member, ttl time.Duration) []driver.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(transition.Floor(now))
	delete(m.all, member.Name)
	if ttl > 0 {
		member.Seen, member.Until = transition.Floor(now), transition.After(now, ttl)
		member.Partitions = slices.Clone(member.Partitions)
		m.all[member.Name] = member
	}
	all := slices.SortedFunc(maps.Values(m.all), func(a, b driver.Member) int { return cmp.Compare(a.Name, b.Name) })
	for i := range all {
		all[i].Partitions = slices.Clone(all[i].Partitions)
	}
	return all
}

// advance removes expired members. If the clock was set back since the last call, advance moves the
// times of all members back by the same amount. Otherwise a member whose process is gone would
// remain for that amount of time.
func (m *members) advance(now driver.Instant) {
	back := max(0, m.last-now)
	m.last = now
	for name, member := range m.all {
		member.Seen -= back
		member.Until -= back
		m.all[name] = member
		if member.Until <= now {
			delete(m.all, name)
		}
	}
}

// hintBuffer is the number of hints that are buffered for each watcher.
const hintBuffer = 256

// hints sends hints to all watchers of a queue. Callers may hold their own locks.
type hints struct {
	watchers map[chan driver.Hint]struct{}
	mu       sync.Mutex
}

// watch adds a watcher. When ctx ends, it removes the watcher and closes the channel.
func (h *hints) watch(ctx context.Context) <-chan driver.Hint {
	c := make(chan driver.Hint, hintBuffer)
	h.mu.Lock()
	h.watchers[c] = struct{}{}
	h.mu.Unlock()
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, c)
		close(c) // under the lock, so that send no longer uses c
	})
	return c
}

// send sends a hint to each watcher. It never blocks: a watcher with a full buffer loses the hint.
func (h *hints) send(hint driver.Hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.watchers {
		select {
		case c <- hint:
		default:
		}
	}
}
