package timingwheel

import "math/bits"

// Where a bucket stands.
const (
	bucketQueued    = iota // in its slot and in the queue of buckets
	bucketCascading        // expired; its timers move to finer wheels
	bucketDue              // expired; its timers wait to be claimed
	bucketHeld             // a worker's lot
	bucketFresh            // Manual: its timers became due since the last Advance began, and wait for the next
)

// bucket is the timers of one slot: an unrolled list of node indices. A bucket that expires leaves its
// slot as a whole, in O(1); timers that are armed for the same slot afterwards go to a new one. So a
// bucket carries its own expiration, and flushing it needs no lock against adders of the next lap.
type bucket struct {
	at         int64 // expiration in ticks
	key        int64 // at, or earlier where moving the timers will take a while: orders the queue
	horizon    int64 // bucketDue: ns; timers due later than this were postponed meanwhile
	live       int   // pending timers, and tombstones
	id         uint32
	head, tail uint32 // chunks
	slot       uint32
	level      int32
	heapIndex  int32
	state      uint8
	flush      bool    // bucketDue: run whatever the deadline says
	next       *bucket // in a bucketList
}

// before orders the queue of buckets: of two that expire together the coarser goes first, so that in Manual
// mode its timers reach the finer one before that is taken.
func (b *bucket) before(o *bucket) bool {
	return b.key < o.key || b.key == o.key && b.level > o.level
}

func (b *bucket) setHeapIndex(i int) { b.heapIndex = int32(i) }

// bucketList is a list of expired buckets: first in, first out, but for those that are put back.
type bucketList struct{ head, tail *bucket }

func (l *bucketList) push(b *bucket) {
	b.next = nil
	if l.tail == nil {
		l.head = b
	} else {
		l.tail.next = b
	}
	l.tail = b
}

func (l *bucketList) pushFront(b *bucket) {
	b.next = l.head
	l.head = b
	if l.tail == nil {
		l.tail = b
	}
}

func (l *bucketList) pop() *bucket {
	b := l.head
	l.head = b.next
	if l.head == nil {
		l.tail = nil
	}
	b.next = nil
	return b
}

// each calls yield for each bucket until that returns false, which it then returns as well.
func (l *bucketList) each(yield func(*bucket) bool) bool {
	for b := l.head; b != nil; b = b.next {
		if !yield(b) {
			return false
		}
	}
	return true
}

// bucketStore keeps the buckets of a shard, their chunks and the nodes that the chunks' entries name.
type bucketStore struct {
	nodes  slab
	chunks chunks
	all    []*bucket // by id; those not in use are in spare
	spare  []*bucket
}

func (bs *bucketStore) newBucket() *bucket {
	if n := len(bs.spare); n > 0 {
		b := bs.spare[n-1]
		bs.spare = bs.spare[:n-1]
		*b = bucket{id: b.id, heapIndex: -1}
		return b
	}
	b := &bucket{id: uint32(len(bs.all)), heapIndex: -1}
	bs.all = append(bs.all, b)
	return b
}

// freeBucket takes back a bucket without living entries.
func (bs *bucketStore) freeBucket(b *bucket) {
	for c := b.head; c != 0; {
		next := bs.chunks.meta(c).next
		bs.chunks.free(c)
		c = next
	}
	b.head, b.tail = 0, 0
	bs.spare = append(bs.spare, b)
}

// append puts node n with index i at the end of b. O(1).
func (bs *bucketStore) append(b *bucket, i uint32, n *node) {
	c := b.tail
	m, entries := bs.chunks.both(c)
	if c == 0 || m.full() {
		c = bs.addChunk(b)
		m, entries = bs.chunks.both(c)
	}
	off := uint32(bits.Len32(m.alive)) & chunkMask
	m.alive |= 1 << off
	entries[off] = i
	n.pos = c<<chunkShift | off
	b.live++
}

// shifts reports whether the next append to b, which has a chunk, will move entries to make room.
func (bs *bucketStore) shifts(b *bucket) bool {
	m := bs.chunks.meta(b.tail)
	return m.full() && m.count() <= mergeMax
}

// addChunk makes room behind b's last entry: in the last chunk where dead entries take it, else in a
// new one.
func (bs *bucketStore) addChunk(b *bucket) uint32 {
	if c := b.tail; c != 0 && bs.shifts(b) {
		m, to := bs.chunks.both(c)
		m.alive = ones(bs.shift(to, c, 0, to, m.alive))
		return c
	}
	c, m := bs.chunks.alloc(b.id)
	m.prev = b.tail
	if b.tail == 0 {
		b.head = c
	} else {
		bs.chunks.meta(b.tail).next = c
	}
	b.tail = c
	return c
}

// remove takes the entry at pos out of its bucket, which it returns. Worst case O(chunkSize): a chunk
// is merged with a neighbour once both are sparse. A merge ends a chunk, and a chunk begins with
// chunkSize appends or as a bucket's last one, so merging costs each timer O(1) amortised, and no list
// is ever compacted as a whole.
func (bs *bucketStore) remove(pos uint32) *bucket {
	c := pos >> chunkShift
	m := bs.chunks.meta(c)
	b := bs.unmark(m, pos)
	if m.sparse() {
		bs.thin(b, c, m)
	}
	return b
}

// unmark clears the bit of the entry at pos, in its chunk m, and returns its bucket.
func (bs *bucketStore) unmark(m *chunkMeta, pos uint32) *bucket {
	m.alive &^= 1 << (pos & chunkMask)
	b := bs.all[m.owner]
	b.live--
	return b
}

// thin looks after a chunk that has become sparse and has a neighbour.
func (bs *bucketStore) thin(b *bucket, c uint32, m *chunkMeta) {
	switch {
	case m.alive == 0:
		prev := m.prev
		bs.unlink(b, c, m)
		if prev != 0 { // tombstones may have emptied it in one go, and its neighbours are sparse already
			bs.thinNew(b, prev)
		}
	case m.next != 0 && m.count()+bs.chunks.meta(m.next).count() <= mergeMax:
		bs.merge(b, c, m)
	case m.prev != 0 && m.count()+bs.chunks.meta(m.prev).count() <= mergeMax:
		bs.merge(b, m.prev, bs.chunks.meta(m.prev))
	}
}

// unlink takes chunk c out of b's list and frees it.
func (bs *bucketStore) unlink(b *bucket, c uint32, m *chunkMeta) {
	if m.prev == 0 {
		b.head = m.next
	} else {
		bs.chunks.meta(m.prev).next = m.next
	}
	if m.next == 0 {
		b.tail = m.prev
	} else {
		bs.chunks.meta(m.next).prev = m.prev
	}
	bs.chunks.free(c)
}

// merge moves the living entries of the chunk behind c into c, keeping their order.
func (bs *bucketStore) merge(b *bucket, c uint32, m *chunkMeta) {
	d := m.next
	dm := bs.chunks.meta(d)
	to := bs.chunks.entries(c)
	n := bs.shift(to, c, 0, to, m.alive)
	n = bs.shift(to, c, n, bs.chunks.entries(d), dm.alive)
	m.alive = ones(n)
	bs.unlink(b, d, dm)
	bs.thinNew(b, c)
}

// thinNew looks after a chunk that has a new neighbour.
func (bs *bucketStore) thinNew(b *bucket, c uint32) {
	if m := bs.chunks.meta(c); m.prev|m.next != 0 && m.count() <= mergeMax/2 {
		bs.thin(b, c, m)
	}
}

// ones is a bitmap of the first n entries.
func ones(n uint32) uint32 { return uint32(uint64(1)<<n - 1) }

// shift writes the entries of from that alive names into to (chunk c), from offset n on.
func (bs *bucketStore) shift(to *[chunkSize]uint32, c, n uint32, from *[chunkSize]uint32, alive uint32) uint32 {
	for ; alive != 0; alive &= alive - 1 {
		i := from[bits.TrailingZeros32(alive)]
		to[n] = i
		bs.nodes.must(i).pos = c<<chunkShift | n
		n++
	}
	return n
}

// first returns the position and the node index of b's first entry. b.live > 0.
func (bs *bucketStore) first(b *bucket) (pos, i uint32) {
	c := b.head
	off := uint32(bits.TrailingZeros32(bs.chunks.meta(c).alive))
	return c<<chunkShift | off, bs.chunks.entries(c)[off]
}

// take removes the entry at pos, which is b's first. O(1).
func (bs *bucketStore) take(b *bucket, pos uint32) {
	c := pos >> chunkShift
	m := bs.chunks.meta(c)
	m.alive &^= 1 << (pos & chunkMask)
	b.live--
	if m.alive == 0 {
		bs.unlink(b, c, m)
	}
}

// drainChunk takes b's first chunk out of its list and returns the node indices of its entries in
// order. Their nodes keep a position that is no longer valid, so the caller places them at once.
func (bs *bucketStore) drainChunk(b *bucket, to *[chunkSize]uint32) int {
	c := b.head
	m := bs.chunks.meta(c)
	from := bs.chunks.entries(c)
	n := 0
	for alive := m.alive; alive != 0; alive &= alive - 1 {
		to[n] = from[bits.TrailingZeros32(alive)]
		n++
	}
	m.alive = 0
	b.live -= n
	bs.unlink(b, c, m)
	return n
}
