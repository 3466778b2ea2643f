package layout

// A bucket is compacted if its dead entries outnumber the live ones by more than compactMargin.
const compactMargin = 64

// entries is an unrolled list of handles per bucket. Stopping increments the generation of the
// slot and leaves a dead entry behind, so it writes to no chunk. In return only the node says
// whether an entry is live, and a bucket with many dead entries is compacted.
type entries struct {
	slab
	chunks[handle]
	buckets [numBuckets]unrolledBucket
}

func (l *entries) add(deadline int64, f func()) handle {
	i, n := l.take()
	n.deadline = deadline
	*l.payload(i) = f
	h := handle{i, n.gen}
	l.append(coarse(deadline), h, n)
	return h
}

func (l *entries) append(id uint32, h handle, n *node) {
	b := &l.buckets[id]
	c := b.tail
	if c == none || l.meta(c).used == chunkSize {
		c = l.extend(b, id)
	}
	m := l.meta(c)
	l.chunks.entries(c)[m.used&chunkMask] = h
	m.used++
	n.where = id
	b.live++
}

func (l *entries) stop(h handle) bool {
	n := l.node(h.index)
	if n.gen != h.gen {
		return false
	}
	b := &l.buckets[n.where]
	l.release(h.index, n)
	b.live--
	m := l.meta(b.tail)
	if l.chunks.entries(b.tail)[(m.used-1)&chunkMask] == h {
		if m.used--; m.used == 0 {
			l.unlink(b, b.tail)
		}
		return true
	}
	if b.dead++; b.dead > b.live+compactMargin {
		l.compact(b)
	}
	return true
}

// liveEntries returns a bitmap of the live entries of a chunk. It has no branch that depends on a
// node, so the cache misses of all nodes overlap.
func (l *entries) liveEntries(c uint32) uint32 {
	live := uint32(0)
	for k, h := range l.chunks.entries(c)[:l.meta(c).used] {
		bit := uint32(0)
		if l.node(h.index).gen == h.gen {
			bit = 1
		}
		live |= bit << (k & chunkMask)
	}
	return live
}

// compact moves the live entries to the front of the list and frees the remaining chunks.
func (l *entries) compact(b *unrolledBucket) {
	to, n := b.head, uint32(0)
	var moved [chunkSize]handle
	for c := b.head; c != none; c = l.meta(c).next {
		k := pick(&moved, l.chunks.entries(c), l.liveEntries(c))
		for _, h := range moved[:k] {
			if n == chunkSize {
				l.meta(to).used = n
				to, n = l.meta(to).next, 0
			}
			l.chunks.entries(to)[n&chunkMask] = h
			n++
		}
	}
	l.meta(to).used = n
	for b.tail != to {
		l.unlink(b, b.tail)
	}
	if n == 0 {
		l.unlink(b, to)
	}
	b.dead = 0
}

func (l *entries) cascade(id uint32) {
	b := &l.buckets[id]
	var moved [chunkSize]handle
	for c := b.head; c != none; c = b.head {
		k := pick(&moved, l.chunks.entries(c), l.liveEntries(c))
		l.unlink(b, c) // append reuses its memory immediately
		for _, h := range moved[:k] {
			n := l.node(h.index)
			l.append(fine(n.deadline), h, n)
		}
	}
	*b = unrolledBucket{}
}

func (l *entries) expire(id uint32, batch *[batchSize]func()) int {
	b := &l.buckets[id]
	var due [chunkSize]handle
	n := 0
	for c := b.head; c != none && n <= batchSize-chunkSize; c = b.head {
		k := pick(&due, l.chunks.entries(c), l.liveEntries(c))
		b.dead -= int(l.meta(c).used) - k
		l.unlink(b, c)
		for _, h := range due[:k] {
			batch[n] = l.release(h.index, l.node(h.index))
			n++
		}
	}
	b.live -= n
	return n
}

func (l *entries) live(id uint32) int { return l.buckets[id].live }

func (l *entries) restore(from list) {
	o := from.(*entries)
	l.pages.restore(&o.pages)
	l.chunks.restore(&o.chunks)
	l.buckets = o.buckets
}
