package local

import "container/heap"

// Heap is a heap whose items know their positions, so that any item can be moved or removed. First
// is O(1), and Add, Remove and Fix are O(log n). The zero value is empty.
type Heap[T Item[T]] struct{ items items[T] }

// Item is an element of a heap.
type Item[T any] interface {
	Before(T) bool // a strict order
	Place() *int   // where the heap stores the position of the item
}

// First returns the smallest item. The heap must not be empty.
func (h *Heap[T]) First() T { return h.items[0] }

func (h *Heap[T]) Len() int      { return len(h.items) }
func (h *Heap[T]) Add(item T)    { heap.Push(&h.items, item) }
func (h *Heap[T]) Remove(item T) { heap.Remove(&h.items, *item.Place()) }
func (h *Heap[T]) Fix(item T)    { heap.Fix(&h.items, *item.Place()) }
func (h *Heap[T]) Clear()        { h.items = nil }

// items implements heap.Interface.
type items[T Item[T]] []T

func (s items[T]) Len() int           { return len(s) }
func (s items[T]) Less(i, j int) bool { return s[i].Before(s[j]) }

func (s items[T]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	*s[i].Place(), *s[j].Place() = i, j
}

func (s *items[T]) Push(item any) {
	*item.(T).Place() = len(*s)
	*s = append(*s, item.(T))
}

func (s *items[T]) Pop() any {
	last := len(*s) - 1
	item := (*s)[last]
	(*s)[last] = *new(T) // for the garbage collector
	*s = (*s)[:last]
	return item
}
