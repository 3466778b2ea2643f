package timingwheel

import (
	"context"
	"hash/maphash"
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

// add takes in a member. It is false where the family is over. mu is held.
func (f *family) add(c *deadlineContext) bool {
	if f.over {
		return false
	}
	if c.next = f.members; c.next != nil {
		c.next.prev = c
	}
	f.members = c
	f.size++
	c.family.Store(f)
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

// leave takes the context out of its family.
func (c *deadlineContext) leave() {
	f := c.family.Swap(nil)
	if f == nil {
		return
	}
	if f.home == nil {
		f.mu.Lock()
		f.remove(c)
		f.mu.Unlock()
		return
	}
	f.home.leave(f, c)
}

// remove takes a member out of the list, unless the family is over. mu is held.
func (f *family) remove(c *deadlineContext) {
	if f.over {
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

// families finds the family of a parent of another package, by the channel that Done returns. They are those of one wheel. The mutex of a stripe comes
// before that of a family.
type families struct {
	stripes [32]stripe
}

type stripe struct {
	mu sync.Mutex
	by map[<-chan struct{}]*family
	_  [40]byte // so that two do not share a cache line
}

var familySeed = maphash.MakeSeed()

func (all *families) stripe(key <-chan struct{}) *stripe {
	return &all.stripes[maphash.Comparable(familySeed, key)%uint64(len(all.stripes))]
}

// join lets a context end with its parent.
func (all *families) join(c *deadlineContext) {
	if p := nearest(c.parent); p != nil {
		f := p.familyOfChildren()
		f.mu.Lock()
		in := f.add(c)
		f.mu.Unlock()
		e := p.look()
		if in && e == nil {
			c.settle()
			return
		}
		if e == nil { // it is over, so the parent has ended
			e = p.end.Load()
		}
		c.endWith(e)
		return
	}
	key := c.parent.Done()
	if key == nil {
		return // it never ends
	}
	f, fresh := all.enter(c, key)
	if f == nil {
		c.endWith(endOf(c.parent))
		return
	}
	if fresh {
		f.watch()
	}
	c.settle()
}

// endWith ends a context whose parent has ended while it was made.
func (c *deadlineContext) endWith(e *ending) {
	if c.finish(e) {
		c.timer.Stop()
	}
	c.leave()
}

// settle takes a context out that has ended before it was in the family, as its deadline has passed meanwhile.
func (c *deadlineContext) settle() {
	if c.end.Load() != nil {
		c.leave()
	}
}

// nearest is the context of this package that parent is, or whose channel it has.
func nearest(parent context.Context) *deadlineContext {
	if p, ok := parent.(*deadlineContext); ok {
		return p
	}
	p, ok := parent.Value(deadlineKey).(*deadlineContext)
	if !ok || p.Done() != parent.Done() {
		return nil
	}
	return p
}

// enter makes a context a member of the family of its parent, nil where the parent has ended. A fresh one is not watched yet.
func (all *families) enter(c *deadlineContext, key <-chan struct{}) (f *family, fresh bool) {
	s := all.stripe(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if f = s.by[key]; f == nil {
		f, fresh = &family{parent: c.parent, home: all, key: key}, true
		if s.by == nil {
			s.by = make(map[<-chan struct{}]*family)
		}
		s.by[key] = f
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.add(c) {
		return nil, false
	}
	return f, fresh
}

// watch has the family told of the parent's end. Nothing is locked, as the parent may be anybody's. The family may be over by the time it is watched.
func (f *family) watch() {
	forget := context.AfterFunc(f.parent, func() { f.finish(endOf(f.parent)) })
	f.mu.Lock()
	f.forget = forget
	over := f.over
	f.mu.Unlock()
	if over {
		forget()
	}
}

// leave takes a context out, and the family with it where nobody is left.
func (all *families) leave(f *family, c *deadlineContext) {
	s := all.stripe(f.key)
	s.mu.Lock()
	f.mu.Lock()
	f.remove(c)
	empty := f.size == 0 && !f.over
	if empty {
		f.over = true
		delete(s.by, f.key)
	}
	forget := f.forget
	f.mu.Unlock()
	s.mu.Unlock()
	if empty && forget != nil { // else whoever is about to watch finds it over
		forget()
	}
}

// drop takes a family out whose parent has ended.
func (all *families) drop(f *family) {
	s := all.stripe(f.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[f.key] == f {
		delete(s.by, f.key)
	}
}
