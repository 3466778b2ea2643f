package timingwheel

import "unsafe"

// pick chooses the shard for a new timer and locks it. The choice is a hash of the caller's stack
// address: a goroutine keeps to one shard, whose lines stay in its processor's cache, and two
// goroutines rarely meet. Where they do, or where a driver is at work, the next shard is as good.
//
// Measured against it (docs/design.md): a random shard costs two processors the gain of the second, as
// all lines are shared; a hint from a sync.Pool costs a fifth of an arm-and-stop.
func (e *engine[T]) pick() *shardOf[T] {
	if len(e.shards) == 1 {
		s := e.shards[0]
		s.lock()
		return s
	}
	var mark byte
	h := uint64(uintptr(unsafe.Pointer(&mark))>>10) * 0x9E3779B97F4A7C15
	i := (h >> 32) * uint64(len(e.shards)) >> 32
	s := e.shards[i]
	if s.mu.TryLock() {
		return s
	}
	if i++; i == uint64(len(e.shards)) {
		i = 0
	}
	s = e.shards[i]
	s.lock()
	return s
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
}
