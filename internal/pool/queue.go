package pool

import "slices"

const (
	chunkSize = 128
	sparesMax = 8 // chunks that an empty queue keeps
	sweepMin  = 4096
)

// Queue is a first-in, first-out queue of small values, and a plain data structure. Chunks whose
// items have left go back to the runtime, except for a few. The zero value is an empty queue.
//
// Invariants, while no method is running:
//
//	Q1  the chunks from head to tail hold n items: places first and on of head, places before end
//	    of tail, and all places of the chunks between them; an empty queue has no chunk
//	Q2  places without an item are zero, so that items that have left are not kept alive
type Queue[E any] struct {
	head, tail *chunk[E]
	spare      *chunk[E] // a list of empty chunks for reuse
	spares     int       // their number
	first, end int
	n          int
	kept       int // items after the last Sweep
}

type chunk[E any] struct {
	items [chunkSize]E
	next  *chunk[E]
}

// Len returns the number of items. O(1).
func (q *Queue[E]) Len() int { return q.n }

// Push appends items. O(len(items)).
func (q *Queue[E]) Push(items []E) {
	q.n += len(items)
	for len(items) > 0 {
		if q.tail == nil || q.end == chunkSize {
			q.grow()
		}
		n := copy(q.tail.items[q.end:], items)
		q.end += n
		items = items[n:]
	}
}

// Return puts items back at the head. O(len(items)).
func (q *Queue[E]) Return(items []E) {
	q.n += len(items)
	for len(items) > 0 {
		if q.first == 0 || q.head == nil {
			c := q.newChunk()
			if q.tail == nil {
				q.tail, q.end = c, chunkSize
			}
			c.next, q.head, q.first = q.head, c, chunkSize
		}
		n := min(q.first, len(items))
		q.first -= n
		copy(q.head.items[q.first:], items[len(items)-n:])
		items = items[:len(items)-n]
	}
}

// Sweep removes the items that are not live, if the queue is much longer than after the last Sweep.
// live returns a function that reports whether an item is live, and is called for each item in
// turn. O(1) for each item that was pushed, amortised.
func (q *Queue[E]) Sweep(live func() func(E) bool) {
	if q.n < max(sweepMin, 4*q.kept) {
		return
	}
	var chunk [chunkSize]E
	isLive := live()
	for left := q.n; left > 0; {
		items := q.Pop(chunk[:0], min(left, chunkSize))
		left -= len(items)
		q.Push(slices.DeleteFunc(items, func(e E) bool { return !isLive(e) }))
	}
	q.kept = q.n
}

// newChunk returns an empty chunk.
func (q *Queue[E]) newChunk() *chunk[E] {
	c := q.spare
	if c == nil {
		return new(chunk[E])
	}
	q.spare, c.next = c.next, nil
	q.spares--
	return c
}

// grow appends an empty chunk.
func (q *Queue[E]) grow() {
	c := q.newChunk()
	if q.tail == nil {
		q.head, q.first = c, 0
	} else {
		q.tail.next = c
	}
	q.tail, q.end = c, 0
}

// Peek returns up to most items at the head, which stay in the queue. O(most).
func (q *Queue[E]) Peek(most int) (items []E) {
	first := q.first
	most = min(most, q.n)
	for c := q.head; c != nil && len(items) < most; c, first = c.next, 0 {
		end := chunkSize
		if c == q.tail {
			end = q.end
		}
		items = append(items, c.items[first:min(end, first+most-len(items))]...)
	}
	return items
}

// Pop removes up to most items, appends them to items and returns the result. O(most).
func (q *Queue[E]) Pop(items []E, most int) []E {
	for most = min(most, q.n); most > 0; {
		end := chunkSize
		if q.head == q.tail {
			end = q.end
		}
		popped := q.head.items[q.first:min(end, q.first+most)]
		items = append(items, popped...)
		clear(popped)
		q.first += len(popped)
		q.n -= len(popped)
		most -= len(popped)
		if q.first == end {
			q.shrink()
		}
	}
	return items
}

// shrink removes the first chunk, which is empty.
func (q *Queue[E]) shrink() {
	c := q.head
	if q.head, q.first = c.next, 0; q.head == nil {
		q.tail = nil
	}
	if q.spares < sparesMax {
		c.next, q.spare = q.spare, c
		q.spares++
	}
}
