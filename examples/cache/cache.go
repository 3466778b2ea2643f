package main

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/timingwheel-go/timingwheel"
)

// shards is how many locks share the keys.
const shards = 16

// Cache holds values each of which has its own time to live. It holds no more than so many of them,
// and drops the one that was not used for longest where another one comes. Make one with [New]; all
// methods may be called from any goroutine.
//
// Each entry has a timer on a [timingwheel.Timeouts], whose payload is a key and a number: no
// closure for each entry, and one call for many that expire together. The timers give memory back
// in time; they are not what makes an entry expire. That is its deadline, to which Get looks, so it
// never returns a value that is too old, however late a busy machine runs the timers.
type Cache[K comparable, V any] struct {
	timeouts *timingwheel.Timeouts[lease[K]]
	seed     maphash.Seed
	shards   [shards]shard[K, V]
	onEnd    func(K, V, Reason)
}

// Reason is how an entry has ended.
type Reason int

// The reasons. Each value that was set ends with exactly one of them, or is in the cache still.
const (
	Replaced Reason = iota // by another value of its key
	Deleted
	Evicted // to make room
	Expired
	Reasons // how many there are
)

// lease is the payload of a timer: an entry at one stage of its life. A key alone would not do: a
// timer that has been claimed cannot be stopped any more, and might find another entry of its key.
type lease[K comparable] struct {
	key    K
	number uint64
}

type entry[K comparable, V any] struct {
	value    V
	deadline time.Time
	number   uint64 // of its lease
	timer    timingwheel.Timer
}

type shard[K comparable, V any] struct {
	mu      sync.Mutex
	entries *simplelru.LRU[K, *entry[K, V]]
	size    int    // how many entries it may hold
	most    int    // how many it held at once since the map was made
	numbers uint64 // the last lease's number
}

// New returns an empty cache for about size values, but for one for each shard at least, which is
// rounded up to a multiple of the number of shards. onEnd is called for each value that leaves the
// cache, without a lock; it may be nil. The cache needs a Close.
func New[K comparable, V any](size int, onEnd func(K, V, Reason)) (*Cache[K, V], error) {
	c := &Cache[K, V]{seed: maphash.MakeSeed(), onEnd: onEnd}
	for i := range c.shards {
		c.shards[i].size = max((size+shards-1)/shards, 1)
		c.shards[i].entries = newEntries[K, V](c.shards[i].size)
	}
	var err error
	c.timeouts, err = timingwheel.NewTimeouts(timingwheel.Options{}, c.expire)
	return c, err
}

func newEntries[K comparable, V any](size int) *simplelru.LRU[K, *entry[K, V]] {
	l, err := simplelru.NewLRU[K, *entry[K, V]](size, nil)
	if err != nil {
		panic(err) // for a size that is not positive
	}
	return l
}

func (c *Cache[K, V]) shard(key K) *shard[K, V] {
	return &c.shards[maphash.Comparable(c.seed, key)%shards]
}

// Set stores a value for ttl, in the place of the key's value if there is one. Where ttl is not
// positive the value expires at once: it is not stored, and the key has no value afterwards.
func (c *Cache[K, V]) Set(key K, value V, ttl time.Duration) {
	s := c.shard(key)
	s.mu.Lock()
	now := c.timeouts.Now() // with the lock held, so that what is set later expires later, if the ttl is the same
	var ended []ending[K, V]
	if ttl <= 0 {
		if old, ok := s.remove(key); ok {
			ended = append(ended, old.end(key, Replaced, now))
		}
		ended = append(ended, ending[K, V]{key, value, Expired})
	} else {
		ended = c.put(s, key, value, now, ttl)
	}
	s.mu.Unlock()
	c.report(ended)
}

// put stores a value. s.mu is held.
func (c *Cache[K, V]) put(s *shard[K, V], key K, value V, now time.Time, ttl time.Duration) (ended []ending[K, V]) {
	deadline := now.Add(ttl)
	if e, ok := s.entries.Get(key); ok {
		ended = append(ended, e.end(key, Replaced, now))
		e.value, e.deadline = value, deadline
		// The commonest case, and the cheapest: a timer that is moved to later stays where it is,
		// and allocates nothing.
		if !e.timer.RescheduleAt(deadline) {
			c.arm(s, key, e) // it has been claimed, and waits for the lock; it will find another number
		}
		return ended
	}
	if s.entries.Len() == s.size {
		oldest, e, _ := s.entries.RemoveOldest()
		e.timer.Stop()
		ended = append(ended, e.end(oldest, Evicted, now))
	}
	e := &entry[K, V]{value: value, deadline: deadline}
	s.entries.Add(key, e)
	s.most = max(s.most, s.entries.Len())
	c.arm(s, key, e)
	return ended
}

// arm gives the entry a lease and a timer. s.mu is held: a timer that is due at once waits for it.
func (c *Cache[K, V]) arm(s *shard[K, V], key K, e *entry[K, V]) {
	s.numbers++
	e.number = s.numbers
	e.timer = c.timeouts.AddAt(e.deadline, lease[K]{key, e.number})
}

// Get returns the value of the key, and false where it has none or it has expired.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries.Get(key)
	if !ok || !c.timeouts.Now().Before(e.deadline) {
		return value, false // the timer is on its way
	}
	return e.value, true
}

// Delete removes the key's value. It returns false where there was none, or it had expired.
func (c *Cache[K, V]) Delete(key K) bool {
	s := c.shard(key)
	s.mu.Lock()
	e, ok := s.entries.Peek(key)
	if !ok || !c.timeouts.Now().Before(e.deadline) {
		s.mu.Unlock()
		return false
	}
	s.remove(key)
	s.mu.Unlock()
	c.report([]ending[K, V]{{key, e.value, Deleted}})
	return true
}

// remove takes an entry out. s.mu is held.
func (s *shard[K, V]) remove(key K) (*entry[K, V], bool) {
	e, ok := s.entries.Peek(key)
	if !ok {
		return nil, false
	}
	e.timer.Stop()
	s.entries.Remove(key)
	s.shrink()
	return e, true
}

// shrink makes a new map where the old one has become empty: a map of Go never gives back what it
// once needed. s.mu is held.
func (s *shard[K, V]) shrink() {
	if s.entries.Len() == 0 && s.most > 64 {
		s.entries, s.most = newEntries[K, V](s.size), 0
	}
}

// expire is called with what has expired.
func (c *Cache[K, V]) expire(expired []lease[K]) {
	ended := make([]ending[K, V], 0, len(expired))
	for _, l := range expired {
		s := c.shard(l.key)
		s.mu.Lock()
		// Since it was claimed the entry may have been replaced, deleted or evicted.
		if e, ok := s.entries.Peek(l.key); ok && e.number == l.number {
			ended = append(ended, ending[K, V]{l.key, e.value, Expired})
			s.remove(l.key)
		}
		s.mu.Unlock()
	}
	c.report(ended)
}

type ending[K comparable, V any] struct {
	key    K
	value  V
	reason Reason
}

// end says how an entry has ended that is about to end for a reason: if its deadline has passed it
// had expired before that.
func (e *entry[K, V]) end(key K, r Reason, now time.Time) ending[K, V] {
	if !now.Before(e.deadline) {
		r = Expired
	}
	return ending[K, V]{key, e.value, r}
}

func (c *Cache[K, V]) report(ended []ending[K, V]) {
	if c.onEnd == nil {
		return
	}
	for _, e := range ended {
		c.onEnd(e.key, e.value, e.reason)
	}
}

// Len returns how many entries there are, those included whose timers are on their way.
func (c *Cache[K, V]) Len() int {
	n := 0
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		n += s.entries.Len()
		s.mu.Unlock()
	}
	return n
}

// Pending returns how many timers there are: as many as entries, but for those that are on their
// way.
func (c *Cache[K, V]) Pending() int { return c.timeouts.Len() }

// Close ends the timers and waits for calls of onEnd that they make; onEnd must not call it.
// Entries still expire for Get, but keep their memory.
func (c *Cache[K, V]) Close() {
	_ = c.timeouts.Shutdown(context.Background()) // whose context does not end, and so it has no error
}
