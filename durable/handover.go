package durable

import "time"

// handover matches begun messages with takers, both in the order of arrival. At any time either
// takers or messages wait, never both. It has no lock and no clock, and is guarded by the
// dispatcher's mutex.
type handover struct {
	takers lazyFIFO[*taker]
	begun  lazyFIFO[*heldMessage] // begun messages that wait for a taker
	used   time.Time              // when a taker last arrived or left
	most   int                    // the most takers that have waited since reset
	before int                    // the same for the period before
	reset  time.Time              // see mostWaiting
}

// taker is a handler's worker or a receiver that waits for a message.
type taker struct {
	ready chan *heldMessage // capacity 1
	left  bool
}

func newTaker() *taker { return &taker{ready: make(chan *heldMessage, 1)} }

// gone reports whether the taker no longer waits.
func (t *taker) gone() bool { return t.left }

// give passes a begun message to the taker that has waited longest. It returns nil if no taker
// waits.
func (o *handover) give(h *heldMessage, now time.Time) *taker {
	t, ok := o.takers.pop()
	if !ok {
		return nil
	}
	h.state, o.used = heldTaken, now
	return t
}

// keep stores a message for the next taker.
func (o *handover) keep(h *heldMessage) {
	h.state = heldBegun
	o.begun.push(h)
}

// take returns the message that has waited longest. If there is none, it returns nil and the taker
// waits.
func (o *handover) take(t *taker, now time.Time) *heldMessage {
	o.used = now
	h, ok := o.begun.pop()
	if !ok {
		o.takers.push(t)
		o.most = max(o.most, o.takers.len())
		return nil
	}
	h.state = heldTaken
	return h
}

// leave ends the wait of a taker that received no message.
func (o *handover) leave(t *taker, now time.Time) {
	t.left, o.used = true, now
	o.takers.removed()
}

// idle returns the time since a taker last waited.
func (o *handover) idle(now time.Time) time.Duration {
	if o.takers.len() > 0 {
		return 0
	}
	return now.Sub(o.used)
}

// mostWaiting returns the most takers that have waited at any time in the last period, or a little
// longer.
func (o *handover) mostWaiting(now time.Time, period time.Duration) int {
	if now.Sub(o.reset) >= period {
		o.before, o.most, o.reset = o.most, o.takers.len(), now
	}
	return max(o.before, o.most)
}

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
