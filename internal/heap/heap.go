// Package heap is a binary min-heap of container/heap whose elements know their index.
package heap

import "container/heap"

// Item is an element of a Heap.
type Item[E any] interface {
	// Before reports whether the element leaves the heap before other. It is a strict weak order.
	Before(other E) bool
	// SetHeapIndex is called with the element's index whenever the index changes, and with -1 when
	// the element leaves the heap.
	SetHeapIndex(i int)
}

// Heap is a binary min-heap. The zero value is an empty heap. Any element can be moved or removed
// in O(log n).
//
// Invariants, while no method is running:
//
//	H1  !items[i].Before(items[(i-1)/2])      for 0 < i < len(items)
//	H2  the last SetHeapIndex of items[i] was i, and the last one of any removed element was -1
//	H3  items[len(items):cap(items)] are zero values, so removed elements are not kept alive
//	H4  cap(items) <= max(minCap, 4*len(items)+3) after a removal, so a Heap shrinks after a spike
type Heap[E Item[E]] struct{ items items[E] }

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
func (h *Heap[E]) Push(e E) { heap.Push(&h.items, e) }

// Remove removes and returns the element at index i, of which 0 is the next one. It panics if there
// is none. O(log n).
func (h *Heap[E]) Remove(i int) E { return heap.Remove(&h.items, i).(E) }

// Fix restores the order after the key of the element at index i has changed. O(log n).
func (h *Heap[E]) Fix(i int) { heap.Fix(&h.items, i) }

// minCap is the capacity up to which items do not shrink.
const minCap = 64

// items implements heap.Interface.
type items[E Item[E]] []E

func (s items[E]) Len() int           { return len(s) }
func (s items[E]) Less(i, j int) bool { return s[i].Before(s[j]) }

func (s items[E]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].SetHeapIndex(i)
	s[j].SetHeapIndex(j)
}

func (s *items[E]) Push(e any) {
	*s = append(*s, e.(E))
	e.(E).SetHeapIndex(len(*s) - 1)
}

// Pop halves the array if less than a quarter of it is used. The next halving is then at least
// cap/8 removals away, and the next growth cap/4 insertions, so the cost is O(1) amortised.
func (s *items[E]) Pop() any {
	last, c := len(*s)-1, cap(*s)
	e := (*s)[last]
	clear((*s)[last:])
	if *s = (*s)[:last]; c > minCap && last < c/4 {
		*s = append(make([]E, 0, c/2), *s...)
	}
	e.SetHeapIndex(-1)
	return e
}
