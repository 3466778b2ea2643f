package memstore

import "github.com/timingwheel-go/timingwheel/durable/driver"

// ordered is a set of entries by their keys, at and then id: a binary heap in which each entry knows its position. The earliest is known
// in O(1); to add and to remove any entry is O(log n), and O(1) for one that is added behind all others.
type ordered struct {
	heap []*entry
}

func (o *ordered) len() int { return len(o.heap) }

// first is the earliest entry, nil if there is none.
func (o *ordered) first() *entry {
	if len(o.heap) == 0 {
		return nil
	}
	return o.heap[0]
}

// firstAt is the key of the earliest entry, 0 if there is none.
func (o *ordered) firstAt() driver.Instant {
	if len(o.heap) == 0 {
		return 0
	}
	return o.heap[0].at
}

// add takes in an entry that is in no set.
func (o *ordered) add(e *entry) {
	e.set, e.index = o, len(o.heap)
	o.heap = append(o.heap, e)
	o.up(e.index)
}

// remove takes out an entry of this set.
func (o *ordered) remove(e *entry) {
	i, last := e.index, len(o.heap)-1
	o.place(i, o.heap[last])
	o.heap[last] = nil
	o.heap = o.heap[:last]
	if i < last && !o.down(i) {
		o.up(i)
	}
	e.set, e.index = nil, -1
	o.shrink()
}

// shrink gives memory back after a peak: the heap is moved when a quarter of it is in use.
func (o *ordered) shrink() {
	const least = 1024
	if n := len(o.heap); cap(o.heap) > least && n < cap(o.heap)/4 {
		o.heap = append(make([]*entry, 0, cap(o.heap)/2), o.heap...)
	}
}

func (o *ordered) place(i int, e *entry) {
	o.heap[i] = e
	e.index = i
}

func (o *ordered) up(i int) {
	e := o.heap[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(o.heap[parent]) {
			break
		}
		o.place(i, o.heap[parent])
		i = parent
	}
	o.place(i, e)
}

// down reports whether the entry has moved.
func (o *ordered) down(i int) bool {
	e, start := o.heap[i], i
	for {
		child := 2*i + 1
		if child >= len(o.heap) {
			break
		}
		if right := child + 1; right < len(o.heap) && o.heap[right].before(o.heap[child]) {
			child = right
		}
		if !o.heap[child].before(e) {
			break
		}
		o.place(i, o.heap[child])
		i = child
	}
	o.place(i, e)
	return i > start
}

// until is the number of entries whose key is not after t. It visits these, and at most as many more plus one.
func (o *ordered) until(t driver.Instant) int64 {
	var n int64
	if len(o.heap) == 0 {
		return 0
	}
	for stack := []int{0}; len(stack) > 0; {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if o.heap[i].at > t {
			continue
		}
		n++
		for child := 2*i + 1; child <= 2*i+2 && child < len(o.heap); child++ {
			stack = append(stack, child)
		}
	}
	return n
}
