package layout

import "math/bits"

const (
	chunkShift     = 5
	chunkSize      = 1 << chunkShift // entries of one chunk
	chunkMask      = chunkSize - 1
	chunkPageShift = 6
	chunkPageSize  = 1 << chunkPageShift // chunks of one page
	chunkPageMask  = chunkPageSize - 1
)

// node is a timer of an unrolled list.
type node struct {
	deadline int64
	gen      uint32
	where    uint32 // entries: bucket; positions: position; free slot: the slot freed before it
}

// slab manages the slots of both unrolled lists.
type slab struct{ pages[node] }

func (s *slab) take() (uint32, *node) {
	if s.free == none {
		i := s.fresh()
		return i, s.node(i)
	}
	i := s.free
	n := s.node(i)
	s.free = n.where
	return i, n
}

// release makes the handle stale and returns the payload.
func (s *slab) release(i uint32, n *node) func() {
	p := s.payload(i)
	f := *p
	*p = nil
	n.gen++
	n.where, s.free = s.free, i
	return f
}

// chunkMeta describes a chunk. It is separate from the entries.
type chunkMeta struct {
	prev, next uint32 // chunks of the bucket; next of a free chunk: the one freed before it
	owner      uint32 // bucket
	used       uint32 // entries: number of entries in use; positions: bitmap of live entries
}

type chunkPage[E any] struct {
	entries [chunkPageSize][chunkSize]E
}

type metaPage [chunkPageSize]chunkMeta

// chunks holds the chunks of all buckets. Chunks are reused last in, first out.
type chunks[E any] struct {
	data  []*chunkPage[E]
	metas []*metaPage
	count uint32 // number of chunks that were ever used, including chunk none
	spare uint32 // most recently freed chunk
}

type unrolledBucket struct {
	head, tail uint32 // chunks
	live       int
	dead       int // entries: number of dead entries
}

func (cs *chunks[E]) meta(c uint32) *chunkMeta {
	return &cs.metas[c>>chunkPageShift][c&chunkPageMask]
}

func (cs *chunks[E]) entries(c uint32) *[chunkSize]E {
	return &cs.data[c>>chunkPageShift].entries[c&chunkPageMask]
}

// extend appends an empty chunk to the list of the bucket.
func (cs *chunks[E]) extend(b *unrolledBucket, owner uint32) uint32 {
	c := cs.spare
	if c == none {
		c = cs.freshChunk()
	} else {
		cs.spare = cs.meta(c).next
	}
	*cs.meta(c) = chunkMeta{prev: b.tail, owner: owner}
	if b.tail == none {
		b.head = c
	} else {
		cs.meta(b.tail).next = c
	}
	b.tail = c
	return c
}

func (cs *chunks[E]) freshChunk() uint32 {
	cs.count = max(cs.count, none+1)
	if int(cs.count>>chunkPageShift) == len(cs.data) {
		cs.data = append(cs.data, new(chunkPage[E]))
		cs.metas = append(cs.metas, new(metaPage))
	}
	cs.count++
	return cs.count - 1
}

// unlink removes a chunk from the list of the bucket and frees it.
func (cs *chunks[E]) unlink(b *unrolledBucket, c uint32) {
	m := cs.meta(c)
	if m.prev == none {
		b.head = m.next
	} else {
		cs.meta(m.prev).next = m.next
	}
	if m.next == none {
		b.tail = m.prev
	} else {
		cs.meta(m.next).prev = m.prev
	}
	m.next, cs.spare = cs.spare, c
}

// pick copies the live entries of a chunk to the front of to and returns their number. The bitmap
// and the nodes are read in separate loops. Without GOAMD64=v3 the index of the lowest bit is a
// BSF, which depends on the previous value of its register. If that value came from a node, cache
// misses do not overlap. With a single loop a cascade of a million positions took 165 ns for each
// timer instead of 43.
func pick[E any](to, from *[chunkSize]E, live uint32) int {
	k := 0
	for ; live != 0; live &= live - 1 {
		to[k&chunkMask] = from[bits.TrailingZeros32(live)&chunkMask]
		k++
	}
	return k
}

func (cs *chunks[E]) restore(from *chunks[E]) {
	cs.data = copyPages(cs.data, from.data)
	cs.metas = copyPages(cs.metas, from.metas)
	cs.count, cs.spare = from.count, from.spare
}
