package timingwheel

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// WithTimeout is [context.WithTimeout] with a timer of the wheel: the context ends when d has
// passed, up to one tick later and never earlier, when it is cancelled, or when parent ends. Use
// package context instead if other code derives contexts by WithValue from this one and then
// contexts of package context from those: each of the latter costs a goroutine. docs/contexts.md has
// all differences.
//
// The wheel's Stop hands the deadline to the runtime's timers, which also keep those of contexts
// that are made later. In Manual mode the deadline is one of the wheel's clock; what is left of it
// at Stop passes in real time. Flush ends the context.
//
// WithTimeout panics if parent is nil. O(1), apart from parent's methods.
func (tw *TimingWheel) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return tw.withDeadline(parent, tw.today().Add(d), d, nil)
}

// WithTimeoutCause is WithTimeout with a cause for [context.Cause], for the case that the time has
// passed. The cancel function does not set the cause.
func (tw *TimingWheel) WithTimeoutCause(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	return tw.withDeadline(parent, tw.today().Add(d), d, cause)
}

// WithDeadline is WithTimeout for a point in time. See [TimingWheel.AtFunc].
func (tw *TimingWheel) WithDeadline(parent context.Context, t time.Time) (context.Context, context.CancelFunc) {
	return tw.withDeadline(parent, t, t.Sub(tw.today()), nil)
}

// WithDeadlineCause is WithTimeoutCause for a point in time.
func (tw *TimingWheel) WithDeadlineCause(parent context.Context, t time.Time, cause error) (context.Context, context.CancelFunc) {
	return tw.withDeadline(parent, t, t.Sub(tw.today()), cause)
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

// withDeadline makes a context. left is the time until t.
func (tw *TimingWheel) withDeadline(parent context.Context, t time.Time, left time.Duration, cause error) (context.Context, context.CancelFunc) {
	if parent == nil {
		panic("timingwheel: context of a nil parent")
	}
	c := &deadlineContext{parent: parent, deadline: t}
	cancel, late := c.end, &timedOut
	if cause != nil {
		e := &causedEnd{c, phase{err: context.DeadlineExceeded, cause: causeContext(cause)}}
		cancel, late = e.end, &e.late
	}
	if earlier, ok := parent.Deadline(); ok && earlier.Before(t) {
		if parent.Value(&ownKey) == nil {
			return context.WithCancel(parent)
		}
		c.deadline = earlier
	} else if left <= 0 {
		c.finish(late, true)
	} else if !knownEnded(parent) {
		c.arm(tw, cancel, left, late)
		if tellsItself(parent) {
			c.Done()
		}
	}
	return c, cancel
}

// knownEnded reports whether a timer below parent would be useless. It does not ask all
// deadlineContexts above one, as Err does.
func knownEnded(parent context.Context) bool {
	if p, own := parent.(*deadlineContext); own {
		return p.phase.Load().ended()
	}
	return parent.Err() != nil
}

// tellsItself reports whether parent is of a third package and tells of its end by functions. It
// may rely on having one for each child.
func tellsItself(parent context.Context) bool {
	if _, own := parent.(*deadlineContext); own {
		return false
	}
	_, ok := parent.(interface{ AfterFunc(f func()) func() bool })
	return ok
}

// deadlineContext is a context with a timer of a wheel.
//
// Before the first call of Done the parent does not know the context, and Err asks the parent. The
// first call of Done makes the line, whose channel is closed with the parent's.
//
// Package context hangs its contexts on this one by the method AfterFunc. It reads the cause from a
// context of its own, which Value returns after the end.
//
// A context of package context that is cancelled calls no foreign code. So above asks whether the
// parent has ended, although nothing may have told the context yet.
type deadlineContext struct {
	parent   context.Context
	deadline time.Time

	// phase is nil until the first call of Done. It is written under mu, after line.
	phase atomic.Pointer[phase]
	line  context.Context // has the channel; a doneChan, or a child of parent in package context

	mu    sync.Mutex
	timer Timer  // zero if there is none, and after the end
	stop  func() // ends the watch over the parent; nil if there is none
}

// phase tells whether and how a context has ended. Only dependents changes.
type phase struct {
	err        error           // nil while the context goes on
	cause      context.Context // a context of package context with the cause; nil: the parent has it
	dependents *dependent      // deadlineContext.mu: until the end
}

var (
	open           phase // for all contexts without dependents
	cancelled      = phase{err: context.Canceled, cause: causeContext(context.Canceled)}
	timedOut       = phase{err: context.DeadlineExceeded, cause: causeContext(context.DeadlineExceeded)}
	aboveCancelled = phase{err: context.Canceled}
	aboveTimedOut  = phase{err: context.DeadlineExceeded}
)

// causeContext returns a context of package context that has ended with a cause. Its Value returns
// something only for the key by which package context looks for causes.
func causeContext(cause error) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return ctx
}

// ended reports whether p is a phase after the end.
func (p *phase) ended() bool { return p != nil && p.err != nil }

// doneChan is the line of a context whose parent never ends or is a deadlineContext.
type doneChan chan struct{}

func (d doneChan) Done() <-chan struct{}         { return d }
func (doneChan) Err() error                      { return nil }
func (doneChan) Value(any) any                   { return nil }
func (doneChan) Deadline() (_ time.Time, _ bool) { return }

// closedLine is the line of contexts that have ended before the first call of Done.
var closedLine = func() doneChan {
	d := make(doneChan)
	close(d)
	return d
}()

// arm sets the timer. On a stopped wheel that is one of the runtime.
func (c *deadlineContext) arm(tw *TimingWheel, end func(), left time.Duration, late *phase) {
	c.mu.Lock() // the timer may fire at once
	c.timer = tw.engine.lastingAt(c.deadline, end)
	stopped := c.timer == Timer{}
	c.mu.Unlock()
	if !stopped {
		return
	}
	t := time.AfterFunc(left, func() { c.finish(late, true) })
	if c.hang(func() { t.Stop() }) == nil {
		t.Stop()
	}
}

// end is the cancel function and the callback of the timer in one, which saves an allocation. The
// timer tells them apart: it is pending if the call is a cancel.
func (c *deadlineContext) end() { c.finish(&timedOut, false) }

// causedEnd is end for a context with a cause.
type causedEnd struct {
	c    *deadlineContext
	late phase
}

func (e *causedEnd) end() { e.c.finish(&e.late, false) }

// finish ends the context and what depends on it. Everything has ended when finish returns, also if
// another goroutine was first. late is the phase at the deadline. If passed is false, the timer
// tells whether the deadline has passed.
func (c *deadlineContext) finish(late *phase, passed bool) {
	above := c.above()
	c.mu.Lock()
	p := c.phase.Load()
	var stop func()
	if !p.ended() {
		p, stop = c.settle(p, above, late, passed), c.stop
		c.stop = nil
	}
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
	<-c.line.Done() // another goroutine may be about to close it
	if p.dependents == nil {
		return
	}
	for d := p.dependents; d != nil; d = d.next {
		d.once.Do(d.f)
	}
	c.mu.Lock()
	c.phase.Store(&phase{err: p.err, cause: p.cause})
	c.mu.Unlock()
}

// settle decides how the context ends and returns its last phase. mu is held.
func (c *deadlineContext) settle(p *phase, above error, late *phase, passed bool) *phase {
	had := c.timer != Timer{}
	pending := c.timer.Stop() || had && c.timer.stopSurvivor()
	c.timer = Timer{} // it would keep the wheel
	next := &cancelled
	switch {
	case above == context.Canceled:
		next = &aboveCancelled
	case above == context.DeadlineExceeded:
		next = &aboveTimedOut
	case above != nil:
		next = &phase{err: above}
	case passed || had && !pending:
		next = late
	}
	if p != nil && p.dependents != nil {
		next = &phase{err: next.err, cause: next.cause, dependents: p.dependents}
	}
	if c.line == nil {
		c.line = closedLine
	}
	c.phase.Store(next)
	if d, ok := c.line.(doneChan); ok && d != closedLine {
		close(d)
	}
	return next
}

// stopSurvivor is Stop for a timer that the runtime has taken over from a stopped wheel.
func (t Timer) stopSurvivor() bool {
	s, ok := t.home.shard.host.(*shardOf[func()])
	return ok && s.closed.Load() && s.engine.survivors.stop(t)
}

// above returns the error of the parent if it has ended. A line in package context has it as well,
// and asking that does not call the parent.
func (c *deadlineContext) above() error {
	if c.phase.Load() != nil {
		if _, ok := c.line.(doneChan); !ok {
			return c.line.Err()
		}
	}
	return c.parent.Err()
}

// Deadline implements context.Context.
func (c *deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements context.Context.
func (c *deadlineContext) Done() <-chan struct{} {
	switch p := c.phase.Load(); {
	case p == nil:
		c.watch()
	case p.err == nil && c.above() != nil: // and perhaps nothing has told it yet
		c.end()
	}
	return c.line.Done()
}

// Err implements context.Context.
func (c *deadlineContext) Err() error {
	p := c.phase.Load()
	if !p.ended() {
		if c.above() == nil {
			return nil
		}
		c.end()
		p = c.phase.Load()
	}
	<-c.line.Done() // the goroutine that ends the context is about to close it
	return p.err
}

// ownKey is the key under which a deadlineContext returns itself.
var ownKey int

// Value implements context.Context.
func (c *deadlineContext) Value(key any) any {
	if key == &ownKey {
		return c
	}
	if p := c.phase.Load(); p.ended() {
		from := p.cause
		if from == nil {
			from = c.line
		}
		if v := from.Value(key); v != nil {
			return v
		}
	}
	return c.parent.Value(key)
}

func (c *deadlineContext) String() string {
	name := fmt.Sprintf("%T", c.parent)
	if s, ok := c.parent.(fmt.Stringer); ok {
		name = s.String()
	}
	return name + ".WithDeadline(" + c.deadline.String() + ")"
}

// watch makes the line and has the context told of its parent's end.
func (c *deadlineContext) watch() {
	var line context.Context
	var stop func()
	done := c.parent.Done()
	own := ownParent(c.parent, done)
	if done == nil || own != nil {
		line = make(doneChan)
	} else {
		line, stop = context.WithCancel(c.parent)
	}
	c.mu.Lock()
	if c.phase.Load() != nil { // another goroutine was first, or the context has ended
		c.mu.Unlock()
		if stop != nil {
			stop()
		}
		return
	}
	c.line, c.stop = line, stop
	c.phase.Store(&open)
	c.mu.Unlock()
	if own != nil {
		if d := own.hang(c.end); d != nil {
			c.watched(func() { d.drop() })
		} else {
			c.end()
		}
	} else if line.Err() != nil {
		c.end()
	}
}

// watching makes the line unless there is one.
func (c *deadlineContext) watching() {
	if c.phase.Load() == nil {
		c.watch()
	}
}

// ownParent returns the deadlineContext whose channel is done and that is parent or above it.
func ownParent(parent context.Context, done <-chan struct{}) *deadlineContext {
	if done == nil {
		return nil
	}
	if p, ok := parent.Value(&ownKey).(*deadlineContext); ok {
		if p.watching(); p.line.Done() == done {
			return p
		}
	}
	return nil
}

// watched notes how to end the watch over the parent, or ends it if the context has ended.
func (c *deadlineContext) watched(stop func()) {
	c.mu.Lock()
	over := c.phase.Load().ended()
	if !over {
		c.stop = stop
	}
	c.mu.Unlock()
	if over {
		stop()
	}
}

// dependent is a function that is called at the end of a context.
type dependent struct {
	of         *deadlineContext
	f          func()     // of.mu: nil after drop
	prev, next *dependent // of.mu: until the end
	once       sync.Once  // a second goroutine that ends the context waits here
}

// AfterFunc is the method by which package context hangs its contexts on this one. f is called on
// the goroutine that ends the context, so that it has returned when cancel returns. The functions of
// package context never block.
func (c *deadlineContext) AfterFunc(f func()) (stop func() bool) {
	if d := c.hang(f); d != nil {
		return d.drop
	}
	go f() // the caller may hold a lock that f wants
	return func() bool { return false }
}

// hang adds a dependent. It returns nil if the context has ended.
func (c *deadlineContext) hang(f func()) *dependent {
	c.watching()
	c.mu.Lock()
	p := c.phase.Load()
	if p.ended() {
		c.mu.Unlock()
		return nil
	}
	first := p == &open
	if first {
		p = new(phase)
		c.phase.Store(p)
	}
	d := &dependent{of: c, f: f, next: p.dependents}
	if d.next != nil {
		d.next.prev = d
	}
	p.dependents = d
	stop := c.stop
	c.mu.Unlock()
	if _, own := c.line.(doneChan); first && !own {
		forget := context.AfterFunc(c.line, c.end)
		c.watched(func() { forget(); stop() })
	}
	return d
}

// drop removes the dependent. It returns false if it was removed before or the context has ended.
func (d *dependent) drop() bool {
	c := d.of
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.phase.Load()
	if p.ended() || d.f == nil {
		return false
	}
	if d.f = nil; d.prev != nil {
		d.prev.next = d.next
	} else {
		p.dependents = d.next
	}
	if d.next != nil {
		d.next.prev = d.prev
	}
	return true
}
