package timingwheel

import "math/bits"

// cascade is the expired buckets whose timers move to finer wheels. Those of the finest level go first: they
// hold what is due soonest, and little. A large bucket of a coarse level, which begins early and may take
// seconds, is put aside for each of them.
type cascade struct {
	levels [maxLevels]bucketList
	used   uint32 // bit l: levels[l] is not empty
}

func (c *cascade) any() bool { return c.used != 0 }

func (c *cascade) push(b *bucket) {
	b.state = bucketCascading
	c.levels[b.level].push(b)
	c.used |= 1 << b.level
}

// first is the bucket whose turn it is. There is one.
func (c *cascade) first() *bucket { return c.levels[bits.TrailingZeros32(c.used)].head }

// pop takes the first bucket out.
func (c *cascade) pop() *bucket {
	l := bits.TrailingZeros32(c.used)
	b := c.levels[l].pop()
	if c.levels[l].head == nil {
		c.used &^= 1 << l
	}
	return b
}

// expired iterates over the buckets that have left their slots, but for those of lots.
func (s *shard) expired(yield func(*bucket) bool) {
	more := s.due.each(yield) && s.fresh.each(yield)
	for l := 0; more && s.cascade.used>>l != 0; l++ {
		more = s.cascade.levels[l].each(yield)
	}
}

// someExpired reports whether timers have left their slots and have not been claimed.
func (s *shard) someExpired() bool {
	for b := range s.expired {
		if b.live > 0 {
			return true
		}
	}
	return false
}

// move moves a quantum of the timers of expired buckets.
func (s *shard) move() {
	for steps := 0; steps < quantum && s.cascade.any(); {
		steps += s.cascadeChunk()
	}
}

// cascadeChunk moves the timers of one chunk of an expired bucket to where they belong now, and returns
// the number of steps it took.
func (s *shard) cascadeChunk() int {
	b := s.cascade.first()
	if b.live == 0 {
		s.cascade.pop()
		s.freeBucket(b)
		return 1
	}
	var idx [chunkSize]uint32
	var due [chunkSize]int64
	n := s.drainChunk(b, &idx)
	for k, i := range idx[:n] { // a loop of its own, so that the cache misses overlap
		due[k] = s.nodes.must(i).due()
	}
	for k, i := range idx[:n] {
		s.put(i, s.nodes.must(i), due[k])
	}
	if b.level > 0 {
		s.counters.moved += uint64(n)
	}
	return max(n, 1)
}
