package timingwheel

import (
	"math"
	"math/bits"
)

const (
	chunkShift     = 5
	chunkSize      = 1 << chunkShift // entries of one chunk
	chunkMask      = chunkSize - 1
	chunkPageShift = 6
	chunkPageSize  = 1 << chunkPageShift // chunks of one page
	chunkPageMask  = chunkPageSize - 1

	// Two neighbours are merged when together they hold at most mergeMax entries. The room that is
	// left keeps a chunk from being merged and split again at every other operation.
	mergeMax = 24

	noBucket = math.MaxUint32 // the id of none
)

// chunkMeta describes one chunk of a bucket's unrolled list. Bit k of alive says that entry k is the
// entry of a pending timer, or a tombstone for a while; entries above the highest such bit are free. So an entry dies by one bit,
// nobody has to look at its node to know, and a dead end of the list is reused at once. The
// descriptions stand apart from the entries: a stop needs the former only.
type chunkMeta struct {
	prev, next uint32 // neighbours in the bucket's list; 0: none
	owner      uint32 // id of the bucket; noBucket: the chunk is free
	alive      uint32
}

func (m *chunkMeta) count() int { return bits.OnesCount32(m.alive) }

// full reports whether there is no room behind the last entry.
func (m *chunkMeta) full() bool { return m.alive>>chunkMask != 0 }

// sparse reports whether a removal has left the chunk sparse, so that thin is called for. The neighbours'
// descriptions are cache misses, so a sparse chunk looks at them at every fourth removal only. At mergeMax/2 it
// does: of two neighbours that have become sparse the second one sees the first.
func (m *chunkMeta) sparse() bool {
	n := m.count()
	return n <= mergeMax/2 && n&3 == 0 && m.prev|m.next != 0
}

// chunkPage is a page of chunks. It is one object, since a collection has to look at each.
type chunkPage struct {
	entries [chunkPageSize][chunkSize]uint32 // indices of nodes
	meta    [chunkPageSize]chunkMeta
}

// chunks is the store of all chunks of a shard. Chunk 0 does not exist.
type chunks struct {
	pages []*chunkPage
	pager
}

func (cs *chunks) meta(c uint32) *chunkMeta {
	pg := cs.pages[c>>chunkPageShift]
	if pg == nil { // never, see slab.must
		return nil
	}
	return &pg.meta[c&chunkPageMask]
}

func (cs *chunks) entries(c uint32) *[chunkSize]uint32 {
	pg := cs.pages[c>>chunkPageShift]
	if pg == nil {
		return nil
	}
	return &pg.entries[c&chunkPageMask]
}

// both is meta and entries with one look at the page. c may be 0.
func (cs *chunks) both(c uint32) (*chunkMeta, *[chunkSize]uint32) {
	p := c >> chunkPageShift
	if int(p) >= len(cs.pages) || cs.pages[p] == nil {
		return nil, nil
	}
	pg := cs.pages[p]
	return &pg.meta[c&chunkPageMask], &pg.entries[c&chunkPageMask]
}

// alloc returns an empty chunk that belongs to the bucket with id owner.
func (cs *chunks) alloc(owner uint32) (uint32, *chunkMeta) {
	page, slot, ok := cs.take()
	if !ok {
		cs.open(cs.next())
		page, slot, _ = cs.take()
	}
	c := uint32(page)<<chunkPageShift | slot
	m := cs.meta(c)
	*m = chunkMeta{owner: owner}
	return c, m
}

func (cs *chunks) open(p int) {
	pg := new(chunkPage)
	if p == len(cs.pages) {
		cs.pages = append(cs.pages, pg)
	} else {
		cs.pages[p] = pg
	}
	cs.pager.open(p, chunkPageSize)
	if p == 0 {
		cs.take() // chunk 0: its positions are posNone and its like
	}
}

func (cs *chunks) free(c uint32) {
	cs.meta(c).owner = noBucket
	p := int(c >> chunkPageShift)
	if cs.put(p, c&chunkPageMask, true) {
		cs.pages[p] = nil
		cs.close(p, false)
	}
}
