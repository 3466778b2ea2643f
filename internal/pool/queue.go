package pool

import "slices"

const (
	chunkSize = 126 // a chunk of items of 16 bytes has 2 KB
	sweepMin  = 4096
)

// Queue is a first-in, first-out queue of small values, and a plain data structure. Chunks whose
// items have left go back to the runtime, except for one. The zero value is an empty queue.
//
// Invariants, while no method is running:
//
//	Q1  the chunks from head to tail have n items, and each of them has some
//	Q2  places without an item are zero, so that items that have left are not kept alive
type Queue[E any] struct {
	head, tail *chunk[E]
	spare      *chunk[E] // an empty chunk for reuse, or nil
	n          int
	kept       int // items after the last Sweep
}

type chunk[E any] struct {
	items  []E // in memory
	next   *chunk[E]
	memory [chunkSize]E
}

// Len returns the number of items. O(1).
func (q *Queue[E]) Len() int { return q.n }

// Push appends items. O(len(items)).
func (q *Queue[E]) Push(items []E) {
	q.n += len(items)
	for len(items) > 0 {
		c := q.tail
		if c == nil || len(c.items) == cap(c.items) {
			c = q.newChunk()
			if q.tail == nil {
				q.head = c
			} else {
				q.tail.next = c
			}
			q.tail = c
		}
		n := min(len(items), cap(c.items)-len(c.items))
		c.items = append(c.items, items[:n]...)
		items = items[n:]
	}
}

// Return puts items back at the head. O(len(items)).
func (q *Queue[E]) Return(items []E) {
	if len(items) == 0 {
		return
	}
	q.n += len(items)
	c := q.newChunk()
	c.items = append(c.items, items...)
	if c.next = q.head; q.tail == nil {
		q.tail = c
	}
	q.head = c
}

// newChunk returns an empty chunk.
func (q *Queue[E]) newChunk() *chunk[E] {
	c := q.spare
	if q.spare = nil; c == nil {
		c = new(chunk[E])
		c.items = c.memory[:0]
	}
	return c
}

// Peek returns up to most items at the head, which stay in the queue. O(most).
func (q *Queue[E]) Peek(most int) (items []E) {
	for c := q.head; c != nil && len(items) < most; c = c.next {
		items = append(items, c.items[:min(most-len(items), len(c.items))]...)
	}
	return items
}

// Pop removes up to most items, appends them to items and returns the result. O(most).
func (q *Queue[E]) Pop(items []E, most int) []E {
	for most = min(most, q.n); most > 0; {
		c := q.head
		popped := c.items[:min(most, len(c.items))]
		items = append(items, popped...)
		clear(popped)
		c.items = c.items[len(popped):]
		q.n -= len(popped)
		most -= len(popped)
		if len(c.items) == 0 {
			if q.head = c.next; q.head == nil {
				q.tail = nil
			}
			c.items, c.next, q.spare = c.memory[:0], nil, c
		}
	}
	return items
}

// Sweep removes the items that are not live, if the queue is much longer than after the last Sweep.
// live returns a function that reports whether an item is live, and is called for each item in
// turn. O(1) for each item that was pushed, amortised.
func (q *Queue[E]) Sweep(live func() func(E) bool) {
	if q.n < max(sweepMin, 4*q.kept) {
		return
	}
	isLive := live()
	var items []E
	for left := q.n; left > 0; {
		items = q.Pop(items[:0], min(left, chunkSize))
		left -= len(items)
		q.Push(slices.DeleteFunc(items, func(e E) bool { return !isLive(e) }))
	}
	q.kept = q.n
}
