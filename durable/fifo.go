package durable

// fifo is a queue in a slice. push and pop are O(1) amortized.
type fifo[T any] struct {
	items []T
	head  int // items before it were popped
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) push(items ...T) { f.items = append(f.items, items...) }

// first returns the first item. The fifo must not be empty.
func (f *fifo[T]) first() T { return f.items[f.head] }

// pop removes and returns the first item. The fifo must not be empty. The slice is compacted when
// half of it is unused.
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

// keep removes the items for which ok returns false. It is O(n).
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

// lazyFIFO is a fifo with lazy deletion: any item may be deleted at any time. The item itself
// records that it is gone, and is never added again. It stays in the slice until it is first, or
// until more than half of the items are gone. All methods are O(1) amortized.
type lazyFIFO[T interface{ gone() bool }] struct {
	items fifo[T]
	left  int // number of items that are gone
}

// len returns the number of items that are not gone.
func (f *lazyFIFO[T]) len() int { return f.items.len() - f.left }

func (f *lazyFIFO[T]) push(items ...T) { f.items.push(items...) }

// first returns the first item, or false if there is none.
func (f *lazyFIFO[T]) first() (item T, ok bool) {
	for f.items.len() > 0 {
		if item = f.items.first(); !item.gone() {
			return item, true
		}
		f.items.pop()
		f.left--
	}
	var none T
	return none, false
}

// pop removes and returns the first item, or returns false if there is none.
func (f *lazyFIFO[T]) pop() (item T, ok bool) {
	if item, ok = f.first(); ok {
		f.items.pop()
	}
	return item, ok
}

// removed records that one of the items is gone.
func (f *lazyFIFO[T]) removed() {
	f.left++
	if f.left > 16 && f.left*2 > f.items.len() {
		f.items.keep(func(item T) bool { return !item.gone() })
		f.left = 0
	}
}
