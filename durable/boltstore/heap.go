package boltstore

import "container/heap"

// heapItem is what stands in an indexed heap: it knows its place, so that it can be taken out of the middle.
type heapItem[T any] interface {
	before(T) bool
	place() *int
}

// indexedHeap is a binary heap whose items can be removed and moved in O(log n).
type indexedHeap[T heapItem[T]] struct{ items heapItems[T] }

func (h *indexedHeap[T]) len() int { return len(h.items) }

// first is the least item; there must be one.
func (h *indexedHeap[T]) first() T { return h.items[0] }

func (h *indexedHeap[T]) push(item T)   { heap.Push(&h.items, item) }
func (h *indexedHeap[T]) remove(item T) { heap.Remove(&h.items, *item.place()) }
func (h *indexedHeap[T]) fix(item T)    { heap.Fix(&h.items, *item.place()) }
func (h *indexedHeap[T]) clear()        { h.items = nil }

type heapItems[T heapItem[T]] []T

func (h heapItems[T]) Len() int           { return len(h) }
func (h heapItems[T]) Less(i, j int) bool { return h[i].before(h[j]) }

func (h heapItems[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	*h[i].place(), *h[j].place() = i, j
}

func (h *heapItems[T]) Push(item any) {
	t := item.(T)
	*t.place() = len(*h)
	*h = append(*h, t)
}

func (h *heapItems[T]) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	var zero T
	(*h)[last] = zero
	*h = (*h)[:last]
	return t
}
