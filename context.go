package timingwheel

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// WithTimeout is [context.WithTimeout] with a timer of the wheel: the context ends when d has
// passed or up to one tick later, when it is cancelled, or when parent ends. Use package context
// instead if other code derives contexts by WithValue from this one and then contexts of package
// context from those: each of the latter costs a goroutine. docs/contexts.md has all differences.
//
// Flush ends the context. Once the wheel is stopped, the runtime's timers keep the deadlines, also
// of contexts that are made later. In Manual mode the deadline is one of the wheel's clock, and
// what is left of it at Stop passes in real time. WithTimeout panics if parent is nil.
func (tw *TimingWheel) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return tw.withDeadline(parent, tw.today().Add(d), d, nil)
}

// WithTimeoutCause is WithTimeout with a cause for [context.Cause] if the context ends because d
// has passed. The cancel function sets no cause.
func (tw *TimingWheel) WithTimeoutCause(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	return tw.withDeadline(parent, tw.today().Add(d), d, cause)
}

// WithDeadline is WithTimeout for a point in time.
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
		if hasAfterFunc(parent) {
			c.Done()
		}
	}
	return c, cancel
}

// knownEnded reports whether parent has ended, so that a timer below it would be useless. Unlike
// Err it does not ask the parents of a deadlineContext.
func knownEnded(parent context.Context) bool {
	if p, own := parent.(*deadlineContext); own {
		return p.phase.Load().ended()
	}
	return parent.Err() != nil
}

// hasAfterFunc reports whether parent is of a third package and has the method AfterFunc. Such a
// context may expect a call for each child, so the child makes one at once.
func hasAfterFunc(parent context.Context) bool {
	if _, own := parent.(*deadlineContext); own {
		return false
	}
	_, ok := parent.(interface{ AfterFunc(f func()) func() bool })
	return ok
}

// deadlineContext is a context with a timer of a wheel.
//
// Before the first call of Done nothing is registered with the parent, and Err asks the parent. The
// first call of Done makes the signal, whose channel is closed with the parent's.
//
// Package context registers its contexts with this one by the method AfterFunc. It reads the cause
// from a context of its own, which Value returns after the end.
//
// A context of package context that is cancelled calls no foreign code. parentErr therefore asks
// the parent, although the context may not have been notified yet.
type deadlineContext struct {
	parent   context.Context
	deadline time.Time

	// phase is nil until the first call of Done. It is written under mu, after signal.
	phase  atomic.Pointer[phase]
	signal context.Context // has the channel: a doneChan, or a child of parent in package context

	mu    sync.Mutex
	timer Timer  // zero if there is none, and after the end
	stop  func() // removes the context from its parent; nil if it is not registered there
}

// phase says whether and how a context has ended. Only dependents changes.
type phase struct {
	err        error           // nil while the context goes on
	cause      context.Context // a context of package context with the cause; nil: the parent has it
	dependents *dependent      // deadlineContext.mu: until the end
}

var (
	open            phase // for all contexts without dependents
	cancelled       = phase{err: context.Canceled, cause: causeContext(context.Canceled)}
	timedOut        = phase{err: context.DeadlineExceeded, cause: causeContext(context.DeadlineExceeded)}
	parentCancelled = phase{err: context.Canceled}
	parentTimedOut  = phase{err: context.DeadlineExceeded}
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

// doneChan is the signal of a context whose parent never ends or is a deadlineContext.
type doneChan chan struct{}

func (d doneChan) Done() <-chan struct{}         { return d }
func (doneChan) Err() error                      { return nil }
func (doneChan) Value(any) any                   { return nil }
func (doneChan) Deadline() (_ time.Time, _ bool) { return }

// closedSignal is the signal of contexts that have ended before the first call of Done.
var closedSignal = func() doneChan {
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
	if c.addDependent(func() { t.Stop() }) == nil {
		t.Stop()
	}
}

// end is both the cancel function and the callback of the timer, which saves an allocation. The
// timer tells the two calls apart: it is pending if the call is a cancel.
func (c *deadlineContext) end() { c.finish(&timedOut, false) }

// causedEnd is end for a context with a cause.
type causedEnd struct {
	c    *deadlineContext
	late phase
}

func (e *causedEnd) end() { e.c.finish(&e.late, false) }

// finish ends the context and its dependents. All of them have ended when finish returns, also if
// another goroutine was first. late is the phase after the deadline. If passed is false, the timer
// says whether the deadline has passed.
func (c *deadlineContext) finish(late *phase, passed bool) {
	parentErr := c.parentErr()
	c.mu.Lock()
	p := c.phase.Load()
	var stop func()
	if !p.ended() {
		p, stop = c.settle(p, parentErr, late, passed), c.stop
		c.stop = nil
	}
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
	<-c.signal.Done() // another goroutine may be about to close it
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
func (c *deadlineContext) settle(p *phase, parentErr error, late *phase, passed bool) *phase {
	had := c.timer != Timer{}
	pending := had && c.timer.cancelLasting()
	c.timer = Timer{} // it would keep the wheel
	next := &cancelled
	switch {
	case parentErr == context.Canceled:
		next = &parentCancelled
	case parentErr == context.DeadlineExceeded:
		next = &parentTimedOut
	case parentErr != nil:
		next = &phase{err: parentErr}
	case passed || had && !pending:
		next = late
	}
	if p != nil && p.dependents != nil {
		next = &phase{err: next.err, cause: next.cause, dependents: p.dependents}
	}
	if c.signal == nil {
		c.signal = closedSignal
	}
	c.phase.Store(next)
	if d, ok := c.signal.(doneChan); ok && d != closedSignal {
		close(d)
	}
	return next
}

// parentErr returns the error of the parent if the parent has ended. A signal of package context
// has ended with the parent, and asking the signal calls no method of the parent.
func (c *deadlineContext) parentErr() error {
	if c.phase.Load() != nil {
		if _, ok := c.signal.(doneChan); !ok {
			return c.signal.Err()
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
	case p.err == nil && c.parentErr() != nil: // and the context may not have been notified yet
		c.end()
	}
	return c.signal.Done()
}

// Err implements context.Context.
func (c *deadlineContext) Err() error {
	p := c.phase.Load()
	if !p.ended() {
		if c.parentErr() == nil {
			return nil
		}
		c.end()
		p = c.phase.Load()
	}
	<-c.signal.Done() // the goroutine that ends the context is about to close it
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
			from = c.signal
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

// watch makes the signal and registers the context with its parent.
func (c *deadlineContext) watch() {
	var signal context.Context
	var stop func()
	done := c.parent.Done()
	own := ownParent(c.parent, done)
	if done == nil || own != nil {
		signal = make(doneChan)
	} else {
		signal, stop = context.WithCancel(c.parent)
	}
	c.mu.Lock()
	if c.phase.Load() != nil { // another goroutine was first, or the context has ended
		c.mu.Unlock()
		if stop != nil {
			stop()
		}
		return
	}
	c.signal, c.stop = signal, stop
	c.phase.Store(&open)
	c.mu.Unlock()
	if own != nil {
		if d := own.addDependent(c.end); d != nil {
			c.watched(func() { d.drop() })
		} else {
			c.end()
		}
	} else if signal.Err() != nil {
		c.end()
	}
}

// watching calls watch unless there is a signal.
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
		if p.watching(); p.signal.Done() == done {
			return p
		}
	}
	return nil
}

// watched notes stop, which removes the context from its parent, or calls stop if the context has
// ended.
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

// AfterFunc is the method by which package context registers its contexts with this one. The
// goroutine that ends the context calls f, so f has returned when cancel returns. The functions of
// package context never block. An f that calls cancel itself would wait for itself.
func (c *deadlineContext) AfterFunc(f func()) (stop func() bool) {
	if d := c.addDependent(f); d != nil {
		return d.drop
	}
	go f() // the caller may hold a lock that f wants
	return func() bool { return false }
}

// addDependent adds a dependent. It returns nil if the context has ended.
func (c *deadlineContext) addDependent(f func()) *dependent {
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
	if _, own := c.signal.(doneChan); first && !own {
		forget := context.AfterFunc(c.signal, c.end)
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
