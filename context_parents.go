package timingwheel

import (
	"context"
	"hash/maphash"
	"reflect"
	"sync"

	"go.uber.org/atomic"
)

// relation is whom a context ends with: one of this package, or another with a channel. Without either it never ends with another.
type relation struct {
	ours *deadlineContext
	to   context.Context // else: of package context, where it has the channel of the parent
	done <-chan struct{} // of to, or of the next above ours that is of another package: ours may not have been told yet
	far  *farBelow       // done's, where that is of package context and below one of this package
	lone bool            // to cannot be the key of a map
	told bool            // to is of a third package: it is not asked for its error, as whoever asks may hold a lock that this takes
}

// above is the relation to a parent. What matters is whose channel the parent has, as in package context: contexts that have been put around that one
// have no say in how it ends, and are not kept. Only a parent that has ended says itself how, also as in that package.
func above(parent context.Context) relation {
	if p, ok := parent.(*deadlineContext); ok {
		return p.asParent()
	}
	done := parent.Done()
	if done == nil {
		return relation{}
	}
	if isClosed(done) {
		return relation{to: parent, done: done, lone: true}
	}
	p, ok := parent.Value(deadlineKey).(*deadlineContext)
	if ok && p.hasChannel(done) {
		return p.asParent()
	}
	if std, ok := parent.Value(cancelKey).(context.Context); ok && std.Done() == done {
		r := relation{to: std, done: done}
		if p != nil {
			r.far = newFarBelow(std)
		}
		return r
	}
	return relation{to: parent, done: done, told: true, lone: !reflect.ValueOf(parent).Comparable()}
}

func (c *deadlineContext) asParent() relation {
	r := relation{ours: c}
	switch f := c.bond.Load(); f {
	case nil:
	case &tiedAlone:
		r.done, r.far = c.tie.done, c.tie.far()
	default:
		r.done, r.far = f.done, f.far
	}
	return r
}

// ended is how it has ended; nil where it has not, or where that is only told. While nobody above has ended it asks one context for each change of package.
func (r *relation) ended() *ending {
	switch above := isClosedBelow(r.done, r.far); {
	case r.ours == nil && above && !r.told:
		return endOf(r.to)
	case r.ours != nil && (above || r.ours.end.Load() != nil):
		return r.ours.look()
	default:
		return nil
	}
}

// tie is the relation of one context to a parent of another package.
type tie struct {
	to     context.Context
	done   <-chan struct{}
	forget func() bool // ends the watch over its end
}

// ended is how it has ended, nil where it has not.
func (t *tie) ended() *ending {
	if !isClosedBelow(t.done, t.far()) {
		return nil
	}
	return endOf(t.to)
}

// farBelow is a context of package context below one of this package, which it also is the parent of ties with: few have such a one, so they have no field
// for it.
type farBelow struct {
	context.Context
	up atomic.Pointer[deadlineContext] // the next one above; nil where it has turned out that this does not end with that
}

// newFarBelow is nil where no context of this package is above. What is around std does not count, as others have the same relation to it.
func newFarBelow(std context.Context) *farBelow {
	up, ok := std.Value(deadlineKey).(*deadlineContext)
	if !ok {
		return nil
	}
	b := &farBelow{Context: std}
	b.up.Store(up)
	return b
}

func (t *tie) far() *farBelow {
	b, _ := t.to.(*farBelow)
	return b
}

// isClosedBelow reports whether the channel of a context of package context is closed, and sees to it first where the next one of this package above that has ended:
// nobody but that one's goroutine of the moment may have said so.
func isClosedBelow(done <-chan struct{}, b *farBelow) bool {
	if isClosed(done) {
		return true
	}
	if b == nil {
		return false
	}
	up := b.up.Load()
	if up == nil || up.look() == nil {
		return false
	}
	up.tellBelow()
	if isClosed(done) {
		return true
	}
	b.up.Store(nil) // there is one without cancel in between, or with a channel of its own
	return false
}

// families finds the family of a parent of another package. They are those of one wheel. The mutex of a stripe comes before that of a family.
//
// Most parents have one child, as that of a request does, and a family would cost such a child more than its timer. So the first child of a parent is tied
// to it alone, and those that come while it lives share a family. That it lives is noted by a hash: where the note was overwritten, one more is tied alone.
type families struct {
	stripes [32]stripe
	known   [256]atomic.Uint32 // by the hash of the channel, the rest of which stands there; 0: nobody
}

type stripe struct {
	mu sync.Mutex
	by map[context.Context]*family // by relation.to
	_  [48]byte                    // so that two do not share a cache line
}

var familySeed = maphash.MakeSeed()

func (all *families) stripe(done <-chan struct{}) *stripe {
	return &all.stripes[maphash.Comparable(familySeed, done)%uint64(len(all.stripes))]
}

// mark is where a parent is noted, and as what.
func (all *families) mark(done <-chan struct{}) (at *atomic.Uint32, as uint32) {
	h := maphash.Comparable(familySeed, done)
	return &all.known[h%uint64(len(all.known))], uint32(h >> 32)
}

// knows reports whether a child of the parent is noted, and notes one.
func (all *families) knows(done <-chan struct{}) bool {
	at, as := all.mark(done)
	return at.Swap(as) == as
}

// unknow takes the note back: children that live one after the other need no family.
func (all *families) unknow(done <-chan struct{}) {
	at, as := all.mark(done)
	at.CompareAndSwap(as, 0)
}

// join lets a context end with those above it.
func (all *families) join(c *deadlineContext, up relation) {
	switch {
	case up.ours != nil:
		up.ours.adopt(c)
	case up.done == nil:
		c.made(&endless)
	case !up.lone && all.knows(up.done):
		all.enter(c, up)
	default:
		c.tieAlone(up)
	}
}

// tieAlone lets a context be told of its parent's end. Nothing is locked, as the parent may be anybody's.
func (c *deadlineContext) tieAlone(up relation) {
	c.tie = &tie{to: up.to, done: up.done}
	if up.far != nil {
		c.tie.to = up.far
	}
	c.tie.forget = context.AfterFunc(up.to, c.untie)
	bond := &tiedAlone
	if up.told {
		bond = &tiedBlind
	}
	if !c.made(bond) {
		c.tie.forget()
	}
}

// untie is called at the end of the parent.
func (c *deadlineContext) untie() { c.endWith(endOf(c.tie.to)) }

// enter makes a context a member of the family of its parent.
func (all *families) enter(c *deadlineContext, up relation) {
	f, fresh := all.admit(c, up)
	switch {
	case f == nil:
		c.endWith(endOf(up.to))
	case fresh:
		f.watch()
		if c.end.Load() != nil { // it may never have been in
			all.leave(f, c)
		}
	}
}

// admit is that family, nil where the parent has ended. A fresh one is not watched yet.
func (all *families) admit(c *deadlineContext, up relation) (f *family, fresh bool) {
	s := all.stripe(up.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	if f = s.by[up.to]; f == nil {
		f, fresh = &family{relation: up, home: all}, true
		if s.by == nil {
			s.by = make(map[context.Context]*family)
		}
		s.by[up.to] = f
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
	forget := context.AfterFunc(f.to, func() { f.finish(endOf(f.to)) })
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
	s := all.stripe(f.done)
	s.mu.Lock()
	f.mu.Lock()
	f.remove(c)
	empty := f.members == nil && !f.over
	if empty {
		f.over = true
		s.forget(f)
		all.unknow(f.done)
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
	s := all.stripe(f.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[f.to] == f {
		s.forget(f)
	}
}

// forget takes a family out. A map keeps its size, so the last one takes it along. mu is held.
func (s *stripe) forget(f *family) {
	if delete(s.by, f.to); len(s.by) == 0 {
		s.by = nil
	}
}
