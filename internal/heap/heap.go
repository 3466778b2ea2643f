// Package heap implements a binary min-heap whose elements know their index.
package heap

// Item is an element of a Heap.
type Item[E any] interface {
	// Before reports whether the element leaves the heap before other. It is a strict weak order.
	Before(other E) bool
	// SetHeapIndex is called with the element's index whenever the index changes, and with -1 when
	// the element leaves the heap.
	SetHeapIndex(i int)
}

// minCap is the capacity below which a Heap does not shrink its backing array.
const minCap = 64

// Heap is a binary min-heap whose elements know their index, so that any of them can be moved or
// removed in O(log n). The zero value is an empty heap.
//
// Invariants, while no method is running:
//
//	H1  !items[i].Before(items[(i-1)/2])      for 0 < i < len(items)
//	H2  the last SetHeapIndex of items[i] was i, and that of any removed element was -1
//	H3  items[len(items):cap(items)] are zero values, so removed elements are not kept alive
//	H4  cap(items) <= max(minCap, 4*len(items)+3) after a removal, so a Heap shrinks after a spike
//
// container/heap is not used, because it passes each element through an interface value and cannot
// maintain H3 and H4. Sifting moves a hole instead of swapping pairs, so that SetHeapIndex is
// called once for each displaced element.
type Heap[E Item[E]] struct{ items []E }

// Len returns the number of elements. O(1).
func (h *Heap[E]) Len() int { return len(h.items) }

// Min returns the element that leaves the heap next, and false if the heap is empty. O(1).
func (h *Heap[E]) Min() (e E, ok bool) {
	if len(h.items) == 0 {
		return e, false
	}
	return h.items[0], true
}

// At returns the element at index i, from 0 to Len()-1. Elements are in heap order. O(1).
func (h *Heap[E]) At(i int) E { return h.items[i] }

// Push adds e, which must not be in a heap. O(log n).
func (h *Heap[E]) Push(e E) {
	h.items = append(h.items, e)
	h.up(len(h.items)-1, e)
}

// PopMin removes and returns the element that leaves the heap next. It panics if the heap is empty.
// O(log n).
func (h *Heap[E]) PopMin() E { return h.Remove(0) }

// Remove removes and returns the element at index i. It panics if there is none. O(log n).
func (h *Heap[E]) Remove(i int) E {
	e := h.items[i]
	last := len(h.items) - 1
	filler := h.items[last]
	var zero E
	h.items[last] = zero
	h.items = h.items[:last]
	if i < last {
		h.sift(i, filler)
	}
	e.SetHeapIndex(-1)
	h.shrink()
	return e
}

// Fix restores the order after the key of the element at index i has changed. O(log n).
func (h *Heap[E]) Fix(i int) { h.sift(i, h.items[i]) }

// sift fills the hole at index i with e and restores the order. O(log n).
func (h *Heap[E]) sift(i int, e E) {
	if i > 0 && e.Before(h.items[(i-1)/2]) {
		h.up(i, e)
	} else {
		h.down(i, e)
	}
}

// up moves the hole at index i towards the root until e fits.
func (h *Heap[E]) up(i int, e E) {
	items := h.items
	for i > 0 {
		parent := (i - 1) / 2
		p := items[parent]
		if !e.Before(p) {
			break
		}
		items[i] = p
		p.SetHeapIndex(i)
		i = parent
	}
	items[i] = e
	e.SetHeapIndex(i)
}

// down moves the hole at index i towards the leaves until e fits.
func (h *Heap[E]) down(i int, e E) {
	items := h.items
	for {
		child := 2*i + 1
		if child >= len(items) {
			break
		}
		if right := child + 1; right < len(items) && items[right].Before(items[child]) {
			child = right
		}
		c := items[child]
		if !c.Before(e) {
			break
		}
		items[i] = c
		c.SetHeapIndex(i)
		i = child
	}
	items[i] = e
	e.SetHeapIndex(i)
}

// shrink halves the backing array if less than a quarter of it is used. The next halving is then at
// least cap/8 removals away, and the next growth cap/4 insertions, so the cost is O(1) amortised.
func (h *Heap[E]) shrink() {
	c := cap(h.items)
	if c <= minCap || len(h.items) >= c/4 {
		return
	}
	items := make([]E, len(h.items), c/2)
	copy(items, h.items)
	h.items = items
}
