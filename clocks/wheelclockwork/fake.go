package wheelclockwork

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/timingwheel-go/timingwheel"
)

// FakeClock behaves like clockwork's FakeClock, but shows the time of a Manual wheel. Make one with
// [NewFakeClock]. Its timers are timers on the wheel with the semantics of clockwork's timers:
//
//   - A timer with a zero or negative duration fires before NewTimer, AfterFunc or Reset returns.
//   - AfterFunc calls its function on a new goroutine.
//   - Stop and Reset do not discard a value that was sent and not received. A ticker drops a tick
//     if the previous tick has not been received.
//
// FakeClock differs from clockwork's in three ways. Deadlines are rounded up to a tick of the
// wheel, so a test that uses fractions of a millisecond sets [timingwheel.Options.Tick].
// Ticker.Reset panics if its duration is not positive, as in package time. Stop ends a ticker that
// was reset while it ran, whereas clockwork's ticker ticks on and counts twice in BlockUntil.
//
// All methods may be called at any time from any goroutine, unless documented otherwise. Once the
// wheel is stopped, no timer fires, and Sleep with a positive duration does not return.
type FakeClock struct {
	tw        *timingwheel.TimingWheel
	advancing sync.Mutex

	mu       sync.Mutex
	waiters  int // number of armed timers and tickers
	blockers []blocker
}

// blocker is a waiting call to BlockUntilContext.
type blocker struct {
	n    int
	done chan struct{}
}

var _ clockwork.Clock = (*FakeClock)(nil)

// NewFakeClock returns a clock that shows the time of a Manual wheel. For a wheel that is not in
// Manual mode use [NewClock]: [FakeClock.Advance] would panic.
func NewFakeClock(tw *timingwheel.TimingWheel) *FakeClock { return &FakeClock{tw: tw} }

// Advance moves the wheel's clock forward by d. It stops at each time at which a timer is due,
// including a timer that was armed on the wheel itself, sets the clock to this time and fires the
// timer. Timers that are armed during the call fire in the same call if they are due by its end. If
// a call that was handed to [timingwheel.Options.Executor] has not run yet, the clock moves to the
// end in one step. A negative d does not move the clock. Concurrent calls run one after the other.
// A callback of the wheel must not call Advance.
//
// [timingwheel.TimingWheel.Advance] moves the clock too, but in one step: each timer then sends the
// time at the end, and a ticker ticks at most once.
func (c *FakeClock) Advance(d time.Duration) {
	c.advancing.Lock()
	defer c.advancing.Unlock()
	end := c.tw.Now().Add(d)
	for next, pending := c.tw.Next(); pending && !next.After(end); next, pending = c.tw.Next() {
		before := c.tw.Now()
		if c.tw.Advance(next) == 0 && !c.tw.Now().After(before) {
			break // an Executor has yet to run a call, or the clock is at the end of its range
		}
	}
	c.tw.Advance(end)
}

// BlockUntilContext waits until at least n timers and tickers of this clock are armed, including
// the timers of Sleep and After, and returns nil. If ctx ends first, it returns ctx's error. Timers
// that were armed on the wheel itself do not count. If n is zero or negative, BlockUntilContext
// returns immediately.
func (c *FakeClock) BlockUntilContext(ctx context.Context, n int) error {
	c.mu.Lock()
	if c.waiters >= n {
		c.mu.Unlock()
		return nil
	}
	b := blocker{n, make(chan struct{})}
	c.blockers = append(c.blockers, b)
	c.mu.Unlock()
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		c.blockers = slices.DeleteFunc(c.blockers, func(other blocker) bool { return other == b })
		return ctx.Err()
	}
}

// BlockUntil is [FakeClock.BlockUntilContext] without a context.
func (c *FakeClock) BlockUntil(n int) { _ = c.BlockUntilContext(context.Background(), n) }

// Now returns the time on the wheel's clock.
func (c *FakeClock) Now() time.Time { return c.tw.Now() }

// Since returns the time elapsed since t on the wheel's clock.
func (c *FakeClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Until returns the duration until t on the wheel's clock.
func (c *FakeClock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// Sleep blocks until another goroutine has advanced the clock by d. If d is zero or negative, it
// returns immediately.
func (c *FakeClock) Sleep(d time.Duration) { <-c.After(d) }

// After returns the channel of a new timer: see [FakeClock.NewTimer].
func (c *FakeClock) After(d time.Duration) <-chan time.Time { return c.NewTimer(d).Chan() }

// NewTimer returns a timer that sends the current time on its channel once the clock has been
// advanced by d. If d is zero or negative, the timer fires before NewTimer returns.
func (c *FakeClock) NewTimer(d time.Duration) clockwork.Timer { return c.newTimer(d, nil) }

// AfterFunc returns a timer that calls f on a new goroutine once the clock has been advanced by d.
// If d is zero or negative, AfterFunc starts the goroutine before it returns.
func (c *FakeClock) AfterFunc(d time.Duration, f func()) clockwork.Timer { return c.newTimer(d, f) }

// NewTicker returns a ticker that sends the current time on its channel whenever the clock has been
// advanced by another d. NewTicker panics if d is not positive.
func (c *FakeClock) NewTicker(d time.Duration) clockwork.Ticker {
	if d <= 0 {
		panic(errors.New("non-positive interval for NewTicker"))
	}
	t := &fakeTicker{waiter: waiter{clock: c, c: make(chan time.Time, 1)}}
	t.timer.InitStopped(c.tw, t.expire)
	t.Reset(d)
	return t
}

// waiter is the common part of timers and tickers.
type waiter struct {
	clock   *FakeClock
	timer   timingwheel.FuncTimer
	c       chan time.Time
	counted bool // whether clock.waiters includes this waiter
}

func (w *waiter) Chan() <-chan time.Time { return w.c }

// updateWaiters updates the number of waiters after the timer was armed, stopped or has fired. The
// caller holds clock.mu.
func (w *waiter) updateWaiters() {
	_, armed := w.timer.Deadline()
	if armed == w.counted {
		return
	}
	c := w.clock
	if w.counted = armed; !armed {
		c.waiters--
		return
	}
	c.waiters++
	c.blockers = slices.DeleteFunc(c.blockers, func(b blocker) bool {
		if b.n > c.waiters {
			return false
		}
		close(b.done)
		return true
	})
}

// send sends now unless the channel is full.
func (w *waiter) send(now time.Time) {
	select {
	case w.c <- now:
	default:
	}
}

// fakeTimer is a timer of NewTimer, or of AfterFunc if f is not nil.
type fakeTimer struct {
	waiter
	f func()
}

func (c *FakeClock) newTimer(d time.Duration, f func()) *fakeTimer {
	t := &fakeTimer{waiter: waiter{clock: c, c: make(chan time.Time, 1)}, f: f}
	t.timer.InitStopped(c.tw, t.expire)
	t.Reset(d)
	return t
}

func (t *fakeTimer) Reset(d time.Duration) bool {
	if d <= 0 {
		was := t.Stop()
		t.fire()
		return was
	}
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	defer t.updateWaiters()
	return t.timer.Reset(d)
}

func (t *fakeTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	defer t.updateWaiters()
	return t.timer.Stop()
}

// expire is the callback of the wheel's timer.
func (t *fakeTimer) expire() {
	t.clock.mu.Lock()
	t.updateWaiters()
	t.clock.mu.Unlock()
	t.fire()
}

func (t *fakeTimer) fire() {
	if t.f != nil {
		go t.f()
		return
	}
	t.send(t.clock.Now())
}

// fakeTicker is a ticker of NewTicker.
type fakeTicker struct {
	waiter
	d    time.Duration // 0: stopped
	next time.Time     // of the next tick
}

func (t *fakeTicker) Reset(d time.Duration) {
	if d <= 0 {
		panic(errors.New("non-positive interval for Ticker.Reset"))
	}
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.d, t.next = d, t.clock.Now().Add(d)
	t.timer.Reset(d)
	t.updateWaiters()
}

func (t *fakeTicker) Stop() {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.d = 0
	t.timer.Stop()
	t.updateWaiters()
}

// expire is the callback of the wheel's timer. It may run after another goroutine has stopped or
// reset the ticker.
func (t *fakeTicker) expire() {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	defer t.updateWaiters()
	now := t.clock.Now()
	if t.d == 0 || now.Before(t.next) {
		return
	}
	t.send(now)
	missed := now.Sub(t.next) / t.d
	t.next = t.next.Add((missed + 1) * t.d)
	t.timer.Reset(t.next.Sub(now))
}
