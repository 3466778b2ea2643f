package local

// indexedHeap implements heap.Interface for items that know their positions, so that heap.Fix and
// heap.Remove work for any item. The first item is the smallest.
type indexedHeap[T indexedItem[T]] []T

type indexedItem[T any] interface {
	less(T) bool    // a strict order
	position() *int // where the heap stores the index of the item
}

func (h indexedHeap[T]) Len() int           { return len(h) }
func (h indexedHeap[T]) Less(i, j int) bool { return h[i].less(h[j]) }

func (h indexedHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	*h[i].position(), *h[j].position() = i, j
}

func (h *indexedHeap[T]) Push(item any) {
	*item.(T).position() = len(*h)
	*h = append(*h, item.(T))
}

func (h *indexedHeap[T]) Pop() any {
	last := len(*h) - 1
	item := (*h)[last]
	(*h)[last] = *new(T) // for the garbage collector
	*h = (*h)[:last]
	return item
}
