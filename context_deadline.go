package timingwheel

import (
	"context"
	"time"

	"go.uber.org/atomic"
)

// deadlineContext is a context with a deadline of a wheel.
//
// Whoever sets end has ended it, and does what follows: its stand-in in package context is cancelled, and the family of those that end with it is told.
// Both come into being when somebody asks for them, and whoever makes one looks at end afterwards. So nothing is locked where there are no relatives.
//
// Others may come to ask while that is under way, or before anybody has said that the parent has ended. They find it out and do it themselves.
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

// finish ends the context and those that end with it. It is false where that has been done before, or is being done.
func (c *deadlineContext) finish(e *ending) bool {
	if !c.end.CompareAndSwap(nil, e) {
		return false
	}
	c.settle()
	return true
}

// settle is for a context that has ended. All that ends with it has ended when it returns, also where somebody else is at it.
func (c *deadlineContext) settle() {
	c.tellBelow()
	if f := c.children.Load(); f != nil {
		f.finish(c.end.Load())
	}
}

// endWith ends the context and gives back what it holds. It is false where that has been done before, or is being done.
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

// atDeadline is what the wheel calls then. A cause of one's own is not kept in the context, as few have one.
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

// made is told with what the context ends. It is false where it has ended while it was made: then nobody else gives back what it holds.
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
		if s := c.timer.shard; s != nil {
			s.kin.unknow(c.tie.done)
		}
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

// hasChannel reports whether done, which was open a moment ago, is the context's. Then there has been a stand-in since.
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

// deadlineKey is the key under which a context of this package finds itself, and its children find it.
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
