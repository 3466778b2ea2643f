package local

// Heap is a binary heap whose items know their positions, so that any item can be moved or removed.
// Invariant: for each i > 0, items[i] is not before items[(i-1)/2], and *items[i].Place() is i.
//
// First is O(1). Add, Remove and Fix are O(log n). Add is O(1) for an item that is after all
// others. The zero value is empty.
type Heap[T Item[T]] struct{ items []T }

// Item is an element of a heap.
type Item[T any] interface {
	Before(T) bool // a strict order
	Place() *int   // where the heap stores the position of the item
}

// Len returns the number of items.
func (h *Heap[T]) Len() int { return len(h.items) }

// First returns the smallest item. The heap must not be empty.
func (h *Heap[T]) First() T { return h.items[0] }

// Add adds an item that is in no heap.
func (h *Heap[T]) Add(item T) {
	h.items = append(h.items, item)
	h.up(len(h.items) - 1)
}

// Remove removes an item of this heap and sets its position to -1.
func (h *Heap[T]) Remove(item T) {
	i, last := *item.Place(), len(h.items)-1
	h.place(i, h.items[last])
	var zero T
	h.items[last] = zero
	h.items = h.items[:last]
	if i < last {
		h.Fix(h.items[i])
	}
	*item.Place() = -1
	h.shrink()
}

// Fix restores the order after an item of this heap has changed.
func (h *Heap[T]) Fix(item T) {
	if i := *item.Place(); !h.down(i) {
		h.up(i)
	}
}

// Clear removes all items. Their positions are unchanged.
func (h *Heap[T]) Clear() { h.items = nil }

// shrink releases memory after a peak: it moves the items to a smaller array when they use less
// than a quarter of the current one.
func (h *Heap[T]) shrink() {
	const least = 1024
	if n := len(h.items); cap(h.items) > least && n < cap(h.items)/4 {
		h.items = append(make([]T, 0, cap(h.items)/2), h.items...)
	}
}

func (h *Heap[T]) place(i int, item T) {
	h.items[i] = item
	*item.Place() = i
}

func (h *Heap[T]) up(i int) {
	item := h.items[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !item.Before(h.items[parent]) {
			break
		}
		h.place(i, h.items[parent])
		i = parent
	}
	h.place(i, item)
}

// down reports whether the item has moved.
func (h *Heap[T]) down(i int) bool {
	item, start := h.items[i], i
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			break
		}
		if right := child + 1; right < len(h.items) && h.items[right].Before(h.items[child]) {
			child = right
		}
		if !h.items[child].Before(item) {
			break
		}
		h.place(i, h.items[child])
		i = child
	}
	h.place(i, item)
	return i > start
}
