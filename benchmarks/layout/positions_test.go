package layout

import "math/bits"

// mergeMax is how many entries two neighbouring chunks may hold together to be merged.
const mergeMax = 24

// positions is an unrolled list of slots for each bucket, in the wheel's own form: a node knows where
// its entry stands, and a bitmap beside the chunk says which entries are alive. A stop clears one bit,
// and merges the chunk with a neighbour where both are sparse.
type positions struct {
	slab
	chunks[uint32]
	buckets [numBuckets]unrolledBucket
}

func (l *positions) add(deadline int64, f func()) handle {
	i, n := l.take()
	n.deadline = deadline
	*l.payload(i) = f
	l.append(coarse(deadline), i, n)
	return handle{i, n.gen}
}

func (m *chunkMeta) living() int { return bits.OnesCount32(m.used) }

func (l *positions) append(id, i uint32, n *node) {
	b := &l.buckets[id]
	c := b.tail
	if c == none || l.meta(c).used>>chunkMask != 0 {
		c = l.room(b, id)
	}
	m := l.meta(c)
	off := uint32(bits.Len32(m.used)) & chunkMask
	m.used |= 1 << off
	l.entries(c)[off] = i
	n.where = c<<chunkShift | off
	b.alive++
}

// room makes room behind the last entry: in the last chunk where dead entries take it, else in a new
// one.
func (l *positions) room(b *unrolledBucket, id uint32) uint32 {
	if c := b.tail; c != none && l.meta(c).living() <= mergeMax {
		m := l.meta(c)
		m.used = ones(l.shift(c, 0, c, m.used))
		return c
	}
	return l.extend(b, id)
}

// shift writes the entries of chunk from that alive names into chunk to, from offset n on.
func (l *positions) shift(to, n, from, alive uint32) uint32 {
	dst, src := l.entries(to), l.entries(from)
	for ; alive != 0; alive &= alive - 1 {
		i := src[bits.TrailingZeros32(alive)&chunkMask]
		dst[n&chunkMask] = i
		l.node(i).where = to<<chunkShift | n
		n++
	}
	return n
}

// ones is a bitmap of the first n entries.
func ones(n uint32) uint32 { return uint32(uint64(1)<<n - 1) }

func (l *positions) stop(h handle) bool {
	n := l.node(h.index)
	if n.gen != h.gen {
		return false
	}
	c, off := n.where>>chunkShift, n.where&chunkMask
	l.release(h.index, n)
	m := l.meta(c)
	b := &l.buckets[m.owner]
	m.used &^= 1 << off
	b.alive--
	if m.prev|m.next != none && m.living() <= mergeMax/2 {
		l.thin(b, c, m)
	}
	return true
}

// thin looks after a chunk that has become sparse and has a neighbour.
func (l *positions) thin(b *unrolledBucket, c uint32, m *chunkMeta) {
	switch {
	case m.used == 0:
		l.unlink(b, c)
	case m.next != none && m.living()+l.meta(m.next).living() <= mergeMax:
		l.merge(b, c)
	case m.prev != none && m.living()+l.meta(m.prev).living() <= mergeMax:
		l.merge(b, m.prev)
	}
}

// merge moves the living entries of the chunk behind c into c, keeping their order.
func (l *positions) merge(b *unrolledBucket, c uint32) {
	m := l.meta(c)
	d := m.next
	n := l.shift(c, 0, c, m.used)
	m.used = ones(l.shift(c, n, d, l.meta(d).used))
	l.unlink(b, d)
}

func (l *positions) cascade(id uint32) {
	b := &l.buckets[id]
	var moved, to [chunkSize]uint32
	for c := b.head; c != none; c = b.head {
		k := pick(&moved, l.entries(c), l.meta(c).used)
		l.unlink(b, c) // its memory is used again at once
		for j, i := range moved[:k] {
			to[j] = fine(l.node(i).deadline) // apart from placing, so that the cache misses overlap
		}
		for j, i := range moved[:k] {
			l.append(to[j], i, l.node(i))
		}
	}
	b.alive = 0
}

func (l *positions) expire(id uint32, batch *[batchSize]func()) int {
	b := &l.buckets[id]
	var due [chunkSize]uint32
	n := 0
	for c := b.head; c != none && n <= batchSize-chunkSize; c = b.head {
		k := pick(&due, l.entries(c), l.meta(c).used)
		l.unlink(b, c)
		for _, i := range due[:k] {
			batch[n] = l.release(i, l.node(i))
			n++
		}
	}
	b.alive -= n
	return n
}

func (l *positions) live(id uint32) int { return l.buckets[id].alive }

func (l *positions) restore(from list) {
	o := from.(*positions)
	l.pages.restore(&o.pages)
	l.chunks.restore(&o.chunks)
	l.buckets = o.buckets
}
