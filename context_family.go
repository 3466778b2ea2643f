package timingwheel

import (
	"context"
	"sync"
)

// family is what ends together with a context: with one of this package, or with one of another (parent), of which it is told by one function of
// [context.AfterFunc] for all of them.
type family struct {
	mu      sync.Mutex
	over    bool // the context has ended, or, of another package, nobody is left
	members *deadlineContext
	others  *dependent
	size    int // of members

	parent context.Context
	home   *families
	key    <-chan struct{}
	forget func() bool // ends the watch over parent
}

// dependent is a function to be called at the end: of package context.
type dependent struct {
	f          func()
	family     *family // nil: it has left, or was called
	prev, next *dependent
}

// add takes in a member, unless that has ended meanwhile. It is false where the family is over. mu is held.
func (f *family) add(c *deadlineContext) bool {
	if f.over {
		return false
	}
	if !c.family.CompareAndSwap(nil, f) {
		return true
	}
	if c.next = f.members; c.next != nil {
		c.next.prev = c
	}
	f.members = c
	f.size++
	return true
}

func (f *family) addDependent(d *dependent) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return false
	}
	d.family = f
	if d.next = f.others; d.next != nil {
		d.next.prev = d
	}
	f.others = d
	return true
}

// leave ends the waiting. It is false where that has been done, or the function is called.
func (d *dependent) leave() bool {
	f := d.family
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over || d.f == nil {
		return false
	}
	if d.prev != nil {
		d.prev.next = d.next
	} else {
		f.others = d.next
	}
	if d.next != nil {
		d.next.prev = d.prev
	}
	d.f = nil
	return true
}

// finish ends all that belong to the family. Nothing is locked meanwhile: they have families themselves, and the functions are of others.
func (f *family) finish(e *ending) {
	f.mu.Lock()
	if f.over {
		f.mu.Unlock()
		return
	}
	f.over = true // so nobody comes, and nobody who leaves touches the lists
	members, others := f.members, f.others
	f.members, f.others = nil, nil
	f.mu.Unlock()
	if f.home != nil {
		f.home.drop(f)
	}
	for c := members; c != nil; {
		next := c.next
		c.prev, c.next = nil, nil
		if c.finish(e) {
			c.timer.Stop()
		}
		c = next
	}
	for d := others; d != nil; {
		next := d.next
		d.prev, d.next = nil, nil
		d.f()
		d = next
	}
}

// leave takes the context, which has ended, out of its family.
func (c *deadlineContext) leave() {
	f := c.family.Swap(&gone)
	switch {
	case f == nil || f == &gone: // whoever makes the context finds that, in settle
	case f == &loner:
		c.forget()
		if s := c.timer.shard; s != nil {
			s.kin.unknow(c.parent.Done())
		}
	case f.home == nil:
		f.mu.Lock()
		f.remove(c)
		f.mu.Unlock()
	default:
		f.home.leave(f, c)
	}
}

// remove takes a context out of the list, unless the family is over or does not have it. mu is held.
func (f *family) remove(c *deadlineContext) {
	if f.over || c.prev == nil && f.members != c {
		return
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		f.members = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
	f.size--
}
