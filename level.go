package timingwheel

import (
	"math"
	"math/bits"
)

// divider divides non-negative int64 by a constant with one multiplication.
//
// Source: Granlund and Montgomery, "Division by invariant integers using multiplication", 1994,
// for 63-bit dividends: with l = ceil(log2 d) and m = ceil(2^(63+l) / d), x/d = x*m >> (63+l).
type divider struct {
	d     int64
	m     uint64
	shift uint8 // l-1: bits.Mul64 has already shifted by 64
}

// newDivider prepares the division by d > 1.
func newDivider(d int64) divider {
	l := bits.Len64(uint64(d - 1))
	hi, lo := uint64(1)<<(l-1), uint64(0) // 2^(63+l) as 128 bits
	q, r := bits.Div64(hi%uint64(d), lo, uint64(d))
	if r != 0 {
		q++
	}
	return divider{d: d, m: q, shift: uint8(l - 1)}
}

func (v *divider) floor(x int64) int64 {
	hi, _ := bits.Mul64(uint64(x), v.m)
	return int64(hi >> v.shift)
}

// ceil rounds up: the first tick that is not before x.
func (v *divider) ceil(x int64) int64 {
	if x == 0 {
		return 0
	}
	return v.floor(x-1) + 1
}

// times is the product with x, for ticks their beginning in ns; it saturates.
func (v *divider) times(x int64) int64 {
	hi, lo := bits.Mul64(uint64(x), uint64(v.d))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// level is one wheel of the hierarchy: a ring of slots, each for one of its intervals.
type level struct {
	slots []*bucket // made when the level is first needed
}

// place puts a timer into the bucket that the clock will reach at its tick or, on coarser levels, at
// the start of the interval that holds its tick. O(levels).
//
// Level l counts intervals of size^l ticks and has room for the size intervals that begin with the
// current one. The first level with room takes the timer; the last takes whatever is left, and there a
// slot holds timers of several rounds.
func (s *shard) place(i uint32, n *node, tick int64) {
	if tick-s.cur >= s.size && s.now >= s.curEnds {
		s.catchUp()
	}
	tick = max(tick, s.cur)
	l, shift, width := 0, uint(0), s.bits&63
	for l < s.last && tick>>(shift&63)-s.cur>>(shift&63) >= s.size {
		l++
		shift += width
	}
	shift &= 63
	if s.levels[l].slots == nil {
		s.levels[l].slots = make([]*bucket, s.size)
	}
	v := tick >> shift
	slot := v & (s.size - 1)
	b := s.levels[l].slots[slot]
	if s.tombs.n > 0 && b != nil && s.shifts(b) {
		s.settleTombs() // may free b and, where it empties the earliest bucket, move the clock
		s.place(i, n, tick)
		return
	}
	switch at := v << shift; {
	case b == nil:
		b = s.openBucket(l, uint32(slot), at)
	case b.live == 0:
		s.hollow--
		if at != b.at {
			s.retime(b, at)
		}
	case at < b.at:
		s.retime(b, at)
	}
	s.append(b, i, n)
	if b.live&(b.live-1) == 0 && b.live >= earlyMin && l > 0 {
		s.beginEarly(b)
	}
}

const (
	earlyMin  = 1024 // a bucket with fewer timers is moved in no time
	earlyCost = 256  // ns: an upper bound of moving one timer, twice, as a bucket may double until it is told again
)

// beginEarly lets the driver begin to move the timers of a large coarse bucket before it expires, so that
// none of those due at its beginning waits for the others. What the finer level has no room for yet
// goes back to the slot; that is due much later, and so is moved at the expiration itself.
func (s *shard) beginEarly(b *bucket) {
	early := min(int64(b.live)*earlyCost/s.ticks.d, int64(1)<<(uint(b.level)*s.bits)/4)
	if key := b.at - early; key < b.key && key > s.cur && !s.manual {
		b.key = key
		s.queue.fix(int(b.heapIndex))
		s.sooner(b)
	}
}

// openBucket makes the bucket of an empty slot and queues it.
func (s *shard) openBucket(l int, slot uint32, at int64) *bucket {
	b := s.newBucket()
	b.at, b.key, b.level, b.slot = at, at, int32(l), slot
	s.levels[l].slots[slot] = b
	s.queue.push(b)
	s.sooner(b)
	return b
}

// retime changes the expiration of a queued bucket. Only the last level needs it, when a timer of an
// earlier round joins a slot, and for a bucket that all its timers have left.
func (s *shard) retime(b *bucket, at int64) {
	b.at, b.key = at, at
	s.queue.fix(int(b.heapIndex))
	s.sooner(b)
}

// unslot takes a bucket that has left the queue out of its slot, and frees it if it is empty.
func (s *shard) unslot(b *bucket) {
	s.levels[b.level].slots[b.slot] = nil
	if b.live == 0 {
		s.hollow--
		s.freeBucket(b)
	}
}

// catchUp brings an idle wheel's clock up to now: a stale one would put a short timer into a coarse
// bucket. The clock never passes a bucket whose timers have not been taken.
func (s *shard) catchUp() {
	tick := s.ticks.floor(s.now)
	if tick <= s.cur {
		return
	}
	for {
		top, ok := s.queue.min()
		if !ok || top.key > tick {
			break
		}
		if top.live > 0 {
			tick = max(top.key, s.cur)
			break
		}
		s.queue.popMin()
		s.unslot(top)
	}
	s.moveTo(tick)
}

// moveTo sets the clock.
func (s *shard) moveTo(tick int64) { s.cur, s.curEnds = tick, s.ticks.times(tick+1) }

// dropEmptyTop frees the earliest buckets as far as all their timers were stopped.
func (s *shard) dropEmptyTop() {
	for {
		top, ok := s.queue.min()
		if !ok || top.live > 0 {
			return
		}
		s.queue.popMin()
		s.unslot(top)
	}
}

// hollowMax is the number of empty buckets that may stay queued whatever the number of others.
const hollowMax = 64

// emptied is told that a queued bucket has lost its last timer. The bucket stays where it is, because
// under arm-and-stop the next timer follows at once; it is freed when it comes to the head of the
// queue or when empty buckets outnumber the others.
func (s *shard) emptied(b *bucket) {
	s.hollow++
	s.relieve(b.heapIndex == 0)
}

// relieve is called when queued buckets have lost their last timers. first says whether the earliest is among
// them.
func (s *shard) relieve(first bool) {
	if s.pending == 0 || first && int64(s.counters.armed) >= s.relaxAt {
		s.relax()
	}
	if s.hollow > hollowMax && s.hollow > s.queue.len()/2 {
		s.sweep()
	}
}

// sweep frees all empty buckets of the queue. O(buckets), paid for by the emptying of half of them.
func (s *shard) sweep() {
	for i := s.queue.len() - 1; i >= 0; i-- {
		for i < s.queue.len() && s.queue.items[i].live == 0 {
			s.unslot(s.queue.remove(i)) // puts another one at i, which may have come from above: look again
		}
	}
}
