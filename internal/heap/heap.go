// Package heap is a binary min-heap whose elements know their index.
package heap

import "fmt"

// Item is an element of a Heap. It knows its order and remembers its place.
type Item[E any] interface {
	// Before reports whether the element leaves the heap ahead of other: a strict weak order.
	Before(other E) bool
	// SetHeapIndex is told the element's index whenever it changes; -1 once it is out.
	SetHeapIndex(i int)
}

// minCap is the capacity up to which a Heap never gives its backing array back.
const minCap = 64

// Heap is a binary min-heap whose elements know their index, so that any of them can be moved or
// removed in O(log n). The zero value is an empty heap.
//
// Invariants, whenever no method is running:
//
//	H1  !items[i].Before(items[(i-1)/2])      for 0 < i < len(items)
//	H2  the index last told to items[i] is i; the one last told to any other element is -1
//	H3  items[len(items):cap(items)] are zero values, so what has left is not kept alive
//	H4  cap(items) <= max(minCap, 4*len(items)+3) after a removal, so a spike's memory is returned
//
// container/heap was not used: it passes each element through an interface value and has no place
// for H3 and H4. Sifting moves a hole instead of swapping pairs, which tells each displaced element
// its index once.
type Heap[E Item[E]] struct{ items []E }

// Len returns the number of elements. O(1).
func (h *Heap[E]) Len() int { return len(h.items) }

// Min returns the element that leaves next, and whether there is one. O(1).
func (h *Heap[E]) Min() (e E, ok bool) {
	if len(h.items) == 0 {
		return e, false
	}
	return h.items[0], true
}

// At returns the element at index i, from 0 to Len()-1. They are in no particular order. O(1).
func (h *Heap[E]) At(i int) E { return h.items[i] }

// Push adds e, which must not be in a heap. O(log n).
func (h *Heap[E]) Push(e E) {
	h.items = append(h.items, e)
	h.up(len(h.items)-1, e)
}

// PopMin removes the element that leaves next and returns it. O(log n). It panics if the heap is
// empty.
func (h *Heap[E]) PopMin() E { return h.Remove(0) }

// Remove takes out the element at index i and returns it. O(log n). It panics if there is none.
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

// Fix restores the order after the element at index i has changed its place in it. O(log n).
func (h *Heap[E]) Fix(i int) { h.sift(i, h.items[i]) }

// sift puts e into the hole at index i, or where the order wants it. O(log n).
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

// shrink halves the backing array once less than a quarter of it is used. The next halving is then
// at least cap/8 removals away and the next growth cap/4 insertions, so it costs O(1) amortised.
func (h *Heap[E]) shrink() {
	c := cap(h.items)
	if c <= minCap || len(h.items) >= c/4 {
		return
	}
	items := make([]E, len(h.items), c/2)
	copy(items, h.items)
	h.items = items
}

// Verify checks H1 and H2; indexOf returns the index that an element was last told. O(n).
func (h *Heap[E]) Verify(indexOf func(E) int) error {
	for i, e := range h.items {
		if parent := (i - 1) / 2; i > 0 && e.Before(h.items[parent]) {
			return fmt.Errorf("H1: item %d goes before its parent %d", i, parent)
		}
		if got := indexOf(e); got != i {
			return fmt.Errorf("H2: item %d believes that its index is %d", i, got)
		}
	}
	return nil
}
