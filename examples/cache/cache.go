package main

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/timingwheel-go/timingwheel"
)

// shards is the number of locks that share the keys.
const shards = 16

// Cache holds values with a time to live for each. Its size is bounded: a new entry evicts the
// least recently used one. Create a Cache with [New]. All methods are safe for concurrent use.
//
// Each entry has a timer on a [timingwheel.Timeouts]. The payload of the timer is a key and a
// number, so an entry needs no closure, and one call reports many expired entries. The timers only
// free memory. Get checks the deadline of the entry, so it never returns an expired value, even if
// a busy machine runs the timers late.
type Cache[K comparable, V any] struct {
	timeouts *timingwheel.Timeouts[version[K]]
	seed     maphash.Seed
	shards   [shards]shard[K, V]
	onEnd    func(K, V, Reason)
}

// Reason is why a value left the cache.
type Reason int

// Each value ends with exactly one of these reasons, unless it is still in the cache.
const (
	Replaced Reason = iota // by another value of its key
	Deleted
	Evicted // to make room
	Expired
	Reasons // number of reasons
)

// version is the payload of a timer. A key alone is not enough: a claimed timer cannot be stopped,
// and may find a newer entry of the same key.
type version[K comparable] struct {
	key    K
	number uint64
}

type entry[K comparable, V any] struct {
	value    V
	deadline time.Time
	number   uint64 // of the version
	timer    timingwheel.Timer
}

type shard[K comparable, V any] struct {
	mu      sync.Mutex
	entries *simplelru.LRU[K, *entry[K, V]]
	size    int    // largest number of entries
	most    int    // largest number of entries since the map was made
	numbers uint64 // number of the last version
}

// New returns an empty cache for size values, rounded up to a multiple of the number of shards. The
// cache calls onEnd for each value that leaves it, without holding a lock. onEnd may be nil. The
// caller must call Close.
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
		panic(err) // only for a size that is not positive
	}
	return l
}

func (c *Cache[K, V]) shard(key K) *shard[K, V] {
	return &c.shards[maphash.Comparable(c.seed, key)%shards]
}

// Set stores a value for ttl and replaces the previous value of the key. If ttl is not positive the
// value expires immediately: it is not stored, and the key has no value afterwards.
func (c *Cache[K, V]) Set(key K, value V, ttl time.Duration) {
	s := c.shard(key)
	s.mu.Lock()
	// With the lock: if two values have one ttl, the later one then expires later.
	now := c.timeouts.Now()
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

// put stores a value. The caller holds s.mu.
func (c *Cache[K, V]) put(s *shard[K, V], key K, value V, now time.Time, ttl time.Duration) (ended []ending[K, V]) {
	deadline := now.Add(ttl)
	if e, ok := s.entries.Get(key); ok {
		ended = append(ended, e.end(key, Replaced, now))
		e.value, e.deadline = value, deadline
		// The most frequent and cheapest case: postponing a timer does not move it and does not
		// allocate.
		if !e.timer.RescheduleAt(deadline) {
			// expire has claimed the timer and waits for the lock; it will find another number.
			c.arm(s, key, e)
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

// arm gives the entry a new version and a timer. The caller holds s.mu, so expire waits even if the
// timer is already due.
func (c *Cache[K, V]) arm(s *shard[K, V], key K, e *entry[K, V]) {
	s.numbers++
	e.number = s.numbers
	e.timer = c.timeouts.AddAt(e.deadline, version[K]{key, e.number})
}

// Get returns the value of the key. It returns false if there is none, or if the value has expired.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries.Get(key)
	if !ok || !c.timeouts.Now().Before(e.deadline) {
		return value, false // the timer is about to fire
	}
	return e.value, true
}

// Delete removes the value of the key. It reports whether there was one that had not expired.
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

// remove deletes an entry and stops its timer. The caller holds s.mu.
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

// shrink replaces a large map that has become empty, because a Go map never shrinks. The caller
// holds s.mu.
func (s *shard[K, V]) shrink() {
	if s.entries.Len() == 0 && s.most > 64 {
		s.entries, s.most = newEntries[K, V](s.size), 0
	}
}

// expire is the callback of the timers.
func (c *Cache[K, V]) expire(expired []version[K]) {
	ended := make([]ending[K, V], 0, len(expired))
	for _, l := range expired {
		s := c.shard(l.key)
		s.mu.Lock()
		// The entry may have been replaced, deleted or evicted after the claim.
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

// end returns how an entry ends that is removed for reason r. If its deadline has passed, it had
// already expired.
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

// Len returns the number of entries, including expired ones whose timers have not fired yet.
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

// Pending returns the number of pending timers. It is Len without the entries whose timers are
// firing.
func (c *Cache[K, V]) Pending() int { return c.timeouts.Len() }

// Close stops the timers and waits for their calls to onEnd. onEnd must not call Close. Afterwards
// entries still expire for Get, but their memory is not freed.
func (c *Cache[K, V]) Close() {
	_ = c.timeouts.Shutdown(context.Background()) // no error: the context is never done
}
