package timingwheel

import "math/bits"

// cascade is the expired buckets whose timers move to finer wheels. Those of the finest level go first: they
// hold what is due soonest, and little. A large bucket of a coarse level, which begins early and may take
// seconds, is put aside for each of them.
//
// Every eighth turn is that of the bucket that has expired first, whatever its level: under more load than the
// shard can bear there is always one of a finer level, and the coarse ones would wait for ever.
type cascade struct {
	levels [maxLevels]bucketList
	used   uint32 // bit l: levels[l] is not empty
	turn   uint32
}

const fairTurn = 8

func (c *cascade) any() bool { return c.used != 0 }

func (c *cascade) push(b *bucket) {
	b.state = bucketCascading
	c.levels[b.level].push(b)
	c.used |= 1 << b.level
}

// next is the bucket whose turn it is. There is one.
func (c *cascade) next() *bucket {
	c.turn++
	b := c.levels[bits.TrailingZeros32(c.used)].head
	if c.turn%fairTurn != 0 {
		return b
	}
	for l := b.level + 1; c.used>>l != 0; l++ {
		if o := c.levels[l].head; o != nil && o.at < b.at {
			b = o
		}
	}
	return b
}

// remove takes out a bucket that next has returned.
func (c *cascade) remove(b *bucket) {
	l := &c.levels[b.level]
	l.pop()
	if l.head == nil {
		c.used &^= 1 << b.level
	}
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
	b := s.cascade.next()
	if b.live == 0 {
		s.cascade.remove(b)
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
