package timingwheel

import (
	"unsafe"

	"go.uber.org/atomic"
)

const (
	routeBits = 10
	crowd     = 64 // so many calls that had to wait for a shard make those who arm on it go to the next one
)

// routes say which shard a goroutine arms its timers on. A goroutine is known by a hash of its stack's address,
// and keeps to one shard, whose lines stay in its processor's cache. It goes to the next one, and keeps to that,
//
//   - where it meets another goroutine, or a driver, that holds the lock: two that have met rarely meet again;
//   - where others have had to wait for the shard: a goroutine that arms the timers of all connections would
//     have them all in one shard, and those that reset and stop them would meet there.
//
// Measured against it (docs/design.md): a random shard costs two processors the gain of the second, as
// all lines are shared; a hint from a sync.Pool costs a fifth of an arm-and-stop.
type routes [1 << routeBits]atomic.Uint32

func newRoutes(shards int) *routes {
	r := new(routes)
	for i := range r {
		r[i].Store(uint32(i % shards))
	}
	return r
}

// pick chooses the shard for a new timer and locks it.
func (e *engine[T]) pick() *shardOf[T] {
	if len(e.shards) == 1 {
		s := e.shards[0]
		s.lock()
		return s
	}
	var mark byte
	h := uint64(uintptr(unsafe.Pointer(&mark))>>10) * 0x9E3779B97F4A7C15
	r := &e.routes[h>>(64-routeBits)]
	i := r.Load()
	s := e.shards[i]
	if s.mu.TryLock() {
		if s.crowded >= crowd {
			s.crowded = 0
			r.Store(e.neighbour(i))
		}
		return s
	}
	i = e.neighbour(i)
	r.Store(i)
	s = e.shards[i]
	s.lock()
	return s
}

// neighbour is the shard behind shard i.
func (e *engine[T]) neighbour(i uint32) uint32 {
	if i++; i == uint32(len(e.shards)) {
		return 0
	}
	return i
}

// lock takes mu and, where that has to wait, says so: drivers then let go of it early.
func (s *shard) lock() {
	if !s.mu.TryLock() {
		s.lockSlow()
	}
}

func (s *shard) lockSlow() {
	s.waiting.Inc()
	s.mu.Lock()
	s.waiting.Dec()
	s.crowded++
}
