package timingwheel

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/atomic"
)

// deadlineContext is a context with a deadline of a wheel.
//
// Whoever sets end has ended it, and does what follows: done is closed, and the family of those that end with it is told. Both come into being when
// somebody asks for them, and whoever makes one looks at end afterwards. So nothing is locked where there are no relatives.
type deadlineContext struct {
	parent   context.Context
	deadline time.Time
	timer    Timer       // set before anybody else has the context, but for expire, which does not ask for it
	forget   func() bool // ends the watch over a parent of another package: see watchAlone
	end      atomic.Pointer[ending]
	done     atomic.Pointer[signal]
	children atomic.Pointer[family]

	family     atomic.Pointer[family] // with which it ends, or one of those below; nil: it never ends with another, or is being made
	prev, next *deadlineContext       // there, under its mu
}

// What a context has instead of a family.
var (
	loner family // it is told of the end of its parent by itself
	gone  family // it has left
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

// endOf is how any context has ended, nil where it has not.
func endOf(ctx context.Context) *ending {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	return &ending{err: err, cause: context.Cause(ctx)}
}

// signal is a channel that is closed once. Whoever closes it finds it closed afterwards, also where somebody else is at it.
type signal struct {
	c    chan struct{}
	once sync.Once
}

func (s *signal) close() { s.once.Do(func() { close(s.c) }) }

// finish ends the context and those that end with it. It is false where that has been done before.
func (c *deadlineContext) finish(e *ending) bool {
	if !c.end.CompareAndSwap(nil, e) {
		return false
	}
	if s := c.done.Load(); s != nil {
		s.close()
	}
	if f := c.children.Load(); f != nil {
		f.finish(e)
	}
	return true
}

func (c *deadlineContext) cancel() { c.endWith(&cancelled) }

// endWith ends the context, unless that has been done, and gives back what it holds.
func (c *deadlineContext) endWith(e *ending) {
	if c.finish(e) {
		c.timer.Stop()
		c.leave()
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

// follow ends the context with its parent, which has ended.
func (c *deadlineContext) follow() {
	if e := endOf(c.parent); e != nil {
		c.endWith(e)
	}
}

// look is how the context has ended, nil where it has not. Its parent may have ended, and nobody has said so yet.
func (c *deadlineContext) look() *ending {
	if e := c.end.Load(); e != nil {
		return e
	}
	if c.parent.Err() != nil {
		c.follow()
	}
	return c.end.Load()
}

func (c *deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *deadlineContext) Done() <-chan struct{} {
	s := c.done.Load()
	if s == nil {
		c.done.CompareAndSwap(nil, &signal{c: make(chan struct{})})
		s = c.done.Load()
	}
	if c.look() != nil {
		s.close()
	}
	return s.c
}

func (c *deadlineContext) Err() error {
	if e := c.look(); e != nil {
		return e.err
	}
	return nil
}

// deadlineKey is the key under which a context of this package finds itself, and its children find it.
var deadlineKey = new(int)

// Value is that of the parent, and what package context asks for when somebody wants to know the cause: see causeKey.
func (c *deadlineContext) Value(key any) any {
	switch key {
	case deadlineKey:
		return c
	case causeKey:
		return c.causeHolder()
	}
	return c.parent.Value(key)
}

// causeKey is the key under which [context.Cause] looks for the nearest context of its own package. To be asked for it is the only way in which
// another context can tell a cause. It is learned from a question.
var causeKey = func() any {
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

// causeHolder is a context of package context with the cause of this one; nil where that is the error, or there is none: then Err is asked. Nothing is
// ever hung onto it, as its Done is another one.
func (c *deadlineContext) causeHolder() any {
	e := c.look()
	if e == nil || e.cause == e.err {
		return nil
	}
	holder, cancel := context.WithCancelCause(context.Background())
	cancel(e.cause)
	return holder.Value(causeKey)
}

// AfterFunc is how package context hangs its contexts onto others without a goroutine. f runs within the call that ends the context, or in a goroutine
// where it has ended already, as whoever asks may hold a lock that f wants. Others use [context.AfterFunc].
func (c *deadlineContext) AfterFunc(f func()) (stop func() bool) {
	d := &dependent{f: f}
	if !c.familyOfChildren().addDependent(d) {
		go f()
		return func() bool { return false }
	}
	if c.end.Load() != nil { // before the family was there. To look at the parent here might call f
		if d.leave() {
			go f()
		}
	}
	return d.leave
}

func (c *deadlineContext) familyOfChildren() *family {
	if f := c.children.Load(); f != nil {
		return f
	}
	c.children.CompareAndSwap(nil, &family{})
	return c.children.Load()
}

func (c *deadlineContext) String() string {
	name := fmt.Sprintf("%T", c.parent)
	if s, ok := c.parent.(fmt.Stringer); ok {
		name = s.String()
	}
	return name + ".WithDeadline(" + c.deadline.String() + ")"
}
