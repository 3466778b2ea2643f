package timingwheel

import "math/bits"

// nursery keeps the timers that were armed last. Most timeouts are stopped soon after they were armed, and
// one that is stopped here has never seen the wheel: no division by the tick, no bucket, no queue. What is
// still here when the nursery is full, or when anybody wants to know what stands on the wheel, is placed.
//
// A timer may stay only as long as nobody has to look at it: while it is due after the next alarm, at which
// the driver places it (Manual: until the next Advance). So it needs no alarm of its own.
//
// An entry has a position like one of a bucket, in chunk 0, which no bucket ever gets. The first two of its
// positions mean something else; so the first two bits of alive are always set.
type nursery struct {
	alive   uint32 // bit k: entry k is the entry of a pending timer
	closed  uint32 // so many timers more are placed at once
	entries [chunkSize]uint32
}

const (
	nurseryEmpty = 1<<posNursery - 1

	// A nursery that fills up with at least so many timers alive is of no use, and stays closed for a while.
	nurseryVain  = 24
	nurseryPause = 16 * chunkSize
)

// enter takes in a timer that is armed or moved by the user: the nursery has it, or else put.
func (s *shard) enter(i uint32, n *node, deadline int64) {
	if deadline <= s.quiet || deadline <= s.now || s.young.closed > 0 {
		s.young.closed = max(s.young.closed, 1) - 1
		s.put(i, n, deadline)
		return
	}
	k := uint32(bits.Len32(s.young.alive))
	if k == chunkSize {
		vain := bits.OnesCount32(s.young.alive&^nurseryEmpty) >= nurseryVain
		s.settleYoung()
		if vain {
			s.young.closed = nurseryPause
		}
		if vain || deadline <= s.quiet { // settling tombstones may have put off the alarm
			s.put(i, n, deadline)
			return
		}
		k = posNursery
	}
	s.young.alive |= 1 << k
	s.young.entries[k&chunkMask] = i
	n.pos = k
}

// leave takes a timer out of the nursery.
func (s *shard) leave(n *node) { s.young.alive &^= 1 << n.pos }

// settleYoung puts the timers of the nursery where they belong.
func (s *shard) settleYoung() {
	alive := s.young.alive &^ nurseryEmpty
	s.young.alive = nurseryEmpty
	for ; alive != 0; alive &= alive - 1 {
		i := s.young.entries[bits.TrailingZeros32(alive)]
		s.route(i, s.nodes.must(i))
	}
}
