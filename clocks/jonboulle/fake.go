package jonboulle

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/timingwheel-go/timingwheel"
)

// FakeClock is clockwork's FakeClock on a Manual wheel. Its timers are timers of the wheel and keep
// the semantics of clockwork's:
//
//   - A timer whose duration is not positive fires before NewTimer, AfterFunc or Reset returns.
//   - AfterFunc calls its function on a goroutine of its own.
//   - Stop and Reset leave a value that was sent and not received. A ticker drops a tick that finds
//     the last one not received.
//
// Three things differ. Deadlines are rounded up to a tick of the wheel, so a test that looks at
// fractions of a millisecond sets [timingwheel.Options.Tick]. Ticker.Reset panics if its duration
// is not positive, as that of package time does. And a ticker that is reset while it runs has one
// period, whereas clockwork's then ticks twice and goes on after a Stop.
//
// All methods may be called at any time from any goroutine.
type FakeClock struct {
	tw        *timingwheel.TimingWheel
	advancing sync.Mutex

	mu       sync.Mutex
	waiters  int // timers and tickers that are armed
	blockers []blocker
}

// blocker is a call of BlockUntilContext.
type blocker struct {
	n    int
	done chan struct{}
}

var _ clockwork.Clock = (*FakeClock)(nil)

// NewFakeClock returns a clock that shows the time of a Manual wheel. With a wheel that is not
// Manual use [NewClock]; Advance would panic.
func NewFakeClock(tw *timingwheel.TimingWheel) *FakeClock { return &FakeClock{tw: tw} }

// Advance moves the wheel's clock by d. It stops at each moment at which something is due, timers
// that were armed on the wheel itself included, and runs it. Now is then this moment. Timers that
// are armed meanwhile fire in the same Advance if they are due by its end. If a call of
// [timingwheel.Options.Executor] has not run by then, the clock goes to the end in one step. An
// Advance by a negative d does not move the clock. Advance must not be called by a callback of the
// wheel.
//
// [timingwheel.TimingWheel.Advance] moves the clock as well, but in one step: all values that are
// sent are then the time of its end, and a ticker ticks once at most.
func (c *FakeClock) Advance(d time.Duration) {
	c.advancing.Lock()
	defer c.advancing.Unlock()
	end := c.tw.Now().Add(d)
	for next, pending := c.tw.Next(); pending && !next.After(end); next, pending = c.tw.Next() {
		before := c.tw.Now()
		if c.tw.Advance(next) == 0 && !c.tw.Now().After(before) {
			break // an Executor has yet to run what is due, or the clock is at the end of its range
		}
	}
	c.tw.Advance(end)
}

// BlockUntilContext waits until n or more timers and tickers of this clock are armed, calls of
// Sleep and After included. It returns ctx's error if ctx ends first. Timers of the wheel that were
// armed otherwise do not count.
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

// BlockUntil is BlockUntilContext without a context.
func (c *FakeClock) BlockUntil(n int) { _ = c.BlockUntilContext(context.Background(), n) }

// Now returns the time of the wheel's clock.
func (c *FakeClock) Now() time.Time { return c.tw.Now() }

// Since returns the time that has passed since t on the wheel's clock.
func (c *FakeClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Until returns the time that has to pass until t on the wheel's clock.
func (c *FakeClock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// Sleep waits until another goroutine has advanced the clock by d.
func (c *FakeClock) Sleep(d time.Duration) { <-c.After(d) }

// After returns the channel of a new timer.
func (c *FakeClock) After(d time.Duration) <-chan time.Time { return c.NewTimer(d).Chan() }

// NewTimer returns a timer that sends the time once the clock has been advanced by d.
func (c *FakeClock) NewTimer(d time.Duration) clockwork.Timer { return c.newTimer(d, nil) }

// AfterFunc returns a timer that calls f on a goroutine of its own once the clock has been advanced
// by d.
func (c *FakeClock) AfterFunc(d time.Duration, f func()) clockwork.Timer { return c.newTimer(d, f) }

// NewTicker returns a ticker that sends the time each time the clock has been advanced by d. It
// panics if d is not positive.
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
	counted bool // counted in clock.waiters
}

func (w *waiter) Chan() <-chan time.Time { return w.c }

// updateWaiters brings the number of waiters up to date. clock.mu is held.
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

// send never blocks.
func (w *waiter) send(now time.Time) {
	select {
	case w.c <- now:
	default:
	}
}

type fakeTimer struct {
	waiter
	f func() // nil: send the time
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

type fakeTicker struct {
	waiter
	d    time.Duration // 0: stopped
	next time.Time
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

// expire is the callback of the wheel's timer. It may come when another goroutine has stopped or
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
