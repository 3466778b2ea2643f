package timingwheel

import "unsafe"

// pick chooses the shard for a new timer: by a hash of the caller's stack address, so that a goroutine
// keeps to one shard, whose lines stay in its processor's cache, and two goroutines rarely share one.
func (e *engine[T]) pick() *shardOf[T] {
	if len(e.shards) == 1 {
		return e.shards[0]
	}
	var mark byte
	h := uint64(uintptr(unsafe.Pointer(&mark))>>10) * 0x9E3779B97F4A7C15
	return e.shards[(h>>32)*uint64(len(e.shards))>>32]
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
