package timingwheel

import "math"

const (
	pageShift = 9
	pageSize  = 1 << pageShift // slots of one page of the slab
	pageMask  = pageSize - 1
	maxPages  = 1 << (29 - pageShift) // 2^29 timers: their entries have positions even where chunks are sparse
	maxGen    = math.MaxUint32
)

// planBit marks in node.deadline a timer that belongs to a plan: a claim keeps its slot, so that one
// handle serves every run. Deadlines are never negative, so the sign is free.
const planBit = math.MinInt64

// Positions below chunkSize lie in chunk 0, which is never handed out; two of them have a meaning, the others
// are those of the nursery.
const (
	posNone    = 0 // a free slot, or a plan whose run is under way
	posRerun   = 1 // a plan whose run is under way and whose next run Reschedule has moved
	posNursery = 2
	posInvalid = chunkSize
)

// node is what the wheel knows of one timer. It has no pointer, so that the garbage collector never
// looks at it, and 16 bytes, so that four of them share a cache line. Its payload stands in a parallel
// page of the typed part of the shard.
type node struct {
	deadline int64  // ns on the wheel's clock; the sign is planBit
	gen      uint32 // generation of the slot: a handle is good while it carries the same one
	pos      uint32 // where the timer's entry stands: chunk<<chunkShift | offset
}

func (n *node) due() int64 { return n.deadline & math.MaxInt64 }

// slab hands out nodes by index. Pages are added without copying and given back once empty; the
// lowest page with room is filled first, so that what survives a spike gathers in few pages.
//
// A slot that is freed while none is kept aside is, and is handed out first: arm-and-stop and stop-and-arm then
// need no look at the pager.
type slab struct {
	pages  []*[pageSize]node
	aside  uint32   // 1 + the slot kept aside, which the pager counts as used; 0: none
	floors []uint32 // generation at which a page's next incarnation starts
	pager
}

// at returns slot i, or nil where its page does not exist.
func (sl *slab) at(i uint32) *node {
	p := i >> pageShift
	if int(p) >= len(sl.pages) || sl.pages[p] == nil {
		return nil
	}
	return &sl.pages[p][i&pageMask]
}

// must is at for an index that is known to be in use.
//
// Here and wherever else a page is indexed, it is held against nil first, which it never is: else the compiler
// does so by reading the page's first line, and that is one more cache miss at a random slot.
func (sl *slab) must(i uint32) *node {
	pg := sl.pages[i>>pageShift]
	if pg == nil {
		return nil
	}
	return &pg[i&pageMask]
}

// open takes in pg, which is empty, as page p. Slots of a successor page start at the highest generation of its predecessor,
// which no handle ever carried.
func (sl *slab) open(p int, pg *[pageSize]node) {
	if p == len(sl.pages) {
		sl.pages = append(sl.pages, pg)
		sl.floors = append(sl.floors, 0)
	} else {
		sl.pages[p] = pg
	}
	if floor := sl.floors[p]; floor > 0 {
		for i := range pg {
			pg[i].gen = floor
		}
	}
	sl.pager.open(p, pageSize)
}

// close gives page p back to the runtime. A page with an exhausted slot is never made again.
func (sl *slab) close(p int) {
	floor := sl.floors[p]
	for i := range sl.pages[p] {
		floor = max(floor, sl.pages[p][i].gen)
	}
	sl.floors[p] = floor
	sl.pages[p] = nil
	sl.pager.close(p, floor == maxGen)
}

// retire ends the life of the slot's current handle. It reports whether the slot may be used again:
// a slot whose generations are exhausted may not.
func (n *node) retire() bool {
	n.pos = posNone
	n.gen++
	return n.gen != maxGen
}
