package timingwheel

import (
	"context"
	"hash/maphash"
	"sync"

	"go.uber.org/atomic"
)

// families finds the family of a parent of another package, by the channel that Done returns. They are those of one wheel. The mutex of a stripe comes
// before that of a family.
//
// Most parents have one child, as that of a request does, and a family would cost such a child more than its timer. So the first child of a parent watches
// it alone, and those that come while it lives share a family. That it lives is noted by a hash: where the note was overwritten, one more watches alone.
type families struct {
	stripes [32]stripe
	known   [256]atomic.Uint32 // by the hash of the channel, the rest of which stands there; 0: nobody
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

// mark is where a parent is noted, and as what.
func (all *families) mark(key <-chan struct{}) (at *atomic.Uint32, as uint32) {
	h := maphash.Comparable(familySeed, key)
	return &all.known[h%uint64(len(all.known))], uint32(h >> 32)
}

// knows reports whether a child of the parent is noted, and notes one.
func (all *families) knows(key <-chan struct{}) bool {
	at, as := all.mark(key)
	return at.Swap(as) == as
}

// unknow takes the note back: children that live one after the other need no family.
func (all *families) unknow(key <-chan struct{}) {
	at, as := all.mark(key)
	at.CompareAndSwap(as, 0)
}

// join lets a context end with its parent.
func (all *families) join(c *deadlineContext) {
	if p := nearest(c.parent); p != nil {
		p.adopt(c)
		return
	}
	key := c.parent.Done()
	switch {
	case key == nil: // it never ends
	case all.knows(key):
		all.enter(c, key)
	default:
		c.watchAlone()
	}
}

// adopt makes the context, of this package, the parent of c.
func (p *deadlineContext) adopt(c *deadlineContext) {
	f := p.familyOfChildren()
	f.mu.Lock()
	in := f.add(c)
	f.mu.Unlock()
	e := p.look()
	if in && e == nil {
		return
	}
	if e == nil { // it is over, so the parent has ended
		e = p.end.Load()
	}
	c.endWith(e)
}

// watchAlone lets a context be told of its parent's end. Nothing is locked, as the parent may be anybody's.
func (c *deadlineContext) watchAlone() {
	c.forget = context.AfterFunc(c.parent, c.follow)
	if !c.family.CompareAndSwap(nil, &loner) { // it has ended meanwhile
		c.forget()
	}
}

// enter makes a context a member of the family of its parent.
func (all *families) enter(c *deadlineContext, key <-chan struct{}) {
	f, fresh := all.admit(c, key)
	switch {
	case f == nil: // the parent has ended
		c.follow()
	case fresh:
		f.watch()
		if c.end.Load() != nil { // it may never have been in
			all.leave(f, c)
		}
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

// admit is that family, nil where the parent has ended. A fresh one is not watched yet.
func (all *families) admit(c *deadlineContext, key <-chan struct{}) (f *family, fresh bool) {
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
		all.unknow(f.key)
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
