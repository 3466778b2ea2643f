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
	where    uint32 // entries: the bucket; positions: the position; of a free slot: the one freed before
}

// slab is what both unrolled lists do with slots.
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

// release ends the life of a handle and returns the payload.
func (s *slab) release(i uint32, n *node) func() {
	p := s.payload(i)
	f := *p
	*p = nil
	n.gen++
	n.where, s.free = s.free, i
	return f
}

// chunkMeta describes a chunk. It stands apart from the chunk's entries.
type chunkMeta struct {
	prev, next uint32 // neighbours in the bucket's list; next of a free chunk: the one freed before
	owner      uint32 // the bucket
	used       uint32 // entries: how many are in use; positions: a bitmap of those alive
}

type chunkPage[E any] struct {
	entries [chunkPageSize][chunkSize]E
}

type metaPage [chunkPageSize]chunkMeta

// chunks is the store of the chunks of all buckets. They are reused last in, first out.
type chunks[E any] struct {
	data  []*chunkPage[E]
	metas []*metaPage
	count uint32 // chunks that were ever handed out, and chunk none
	spare uint32 // the chunk freed last
}

type unrolledBucket struct {
	head, tail uint32 // chunks
	alive      int
	dead       int // entries: those that a stop has left behind
}

func (cs *chunks[E]) meta(c uint32) *chunkMeta {
	return &cs.metas[c>>chunkPageShift][c&chunkPageMask]
}

func (cs *chunks[E]) entries(c uint32) *[chunkSize]E {
	return &cs.data[c>>chunkPageShift].entries[c&chunkPageMask]
}

// extend puts an empty chunk at the end of the bucket's list.
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

// unlink takes a chunk out of the bucket's list and frees it.
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

// pick writes the entries of a chunk that alive names to the front of to, and returns how many. Walking
// a bitmap and looking at nodes are loops apart: without GOAMD64=v3 the index of the lowest bit is BSF,
// which waits for whatever its register held before, and if that came from a node no two cache misses
// overlap. In one loop a cascade of a million positions took 165 ns for each timer instead of 43.
func pick[E any](to, from *[chunkSize]E, alive uint32) int {
	k := 0
	for ; alive != 0; alive &= alive - 1 {
		to[k&chunkMask] = from[bits.TrailingZeros32(alive)&chunkMask]
		k++
	}
	return k
}

func (cs *chunks[E]) restore(from *chunks[E]) {
	cs.data = copyPages(cs.data, from.data)
	cs.metas = copyPages(cs.metas, from.metas)
	cs.count, cs.spare = from.count, from.spare
}
