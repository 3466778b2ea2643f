package timingwheel

import "sync"

// family is what ends together with a context: with one of this package, or with one of another, of which it is told by one function of
// [context.AfterFunc] for all of them.
type family struct {
	relation
	finishing sync.Mutex // held by whoever ends the members: who comes second waits

	mu      sync.Mutex
	over    bool // the context has ended, or, of another package, nobody is left
	members *deadlineContext

	home   *families   // of another package's
	forget func() bool // ends the watch over its end
}

// add takes in a member. It is false where the family is over: then the context, which the caller ends, is bound to nobody. mu is held.
func (f *family) add(c *deadlineContext) bool {
	if f.over {
		c.made(&gone)
		return false
	}
	if !c.made(f) {
		return true
	}
	if c.next = f.members; c.next != nil {
		c.next.prev = c
	}
	f.members = c
	return true
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
}

// finish ends all that belong to the family, or waits for another who is at it, as cancel of package context does. mu is not held meanwhile, so members come to
// ask and leave.
func (f *family) finish(e *ending) {
	f.finishing.Lock()
	defer f.finishing.Unlock()
	f.mu.Lock()
	if f.over {
		f.mu.Unlock()
		return
	}
	f.over = true // so nobody comes, and nobody who leaves touches the list
	c := f.members
	f.members = nil
	f.mu.Unlock()
	if f.home != nil {
		f.home.drop(f)
	}
	for c != nil {
		next := c.next
		c.prev, c.next = nil, nil
		if c.finish(e) {
			c.timer.Stop()
			c.bond.Store(&gone) // like the timer it holds on to the wheel
			c.timer = Timer{}
		} else {
			c.settle()
		}
		c = next
	}
}

// familyOfChildren is the family of those that end with the context.
func (c *deadlineContext) familyOfChildren() *family {
	if f := c.children.Load(); f != nil {
		return f
	}
	c.children.CompareAndSwap(nil, &family{relation: c.asParent()})
	return c.children.Load()
}

// adopt makes the context the parent of another.
func (c *deadlineContext) adopt(child *deadlineContext) {
	f := c.familyOfChildren()
	f.mu.Lock()
	f.add(child)
	f.mu.Unlock()
	if e := c.look(); e != nil { // perhaps before the family was there
		child.endWith(e)
	}
}
