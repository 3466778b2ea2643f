package timingwheel

import (
	"context"
	"time"
)

// WithTimeout is context.WithTimeout, driven by the wheel: the context ends when d has passed, up to one tick later and never earlier, when it is
// cancelled, or when parent ends, whatever comes first. Whoever makes it calls its cancel function in the end, which gives back all that it holds.
//
// Err, Cause, Deadline and Value are those of package context, and so is what follows for children, which may be of this package or of that
// one. No goroutine waits for anything, unless parent is of a third package. Only where a parent of package context is cancelled, and nobody
// asks this context for Err or Done meanwhile, its children learn that from a goroutine of that moment, and so a little later than cancel returns.
//
// The deadline is a callback of the wheel and comes where [Options.Executor] runs those: with [Inline], or with a pool that is full, others
// that block hold it up. In Manual mode the wheel's clock is the one that counts. Stop of the wheel discards all deadlines: a context then
// ends only when it is cancelled or with its parent. On a wheel that has been stopped the runtime's timers take its place, but for Manual
// mode, where no deadline is reached any more.
//
// It panics where parent is nil. O(1), apart from what parent takes to return its deadline and values.
func (tw *TimingWheel) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return tw.withDeadline(parent, tw.today().Add(d), d, &timedOut)
}

// WithTimeoutCause is WithTimeout with a cause for [context.Cause] where the time has passed. The cancel function does not set it.
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
	} else if c.timer = tw.engine.at(t, c.atDeadline(given)); c.timer == (Timer{}) && !tw.engine.manual {
		return context.WithDeadlineCause(parent, t, given.own)
	}
	tw.families.join(c, up)
	return c, c.cancel
}
