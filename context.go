package timingwheel

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// WithTimeout is like [context.WithTimeout], but uses a timer on the wheel. It returns a context
// that ends when d has passed or up to one tick later, when the cancel function is called, or when
// parent ends, whichever comes first. If d is zero or negative, the context has ended already. Call
// the cancel function when the context is no longer needed, to release the timer.
//
// If a context is derived from this one by [context.WithValue], each cancellable context that
// package context derives from the result costs a goroutine. Use package context instead if other
// code derives many such contexts. docs/contexts.md lists all differences.
//
// [TimingWheel.Flush] ends the context. If the wheel is stopped, a runtime timer takes over the
// deadline. A context that is made on a stopped wheel has a runtime timer from the beginning. In
// Manual mode the deadline is on the wheel's clock. If a Manual wheel is stopped, the remaining
// time passes in real time. WithTimeout panics if parent is nil.
func (tw *TimingWheel) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return tw.withDeadline(parent, tw.engine.config.Now().Add(d), d, nil)
}

// WithTimeoutCause is like [TimingWheel.WithTimeout] but sets the cause that [context.Cause]
// returns if the context ends because d has passed. The cancel function does not set the cause.
func (tw *TimingWheel) WithTimeoutCause(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	return tw.withDeadline(parent, tw.engine.config.Now().Add(d), d, cause)
}

// WithDeadline is like [TimingWheel.WithTimeout], but ends the context at t or up to one tick
// later. If t has passed, the context has ended already.
func (tw *TimingWheel) WithDeadline(parent context.Context, t time.Time) (context.Context, context.CancelFunc) {
	return tw.withDeadline(parent, t, t.Sub(tw.engine.config.Now()), nil)
}

// WithDeadlineCause is like [TimingWheel.WithDeadline] but sets the cause that [context.Cause]
// returns if the context ends because t has passed. The cancel function does not set the cause.
func (tw *TimingWheel) WithDeadlineCause(parent context.Context, t time.Time, cause error) (context.Context, context.CancelFunc) {
	return tw.withDeadline(parent, t, t.Sub(tw.engine.config.Now()), cause)
}

// withDeadline makes a context. left is the time until t.
func (tw *TimingWheel) withDeadline(parent context.Context, t time.Time, left time.Duration, cause error) (context.Context, context.CancelFunc) {
	if parent == nil {
		panic("timingwheel: context with a nil parent")
	}
	c := &deadlineContext{parent: parent, deadline: t}
	cancel, late := c.end, &timedOut
	if cause != nil {
		caused := &phase{err: context.DeadlineExceeded, cause: causeContext(cause)}
		cancel, late = func() { c.finish(caused, false) }, caused
	}
	if earlier, ok := parent.Deadline(); ok && earlier.Before(t) {
		if parent.Value(&ownKey) == nil {
			return context.WithCancel(parent)
		}
		c.deadline = earlier
	} else if left <= 0 {
		c.finish(late, true)
	} else if p, own := parent.(*deadlineContext); own {
		if !p.phase.Load().ended() { // p.Err would ask the parents of p, which may be a long chain
			c.arm(tw, cancel, left, late)
		}
	} else if parent.Err() == nil {
		c.arm(tw, cancel, left, late)
		if _, ok := parent.(interface{ AfterFunc(f func()) func() bool }); ok {
			c.Done() // such a parent may count its children, so c registers now
		}
	}
	return c, cancel
}

// deadlineContext is a context with a timer of a wheel.
//
// Before the first call to Done nothing is registered with the parent, and Err asks the parent. The
// first call to Done makes the signal, whose channel is closed with the parent's.
//
// Package context registers its contexts with this one through the method AfterFunc. It reads the
// cause from a context of its own, which Value returns after the end.
//
// While package context cancels its contexts, it calls no foreign code, so this context may not
// have been notified when its parent has ended. Err and Done therefore ask the parent.
type deadlineContext struct {
	parent   context.Context
	deadline time.Time

	// phase is nil until the first call to Done or the end. It is written under mu, after signal.
	phase atomic.Pointer[phase]
	// signal has the channel: a doneChan, a context of package context below parent or, if the
	// context ended before the first call to Done, any context that has ended.
	signal context.Context

	mu    sync.Mutex
	timer Timer  // zero if there is none, and after the end
	stop  func() // unregisters the context from its parent; nil if it is not registered
}

// phase is the state of a context: whether and how it has ended. Only dependents and once change.
type phase struct {
	err        error           // nil while the context is live
	cause      context.Context // a context of package context with the cause; nil: the parent has it
	dependents *list.List      // of func(), or nil; guarded by deadlineContext.mu until the end
	once       sync.Once       // calls the dependents; a second goroutine that ends the context waits
}

var (
	open      phase // shared by all live contexts without dependents
	cancelled = phase{err: context.Canceled, cause: causeContext(context.Canceled)}
	timedOut  = phase{err: context.DeadlineExceeded, cause: causeContext(context.DeadlineExceeded)}
)

// causeContext returns a context of package context that has ended with a cause. Its Value returns
// a value only for the key by which package context looks up causes.
func causeContext(cause error) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return ctx
}

// ended reports whether p is a phase after the end.
func (p *phase) ended() bool { return p != nil && p.err != nil }

// doneChan is the signal of a context whose parent never ends or is a deadlineContext. Only its
// channel matters.
type doneChan chan struct{}

func (d doneChan) Done() <-chan struct{}         { return d }
func (doneChan) Err() error                      { return nil }
func (doneChan) Value(any) any                   { return nil }
func (doneChan) Deadline() (_ time.Time, _ bool) { return }

// arm sets the timer. On a stopped wheel it sets a timer of the runtime instead.
func (c *deadlineContext) arm(tw *TimingWheel, end func(), left time.Duration, late *phase) {
	c.mu.Lock() // the timer may fire immediately
	deadline, now := tw.engine.config.Instant(c.deadline)
	c.timer = armAndUnlock(tw.engine.pickAndLock(), deadline, now, end, arena.Lasting)
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
// state of the timer distinguishes the two: it is still pending if end is called as the cancel
// function.
func (c *deadlineContext) end() { c.finish(&timedOut, false) }

// finish ends the context and its dependents. All of them have ended when finish returns, even if
// another goroutine has ended the context. late is the phase after the deadline. If passed is
// false, the timer's state shows whether the deadline has passed.
func (c *deadlineContext) finish(late *phase, passed bool) {
	var parent *phase
	if !c.phase.Load().ended() {
		parent = c.parentEnd()
	}
	c.mu.Lock()
	p, stop := c.phase.Load(), c.stop
	if c.stop = nil; !p.ended() {
		p = c.endLocked(p, parent, late, passed)
	}
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
	<-c.signal.Done() // another goroutine may still be about to close the channel
	p.once.Do(func() {
		if p.dependents == nil {
			return
		}
		for d := p.dependents.Front(); d != nil; d = d.Next() {
			d.Value.(func())()
		}
		p.dependents = nil
	})
}

// endLocked decides how the context ends and returns its last phase. parent is the end of the
// parent, or nil. mu is held.
func (c *deadlineContext) endLocked(p, parent, late *phase, passed bool) *phase {
	fired := c.timer != Timer{} && !c.timer.cancelLasting()
	c.timer = Timer{} // the handle would keep the wheel alive
	next := &cancelled
	switch {
	case parent != nil:
		next = parent
	case passed || fired:
		next = late
	}
	if p != nil && p.dependents != nil {
		next = &phase{err: next.err, cause: next.cause, dependents: p.dependents}
	}
	if c.signal == nil {
		c.signal = cancelled.cause // only its channel matters, and it is closed
	}
	c.phase.Store(next)
	if d, ok := c.signal.(doneChan); ok {
		close(d)
	}
	return next
}

// above returns the context that shows the end of the parent. A signal of package context ends
// together with the parent, and its Err calls no method of the parent.
func (c *deadlineContext) above() context.Context {
	if c.phase.Load() != nil {
		if _, ok := c.signal.(doneChan); !ok {
			return c.signal
		}
	}
	return c.parent
}

// parentEnd returns the phase for a context whose parent has ended, or nil if the parent is live.
// The cause of a foreign parent is fixed now: the contexts above the parent may end later.
func (c *deadlineContext) parentEnd() *phase {
	above := c.above()
	err := above.Err()
	if err == nil {
		return nil
	}
	end := &phase{err: err}
	if _, own := c.parent.(*deadlineContext); !own {
		end.cause = causeContext(context.Cause(above))
	}
	return end
}

// Deadline implements context.Context.
func (c *deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements context.Context.
func (c *deadlineContext) Done() <-chan struct{} {
	if p := c.phase.Load(); p == nil {
		c.watch()
	} else if p.err == nil && c.above().Err() != nil { // the context may not have been notified yet
		c.end()
	}
	return c.signal.Done()
}

// Err implements context.Context.
func (c *deadlineContext) Err() error {
	p := c.phase.Load()
	if !p.ended() {
		if c.above().Err() == nil {
			return nil
		}
		c.end()
		p = c.phase.Load()
	}
	<-c.signal.Done() // the goroutine that ends the context may still be about to close the channel
	return p.err
}

// ownKey is the key under which a deadlineContext returns itself.
var ownKey int

// Value implements context.Context.
func (c *deadlineContext) Value(key any) any {
	if key == &ownKey {
		return c
	}
	if p := c.phase.Load(); p.ended() && p.cause != nil {
		if v := p.cause.Value(key); v != nil {
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

// watch makes the signal and registers the context with its parent. It does nothing if the context
// has a signal or has ended.
func (c *deadlineContext) watch() {
	if c.phase.Load() != nil {
		return
	}
	var signal context.Context
	var stop func()
	var own *deadlineContext // is parent, or is above it and has the same channel
	done := c.parent.Done()
	if p, ok := c.parent.Value(&ownKey).(*deadlineContext); ok && done != nil {
		if p.watch(); p.signal.Done() == done {
			own = p
		}
	}
	switch {
	case done == nil:
		signal = make(doneChan)
	case own == nil:
		signal, stop = context.WithCancel(c.parent)
	default:
		d := own.addDependent(c.end)
		if d == nil {
			c.end()
			return
		}
		signal, stop = make(doneChan), func() { own.drop(d) }
	}
	c.mu.Lock()
	first := c.phase.Load() == nil // otherwise another goroutine was first, or the context has ended
	if first {
		c.signal, c.stop = signal, stop
		c.phase.Store(&open)
	}
	c.mu.Unlock()
	if !first && stop != nil {
		stop()
	} else if signal.Err() != nil {
		c.end()
	}
}

// AfterFunc is the method that package context calls to register its contexts with this one. The
// goroutine that ends the context calls f, so f has returned when cancel returns. The functions
// that package context passes never block. If f called cancel, f would wait for itself.
func (c *deadlineContext) AfterFunc(f func()) (stop func() bool) {
	if d := c.addDependent(f); d != nil {
		return func() bool { return c.drop(d) }
	}
	go f() // the caller may hold a lock that f takes
	return func() bool { return false }
}

// addDependent adds a function that is called at the end of the context. It returns nil if the
// context has ended.
func (c *deadlineContext) addDependent(f func()) *list.Element {
	c.watch()
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.phase.Load()
	if p.ended() {
		return nil
	}
	if p == &open {
		p = &phase{dependents: list.New()}
		c.phase.Store(p)
		if _, own := c.signal.(doneChan); !own {
			forget, stop := context.AfterFunc(c.signal, c.end), c.stop
			c.stop = func() { forget(); stop() }
		}
	}
	return p.dependents.PushBack(f)
}

// drop removes a dependent. It reports whether it did: it fails if the dependent was removed before
// or the context has ended.
func (c *deadlineContext) drop(d *list.Element) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.phase.Load()
	if p.ended() || d.Value == nil {
		return false
	}
	p.dependents.Remove(d)
	d.Value = nil
	return true
}
