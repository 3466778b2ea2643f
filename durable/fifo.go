package durable

// fifo is a queue in an array: adding and taking cost O(1) on average.
type fifo[T any] struct {
	items []T
	head  int // items before it have been taken
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) push(items ...T) { f.items = append(f.items, items...) }

// rest is the items that have not been taken. It is valid until the next call.
func (f *fifo[T]) rest() []T { return f.items[f.head:] }

func (f *fifo[T]) first() T { return f.items[f.head] }

// pop takes the first item. The array is compacted when half of it is empty.
func (f *fifo[T]) pop() T {
	var zero T
	item := f.items[f.head]
	f.items[f.head] = zero
	f.head++
	if f.head >= 32 && f.head*2 >= len(f.items) {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	return item
}

// keep drops the items for which f is false.
func (f *fifo[T]) keep(ok func(T) bool) {
	kept := f.items[:0]
	for _, item := range f.items[f.head:] {
		if ok(item) {
			kept = append(kept, item)
		}
	}
	clear(f.items[len(kept):])
	f.items, f.head = kept, 0
}
