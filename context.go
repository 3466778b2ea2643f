package timingwheel

import (
	"context"
	"fmt"
	"hash/maphash"
	"reflect"
	"sync"
	"time"

	"go.uber.org/atomic"
)

// WithTimeout is context.WithTimeout, driven by the wheel: the context ends when d has passed, up
// to one tick later and never earlier, when it is cancelled, or when parent ends, whatever comes
// first. Whoever makes it calls its cancel function in the end, which gives back all that it holds.
//
// Err, Cause, Deadline and Value are those of package context, and so is what follows for children,
// which may be of this package or of that one. No goroutine waits for anything, unless parent is of
// a third package. Only where a parent of package context is cancelled, and nobody asks this
// context for Err or Done meanwhile, its children learn that from a goroutine of that moment, and
// so a little later than cancel returns.
//
// The deadline is a callback of the wheel and comes where [Options.Executor] runs those: with
// [Inline], or with a pool that is full, others that block hold it up. In Manual mode the wheel's
// clock is the one that counts. Stop of the wheel discards all deadlines: a context then ends only
// when it is cancelled or with its parent. On a wheel that has been stopped the runtime's timers
// take its place, but for Manual mode, where no deadline is reached any more.
//
// It panics where parent is nil. O(1), apart from what parent takes to return its deadline and
// values.
func (tw *TimingWheel) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return tw.withDeadline(parent, tw.today().Add(d), d, &timedOut)
}

// WithTimeoutCause is WithTimeout with a cause for [context.Cause] where the time has passed. The
// cancel function does not set it.
func (tw *TimingWheel) WithTimeoutCause(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	return tw.withDeadline(parent, tw.today().Add(d), d, timedOutBy(cause))
}

// WithDeadline is WithTimeout for a point in time, see [TimingWheel.AtFunc].
func (tw *TimingWheel) WithDeadline(parent context.Context, t time.Time) (context.Context, context.CancelFunc) {
	return tw.withDeadline(parent, t, t.Sub(tw.today()), &timedOut)
}

// WithDeadlineCause is WithTimeoutCause for a point in time.
func (tw *TimingWheel) WithDeadlineCause(parent context.Context, t time.Time, cause error) (context.Context, context.CancelFunc) {
	return tw.withDeadline(parent, t, t.Sub(tw.today()), timedOutBy(cause))
}

// WithTimeout calls [TimingWheel.WithTimeout] on [Default].
func WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return Default().WithTimeout(parent, d)
}

// WithTimeoutCause calls [TimingWheel.WithTimeoutCause] on [Default].
func WithTimeoutCause(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	return Default().WithTimeoutCause(parent, d, cause)
}

// WithDeadline calls [TimingWheel.WithDeadline] on [Default].
func WithDeadline(parent context.Context, t time.Time) (context.Context, context.CancelFunc) {
	return Default().WithDeadline(parent, t)
}

// WithDeadlineCause calls [TimingWheel.WithDeadlineCause] on [Default].
func WithDeadlineCause(parent context.Context, t time.Time, cause error) (context.Context, context.CancelFunc) {
	return Default().WithDeadlineCause(parent, t, cause)
}

func (tw *TimingWheel) withDeadline(parent context.Context, t time.Time, left time.Duration, given *ending) (context.Context, context.CancelFunc) {
	if parent == nil {
		panic("timingwheel: context of a nil parent")
	}
	up := above(parent)
	c := &deadlineContext{parent: parent, deadline: t}
	if earlier, ok := parent.Deadline(); ok && earlier.Before(t) {
		if up.ours == nil {
			return context.WithCancel(parent) // it has that deadline
		}
		c.deadline = earlier
	} else if e := up.ended(); e != nil || left <= 0 {
		if e == nil {
			e = given
		}
		c.endWith(e)
		return c, c.cancel
	} else if c.timer = tw.engine.at(t, c.atDeadline(given)); c.timer == (Timer{}) && !tw.engine.Manual {
		return context.WithDeadlineCause(parent, t, given.own)
	}
	tw.families.join(c, up)
	return c, c.cancel
}

// deadlineContext is a context with a deadline of a wheel.
//
// Whoever sets end has ended it, and does what follows: its stand-in in package context is
// cancelled, and the family of those that end with it is told. Both come into being when somebody
// asks for them, and whoever makes one looks at end afterwards. So nothing is locked where there
// are no relatives.
//
// Others may come to ask while that is under way, or before anybody has said that the parent has
// ended. They find it out and do it themselves.
type deadlineContext struct {
	parent   context.Context
	deadline time.Time
	timer    Timer // set before anybody else has the context, but for expire; cleared by whoever ends it
	tie      *tie  // to the parent, where bond is tiedAlone or tiedBlind
	end      atomic.Pointer[ending]
	standIn  atomic.Pointer[standIn]
	children atomic.Pointer[family]

	bond       atomic.Pointer[family] // with which it ends, or one of those below; nil: it is being made
	prev, next *deadlineContext       // there, under its mu
}

// What a context has instead of a family. As relations they end with nobody.
var (
	endless   family // its parent never ends
	tiedAlone family // it is told of the end of its parent by itself
	tiedBlind family // the same, and it does not look whether the parent has ended, see relation.told
	gone      family // it has ended, and left
)

// ending is how a context has ended.
type ending struct {
	err   error
	cause error
	own   error // the cause that was given, which may be nil
}

var (
	cancelled = ending{err: context.Canceled, cause: context.Canceled}
	timedOut  = ending{err: context.DeadlineExceeded, cause: context.DeadlineExceeded}
)

func timedOutBy(cause error) *ending {
	if cause == nil {
		return &timedOut
	}
	return &ending{err: context.DeadlineExceeded, cause: cause, own: cause}
}

// endOf is how a context of any package, whose channel is closed, has ended.
func endOf(ctx context.Context) *ending {
	err := ctx.Err()
	if err == nil {
		return &cancelled // against the rules of package context
	}
	cause := context.Cause(ctx)
	if err == context.Canceled && cause == context.Canceled {
		return &cancelled
	}
	return &ending{err: err, cause: cause}
}

// plain reports whether the cause is the error. Others may be of types that cannot be compared.
func (e *ending) plain() bool { return e == &cancelled || e == &timedOut }

// finish ends the context and those that end with it. It is false where that has been done before,
// or is being done.
func (c *deadlineContext) finish(e *ending) bool {
	if !c.end.CompareAndSwap(nil, e) {
		return false
	}
	c.settle()
	return true
}

// settle is for a context that has ended. All that ends with it has ended when it returns, also
// where somebody else is at it.
func (c *deadlineContext) settle() {
	c.tellBelow()
	if f := c.children.Load(); f != nil {
		f.finish(c.end.Load())
	}
}

// endWith ends the context and gives back what it holds. It is false where that has been done
// before, or is being done.
func (c *deadlineContext) endWith(e *ending) bool {
	if !c.finish(e) {
		return false
	}
	c.timer.Stop()
	c.leave()
	return true
}

// cancel is the cancel function.
func (c *deadlineContext) cancel() {
	if c.look() != nil || !c.endWith(&cancelled) {
		c.settle()
	}
}

// tellBelow is the part of settle that is about package context.
func (c *deadlineContext) tellBelow() {
	if s := c.standIn.Load(); s != nil {
		s.cancel() // waits for another who is at it
	}
}

// atDeadline is what the wheel calls then. A cause of one's own is not kept in the context, as few
// have one.
func (c *deadlineContext) atDeadline(given *ending) func() {
	if given == &timedOut {
		return c.expire
	}
	return func() { c.expireWith(given) }
}

func (c *deadlineContext) expire() { c.expireWith(&timedOut) }

func (c *deadlineContext) expireWith(e *ending) {
	if c.finish(e) {
		c.leave()
	}
}

// look is how the context has ended, nil where it has not.
func (c *deadlineContext) look() *ending {
	e := c.end.Load()
	if e == nil {
		if e = c.above(); e != nil {
			c.endWith(e)
			e = c.end.Load()
		}
	}
	return e
}

// above is how the parent has ended, which perhaps nobody has said yet; nil where it has not.
func (c *deadlineContext) above() *ending {
	switch f := c.bond.Load(); f {
	case nil, &endless, &tiedBlind:
		return nil
	case &gone: // while it was asked
		return c.end.Load()
	case &tiedAlone:
		return c.tie.ended()
	default:
		return f.ended()
	}
}

// sign makes sure that the channel is closed before anybody learns that the context has ended.
func (c *deadlineContext) sign() {
	if s := c.standIn.Load(); s != nil {
		s.follow()
	}
}

// made is told with what the context ends. It is false where it has ended while it was made: then
// nobody else gives back what it holds.
func (c *deadlineContext) made(bond *family) bool {
	if c.bond.CompareAndSwap(nil, bond) {
		return true
	}
	c.timer = Timer{}
	return false
}

// leave gives back what the context, which has ended, holds.
func (c *deadlineContext) leave() {
	switch f := c.bond.Swap(&gone); {
	case f == nil: // see made
		return
	case f == &tiedAlone || f == &tiedBlind:
		c.tie.forget()
		c.tie.known.unknow(c.tie.done)
	case f.home != nil:
		f.home.leave(f, c)
	case f.ours != nil:
		f.mu.Lock()
		f.remove(c)
		f.mu.Unlock()
	}
	c.timer = Timer{} // it holds on to a shard
}

func (c *deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *deadlineContext) Done() <-chan struct{} { return c.channel(c.look()) }

// channel is the one to wait for. e is how the context had ended a moment ago.
func (c *deadlineContext) channel(e *ending) <-chan struct{} {
	if e != nil && c.standIn.Load() == nil { // after e, see closed
		return closed
	}
	return c.following().ctx.Done()
}

// hasChannel reports whether done, which was open a moment ago, is the context's. Then there has
// been a stand-in since.
func (c *deadlineContext) hasChannel(done <-chan struct{}) bool {
	s := c.standIn.Load()
	return s != nil && s.ctx.Done() == done
}

func (c *deadlineContext) Err() error {
	e := c.look()
	if e == nil {
		return nil
	}
	if c.bond.Load() != &gone { // else whoever has ended it has signed as well
		c.sign()
	}
	return e.err
}

// deadlineKey is the key under which a context of this package finds itself, and its children find
// it.
var deadlineKey = new(int)

// Value is that of the parent, and what package context looks for.
func (c *deadlineContext) Value(key any) any {
	switch key {
	case deadlineKey:
		return c
	case cancelKey:
		return c.standingValue()
	}
	return c.parent.Value(key)
}

// AfterFunc is [context.AfterFunc].
func (c *deadlineContext) AfterFunc(f func()) (stop func() bool) {
	c.look()
	return context.AfterFunc(c.following().ctx, f)
}

// standIn is how package context sees a context of a wheel: as one of its own, ctx, with the same
// channel. It looks for the nearest of its own contexts by a key, hangs children onto it, also
// those of contexts with values in between, and reads the cause there. So no goroutine waits for
// anything.
//
// ctx is made as a child of the standIn, which captures by what function that is cancelled: with
// the error and the cause of its parent, whatever these are. Rejected: a channel of one's own and a
// method AfterFunc, with half of the memory where Done is asked for. Each context of package
// context below one with a value would cost a goroutine.
type standIn struct {
	of     *deadlineContext
	ctx    context.Context
	cancel func()
}

// standing is the context's standIn.
func (c *deadlineContext) standing() *standIn {
	if s := c.standIn.Load(); s != nil {
		return s
	}
	s := &standIn{of: c}
	ctx, cancel := context.WithCancel(s)
	_ = cancel // its error would always be the same
	s.ctx = ctx
	if c.standIn.CompareAndSwap(nil, s) {
		return s
	}
	return c.standIn.Load()
}

// standingValue is what package context finds under its key. Where nobody has asked for Done nobody
// can have hung anything onto it.
func (c *deadlineContext) standingValue() any {
	if c.look() == nil && c.standIn.Load() == nil {
		return nil
	}
	return c.following().ctx.Value(cancelKey)
}

// following is the context's standIn, which has ended if the context has.
func (c *deadlineContext) following() *standIn {
	s := c.standing()
	if c.end.Load() != nil { // after s, which may have been made by somebody who has not let it follow yet
		s.follow()
	}
	return s
}

// follow ends ctx, with all that hangs there, after its context has ended. Its channel is closed
// when it returns.
func (s *standIn) follow() {
	if s.ctx.Err() == nil {
		s.cancel()
	}
	<-s.ctx.Done() // early releases of Go 1.25 close it after they have set the error
}

// closed is the channel of all contexts of package context that have ended before anybody asked for
// it, and so of ours. A standIn that comes later has the same one: whoever asks for its channel
// looks at the end after he has found or made it, and lets it follow first. So nobody sees two
// channels.
var closed = func() <-chan struct{} {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx.Done()
}()

// AfterFunc captures how to cancel ctx. It is called once, by package context.
func (s *standIn) AfterFunc(cancel func()) (stop func() bool) {
	s.cancel = cancel
	return stay
}

func stay() bool { return false }

// open is the channel of every standIn. Nobody closes it, and nobody waits for it.
var open = make(chan struct{})

func (s *standIn) Done() <-chan struct{} { return open }

func (s *standIn) Deadline() (time.Time, bool) { return s.of.Deadline() }

func (s *standIn) Err() error {
	if e := s.of.end.Load(); e != nil {
		return e.err
	}
	return nil
}

// Value tells the cause where that is not the error: with a context of package context that has it.
func (s *standIn) Value(key any) any {
	switch key {
	case deadlineKey:
		return s.of
	case cancelKey:
		e := s.of.end.Load()
		if e == nil || e.plain() {
			return nil
		}
		holder, cancel := context.WithCancelCause(context.Background())
		cancel(e.cause)
		return holder.Value(cancelKey)
	}
	return s.of.parent.Value(key)
}

// cancelKey is the key under which package context looks for the nearest context of its own: to
// hang children onto it and to read the cause. It is learned from a question.
var cancelKey = func() any {
	asked := keyCatcher{Context: context.Background(), key: new(any)}
	_ = context.Cause(asked)
	return *asked.key
}()

// keyCatcher notes the key that it is asked for. It has ended: of others nobody asks for the cause.
type keyCatcher struct {
	context.Context
	key *any
}

func (k keyCatcher) Err() error { return context.Canceled }

func (k keyCatcher) Value(key any) any {
	*k.key = key
	return nil
}

func (c *deadlineContext) String() string {
	name := fmt.Sprintf("%T", c.parent)
	if s, ok := c.parent.(fmt.Stringer); ok {
		name = s.String()
	}
	return name + ".WithDeadline(" + c.deadline.String() + ")"
}

// family is what ends together with a context: with one of this package, or with one of another, of
// which it is told by one function of [context.AfterFunc] for all of them.
type family struct {
	relation
	finishing sync.Mutex // held by whoever ends the members: who comes second waits

	mu      sync.Mutex
	over    bool // the context has ended, or, of another package, nobody is left
	members *deadlineContext

	home   *families   // of another package's
	forget func() bool // ends the watch over its end
}

// add takes in a member. It is false where the family is over: then the context, which the caller
// ends, is bound to nobody. mu is held.
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

// remove takes a context out of the list, unless the family is over or does not have it. mu is
// held.
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

// finish ends all that belong to the family, or waits for another who is at it, as cancel of
// package context does. mu is not held meanwhile, so members come to ask and leave.
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

// relation is whom a context ends with: one of this package, or another with a channel. Without
// either it never ends with another.
type relation struct {
	ours *deadlineContext
	to   context.Context // else: of package context, where it has the channel of the parent
	done <-chan struct{} // of to, or of the next above ours that is of another package: ours may not have been told yet
	far  *farBelow       // done's, where that is of package context and below one of this package
	lone bool            // to cannot be the key of a map
	told bool            // to is of a third package: it is not asked for its error, as whoever asks may hold a lock that this takes
}

// above is the relation to a parent. What matters is whose channel the parent has, as in package
// context: contexts that have been put around that one have no say in how it ends, and are not
// kept. Only a parent that has ended says itself how, also as in that package.
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

// ended is how it has ended; nil where it has not, or where that is only told. While nobody above
// has ended it asks one context for each change of package.
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
	known  *families   // where the parent may be noted
}

// ended is how it has ended, nil where it has not.
func (t *tie) ended() *ending {
	if !isClosedBelow(t.done, t.far()) {
		return nil
	}
	return endOf(t.to)
}

// farBelow is a context of package context below one of this package, which it also is the parent
// of ties with: few have such a one, so they have no field for it.
type farBelow struct {
	context.Context
	up atomic.Pointer[deadlineContext] // the next one above; nil where it has turned out that this does not end with that
}

// newFarBelow is nil where no context of this package is above. What is around std does not count,
// as others have the same relation to it.
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

// isClosedBelow reports whether the channel of a context of package context is closed, and sees to
// it first where the next one of this package above that has ended: nobody but that one's goroutine
// of the moment may have said so.
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

// families finds the family of a parent of another package. They are those of one wheel. The mutex
// of a stripe comes before that of a family.
//
// Most parents have one child, as that of a request does, and a family would cost such a child more
// than its timer. So the first child of a parent is tied to it alone, and those that come while it
// lives share a family. That it lives is noted by a hash: where the note was overwritten, one more
// is tied alone.
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
		c.tieAlone(up, all)
	}
}

// tieAlone lets a context be told of its parent's end. Nothing is locked, as the parent may be
// anybody's.
func (c *deadlineContext) tieAlone(up relation, all *families) {
	c.tie = &tie{to: up.to, done: up.done, known: all}
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

// watch has the family told of the parent's end. Nothing is locked, as the parent may be anybody's.
// The family may be over by the time it is watched.
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
