package layout

import "math/bits"

// mergeMax is the largest number of live entries of two neighbouring chunks that are merged.
const mergeMax = 24

// positions is an unrolled list of slots for each bucket, the form that the wheel uses. A node has
// the position of its entry, and a bitmap per chunk marks the live entries. Stopping clears
// one bit, and merges the chunk with a neighbour if both are sparse.
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

func (m *chunkMeta) live() int { return bits.OnesCount32(m.used) }

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
	b.live++
}

// room makes room behind the last entry: in the last chunk if it has enough dead entries, otherwise
// in a new chunk.
func (l *positions) room(b *unrolledBucket, id uint32) uint32 {
	if c := b.tail; c != none && l.meta(c).live() <= mergeMax {
		m := l.meta(c)
		m.used = ones(l.shift(c, 0, c, m.used))
		return c
	}
	return l.extend(b, id)
}

// shift writes the live entries of chunk from into chunk to, from offset n on.
func (l *positions) shift(to, n, from, live uint32) uint32 {
	dst, src := l.entries(to), l.entries(from)
	for ; live != 0; live &= live - 1 {
		i := src[bits.TrailingZeros32(live)&chunkMask]
		dst[n&chunkMask] = i
		l.node(i).where = to<<chunkShift | n
		n++
	}
	return n
}

// ones returns a bitmap of the first n entries.
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
	b.live--
	if m.prev|m.next != none && m.live() <= mergeMax/2 {
		l.mergeSparse(b, c, m)
	}
	return true
}

// mergeSparse merges a sparse chunk with a neighbour if possible, or frees it if it is empty.
func (l *positions) mergeSparse(b *unrolledBucket, c uint32, m *chunkMeta) {
	switch {
	case m.used == 0:
		l.unlink(b, c)
	case m.next != none && m.live()+l.meta(m.next).live() <= mergeMax:
		l.merge(b, c)
	case m.prev != none && m.live()+l.meta(m.prev).live() <= mergeMax:
		l.merge(b, m.prev)
	}
}

// merge moves the live entries of the chunk after c into c, in order.
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
		l.unlink(b, c) // append reuses its memory immediately
		for j, i := range moved[:k] {
			to[j] = fine(l.node(i).deadline) // a loop of its own, so that the cache misses overlap
		}
		for j, i := range moved[:k] {
			l.append(to[j], i, l.node(i))
		}
	}
	b.live = 0
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
	b.live -= n
	return n
}

func (l *positions) live(id uint32) int { return l.buckets[id].live }

func (l *positions) restore(from list) {
	o := from.(*positions)
	l.pages.restore(&o.pages)
	l.chunks.restore(&o.chunks)
	l.buckets = o.buckets
}
