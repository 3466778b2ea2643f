package timingwheel

import (
	"math/bits"
	"time"
)

// overdue is for how long, at now in ns, an expired timer has waited to be claimed. It looks at the first chunk of each
// queue in which expired timers wait, and of the first bucket on the wheel, in case nobody takes that off. What has
// expired first is there, unless whole chunks of postponed timers stand before it.
func (s *shard) overdue(now int64) time.Duration {
	first := min(now, s.earliest(s.firstDue()), s.earliest(s.cascade.levels[0].head))
	s.dropEmptyTop()
	for _, l := range s.lots {
		first = min(first, s.earliest(l.b))
	}
	if top, ok := s.queue.min(); ok && top.at <= s.ticks.floor(now) { // until then nothing of it has expired
		first = min(first, s.earliest(top))
	}
	return time.Duration(now - first)
}

// earliest is the first deadline in the first chunk of a bucket, never where there is none.
func (s *shard) earliest(b *bucket) int64 {
	first := int64(never)
	if b == nil || b.live == 0 {
		return first
	}
	entries := s.chunks.entries(b.head)
	for alive := s.chunks.meta(b.head).alive; alive != 0; alive &= alive - 1 {
		first = min(first, s.nodes.must(entries[bits.TrailingZeros32(alive)]).due())
	}
	return first
}
