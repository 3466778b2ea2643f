package timingwheel

import "fmt"

// heapItem is an element of a minHeap. It knows its order and remembers its place.
type heapItem[E any] interface {
	// before reports whether the element leaves the heap ahead of other: a strict weak order.
	before(other E) bool
	// setHeapIndex is told the element's index whenever it changes; -1 once it is out.
	setHeapIndex(i int)
}

// heapFloor is the capacity up to which a minHeap never gives its backing array back.
const heapFloor = 64

// minHeap is a binary min-heap whose elements know their index, so that any of them can be moved or
// removed in O(log n). It is the queue of [DelayQueue] and each shard's queue of buckets. The zero value
// is an empty heap.
//
// Invariants, whenever no method is running:
//
//	H1  !items[i].before(items[(i-1)/2])      for 0 < i < len(items)
//	H2  the index last told to items[i] is i; the one last told to any other element is -1
//	H3  items[len(items):cap(items)] are zero values, so what has left is not kept alive
//	H4  cap(items) <= max(heapFloor, 4*len(items)+3) after a removal, so a spike's memory is returned
//
// container/heap was not used: it passes each element through an interface value and has no place for
// H3 and H4. Sifting moves a hole instead of swapping pairs, which tells each displaced element its index
// once.
type minHeap[E heapItem[E]] struct{ items []E }

// len returns the number of elements. O(1).
func (h *minHeap[E]) len() int { return len(h.items) }

// min returns the element that leaves next, and whether there is one. O(1).
func (h *minHeap[E]) min() (e E, ok bool) {
	if len(h.items) == 0 {
		return e, false
	}
	return h.items[0], true
}

// push adds e, which must not be in a heap. O(log n).
func (h *minHeap[E]) push(e E) {
	h.items = append(h.items, e)
	h.up(len(h.items)-1, e)
}

// popMin removes the element that leaves next and returns it. O(log n). It panics if the heap is empty.
func (h *minHeap[E]) popMin() E { return h.remove(0) }

// remove takes out the element at index i and returns it. O(log n). It panics if there is none.
func (h *minHeap[E]) remove(i int) E {
	e := h.items[i]
	last := len(h.items) - 1
	filler := h.items[last]
	var zero E
	h.items[last] = zero
	h.items = h.items[:last]
	if i < last {
		h.settle(i, filler)
	}
	e.setHeapIndex(-1)
	h.shrink()
	return e
}

// fix restores the order after the element at index i has changed its place in it. O(log n).
func (h *minHeap[E]) fix(i int) { h.settle(i, h.items[i]) }

// settle puts e into the hole at index i, or where the order wants it. O(log n).
func (h *minHeap[E]) settle(i int, e E) {
	if i > 0 && e.before(h.items[(i-1)/2]) {
		h.up(i, e)
	} else {
		h.down(i, e)
	}
}

// up moves the hole at index i towards the root until e fits.
func (h *minHeap[E]) up(i int, e E) {
	items := h.items
	for i > 0 {
		parent := (i - 1) / 2
		p := items[parent]
		if !e.before(p) {
			break
		}
		items[i] = p
		p.setHeapIndex(i)
		i = parent
	}
	items[i] = e
	e.setHeapIndex(i)
}

// down moves the hole at index i towards the leaves until e fits.
func (h *minHeap[E]) down(i int, e E) {
	items := h.items
	for {
		child := 2*i + 1
		if child >= len(items) {
			break
		}
		if right := child + 1; right < len(items) && items[right].before(items[child]) {
			child = right
		}
		c := items[child]
		if !c.before(e) {
			break
		}
		items[i] = c
		c.setHeapIndex(i)
		i = child
	}
	items[i] = e
	e.setHeapIndex(i)
}

// shrink halves the backing array once less than a quarter of it is used. The next halving is then at
// least cap/8 removals away and the next growth cap/4 insertions, so it costs O(1) amortised.
func (h *minHeap[E]) shrink() {
	c := cap(h.items)
	if c <= heapFloor || len(h.items) >= c/4 {
		return
	}
	items := make([]E, len(h.items), c/2)
	copy(items, h.items)
	h.items = items
}

// verify checks H1 and H2; indexOf returns the index that an element was last told. O(n).
func (h *minHeap[E]) verify(indexOf func(E) int) error {
	for i, e := range h.items {
		if parent := (i - 1) / 2; i > 0 && e.before(h.items[parent]) {
			return fmt.Errorf("H1: item %d goes before its parent %d", i, parent)
		}
		if got := indexOf(e); got != i {
			return fmt.Errorf("H2: item %d believes that its index is %d", i, got)
		}
	}
	return nil
}
