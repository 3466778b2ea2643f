package layout

// linkedNode is a timer in a doubly linked list.
type linkedNode struct {
	deadline   int64
	gen        uint32
	prev, next uint32 // slots; next of a free slot: the slot freed before it
	bucket     uint32
}

type linkedBucket struct {
	head, tail uint32 // slots
	live       int
}

// linked is a doubly linked list per bucket. Stopping writes to both neighbours. A walk over a
// bucket reads the address of each node from the previous node, so cache misses do not overlap.
type linked struct {
	pages[linkedNode]
	buckets [numBuckets]linkedBucket
}

func (l *linked) add(deadline int64, f func()) handle {
	i, n := l.take()
	n.deadline = deadline
	*l.payload(i) = f
	l.append(coarse(deadline), i, n)
	return handle{i, n.gen}
}

func (l *linked) take() (uint32, *linkedNode) {
	if l.free == none {
		i := l.fresh()
		return i, l.node(i)
	}
	i := l.free
	n := l.node(i)
	l.free = n.next
	return i, n
}

// release makes the handle stale and returns the payload.
func (l *linked) release(i uint32, n *linkedNode) func() {
	p := l.payload(i)
	f := *p
	*p = nil
	n.gen++
	n.next, l.free = l.free, i
	return f
}

func (l *linked) append(id, i uint32, n *linkedNode) {
	b := &l.buckets[id]
	n.bucket, n.prev, n.next = id, b.tail, none
	if b.tail == none {
		b.head = i
	} else {
		l.node(b.tail).next = i
	}
	b.tail = i
	b.live++
}

func (l *linked) stop(h handle) bool {
	n := l.node(h.index)
	if n.gen != h.gen {
		return false
	}
	b := &l.buckets[n.bucket]
	if n.prev == none {
		b.head = n.next
	} else {
		l.node(n.prev).next = n.next
	}
	if n.next == none {
		b.tail = n.prev
	} else {
		l.node(n.next).prev = n.prev
	}
	b.live--
	l.release(h.index, n)
	return true
}

func (l *linked) cascade(id uint32) {
	i := l.buckets[id].head
	l.buckets[id] = linkedBucket{}
	for i != none {
		n := l.node(i)
		next := n.next
		l.append(fine(n.deadline), i, n)
		i = next
	}
}

func (l *linked) expire(id uint32, batch *[batchSize]func()) int {
	b := &l.buckets[id]
	i, k := b.head, 0
	for i != none && k < batchSize {
		n := l.node(i)
		next := n.next
		batch[k] = l.release(i, n)
		i = next
		k++
	}
	b.head = i
	b.live -= k
	if i == none {
		b.tail = none
	} else {
		l.node(i).prev = none
	}
	return k
}

func (l *linked) live(id uint32) int { return l.buckets[id].live }

func (l *linked) restore(from list) {
	o := from.(*linked)
	l.pages.restore(&o.pages)
	l.buckets = o.buckets
}
