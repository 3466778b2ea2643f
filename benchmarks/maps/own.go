package maps

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/timingwheel-go/timingwheel"
)

// syncStore is a sync.Map. A sync.Map has no Compute, so each entry is an object with a lock. The
// goroutine that creates an entry holds its lock until the timer is armed.
type syncStore[K key] struct {
	m sync.Map
	n atomic.Int64
}

type syncEntry struct {
	mu      sync.Mutex
	timer   timingwheel.Timer
	deleted bool
}

func newSyncMap[K key]() store[K] { return &syncStore[K]{} }

func (s *syncStore[K]) find(k K) (timingwheel.Timer, bool) {
	v, ok := s.m.Load(k)
	if !ok {
		return timingwheel.Timer{}, false
	}
	e := v.(*syncEntry)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.timer, !e.deleted
}

func (s *syncStore[K]) insert(k K, arm func() timingwheel.Timer) bool {
	fresh := &syncEntry{}
	fresh.mu.Lock()
	defer fresh.mu.Unlock()
	for {
		v, present := s.m.LoadOrStore(k, fresh)
		if !present {
			fresh.timer = arm()
			s.n.Add(1)
			return true
		}
		if e := v.(*syncEntry); e.replace(arm) {
			return false
		}
	}
}

// replace sets the timer of the entry, and reports whether it did: the entry may be deleted.
func (e *syncEntry) replace(arm func() timingwheel.Timer) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.deleted {
		return false
	}
	e.timer = arm()
	return true
}

func (s *syncStore[K]) remove(k K) (timingwheel.Timer, bool) {
	v, present := s.m.LoadAndDelete(k)
	if !present {
		return timingwheel.Timer{}, false
	}
	e := v.(*syncEntry)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deleted = true
	s.n.Add(-1)
	return e.timer, true
}

func (s *syncStore[K]) sweep(k K) bool {
	v, present := s.m.Load(k)
	if !present {
		return false
	}
	e := v.(*syncEntry)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.deleted || pending(e.timer) || !s.m.CompareAndDelete(k, v) {
		return false
	}
	e.deleted = true
	s.n.Add(-1)
	return true
}

func (s *syncStore[K]) size() int { return int(s.n.Load()) }

// sharded is 64 Go maps, each with a lock: a solution without a library.
type sharded[K key] struct {
	seed   maphash.Seed
	shards [64]lockedMap[K]
}

type lockedMap[K key] struct {
	mu sync.Mutex
	m  map[K]timingwheel.Timer
	_  [64 - 16]byte // own cache line
}

func newSharded[K key]() store[K] {
	s := &sharded[K]{seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].m = map[K]timingwheel.Timer{}
	}
	return s
}

func (s *sharded[K]) lock(k K) *lockedMap[K] {
	l := &s.shards[maphash.Comparable(s.seed, k)%uint64(len(s.shards))]
	l.mu.Lock()
	return l
}

func (s *sharded[K]) find(k K) (timingwheel.Timer, bool) {
	l := s.lock(k)
	t, ok := l.m[k]
	l.mu.Unlock()
	return t, ok
}

func (s *sharded[K]) insert(k K, arm func() timingwheel.Timer) bool {
	l := s.lock(k)
	_, present := l.m[k]
	l.m[k] = arm()
	l.mu.Unlock()
	return !present
}

func (s *sharded[K]) remove(k K) (timingwheel.Timer, bool) {
	l := s.lock(k)
	t, ok := l.m[k]
	delete(l.m, k)
	l.mu.Unlock()
	return t, ok
}

func (s *sharded[K]) sweep(k K) bool {
	l := s.lock(k)
	t, ok := l.m[k]
	ok = ok && !pending(t)
	if ok {
		delete(l.m, k)
	}
	l.mu.Unlock()
	return ok
}

func (s *sharded[K]) size() int {
	n := 0
	for i := range s.shards {
		s.shards[i].mu.Lock()
		n += len(s.shards[i].m)
		s.shards[i].mu.Unlock()
	}
	return n
}
