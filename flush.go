package timingwheel

import "slices"

// flush makes everything that is pending due at once and returns how many timers that is.
func (s *shard) flush() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recallLots()
	n := s.pending
	s.counters.flushed += uint64(n)
	s.flushed = 0
	for _, b := range s.takeAll() {
		b.state, b.flush = bucketDue, true
		s.flushed++
		s.due.push(b)
	}
	s.ready = s.pending
	if !s.driving && !s.manual {
		s.disarm()
	}
	s.kick()
	s.checkLocked()
	return n
}

// removeAll discards what is pending in the shard and returns the payloads. O(pending), under the lock.
func (s *shardOf[T]) removeAll() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recallLots()
	values := make([]T, 0, s.pending)
	var idx [chunkSize]uint32
	for _, b := range s.takeAll() {
		for b.live > 0 {
			for _, i := range idx[:s.drainChunk(b, &idx)] {
				values = append(values, *s.value(i))
				s.release(i, s.nodes.must(i))
			}
		}
		s.freeBucket(b)
	}
	s.counters.stopped += uint64(len(values))
	s.pending, s.ready, s.flushed = 0, 0, 0
	if !s.driving && !s.manual {
		s.disarm()
	}
	s.checkLocked()
	return values
}

// takeAll takes every bucket with pending timers from wherever it stands: those first that are due, or a chain
// of flushes would keep them waiting.
func (s *shard) takeAll() []*bucket {
	s.settleWheel()
	s.prompt = nil
	all := slices.Collect(s.expired)
	s.due, s.fresh, s.cascade = bucketList{}, bucketList{}, cascade{}
	for s.queue.len() > 0 {
		b := s.queue.popMin()
		empty := b.live == 0
		s.unslot(b)
		if !empty {
			all = append(all, b)
		}
	}
	return all
}
