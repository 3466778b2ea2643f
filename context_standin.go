package timingwheel

import (
	"context"
	"fmt"
	"time"
)

// standIn is how package context sees a context of a wheel: as one of its own, ctx, with the same channel. It looks for the nearest of its own contexts by a
// key, hangs children onto it, also those of contexts with values in between, and reads the cause there. So no goroutine waits for anything.
//
// ctx is made as a child of the standIn, which captures by what function that is cancelled: with the error and the cause of its parent, whatever these are.
// Rejected: a channel of one's own and a method AfterFunc, with half of the memory where Done is asked for. Each context of package context below
// one with a value would cost a goroutine.
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

// standingValue is what package context finds under its key. Where nobody has asked for Done nobody can have hung anything onto it.
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

// follow ends ctx, with all that hangs there, after its context has ended. Its channel is closed when it returns.
func (s *standIn) follow() {
	if s.ctx.Err() == nil {
		s.cancel()
	}
	<-s.ctx.Done() // early releases of Go 1.25 close it after they have set the error
}

// closed is the channel of all contexts of package context that have ended before anybody asked for it, and so of ours. A standIn that comes
// later has the same one: whoever asks for its channel looks at the end after he has found or made it, and lets it follow first. So nobody sees two
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

// cancelKey is the key under which package context looks for the nearest context of its own: to hang children onto it and to read the cause. It is
// learned from a question.
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
