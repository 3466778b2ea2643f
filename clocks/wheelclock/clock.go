// Package wheelclock moves a Mock from github.com/benbjohnson/clock and a Manual timing wheel
// together. In a test, code that takes a Clock from that package and code that takes the wheel then
// see the same time:
//
//	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
//	…
//	clock := wheelclock.New(tw)
//	s := newServer(clock, tw) // clock is a clock.Clock
//	clock.Add(time.Minute)
//
// The interface returns *clock.Timer and *clock.Ticker, which only that package can make: they
// belong to package time or to a Mock. The timers of a [Clock] are therefore timers on its Mock,
// with the Mock's semantics, and not timers on the wheel. For the same reason there is no Clock for
// a running wheel: use clock.New from that package.
package wheelclock

import (
	"fmt"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/timingwheel-go/timingwheel"
)

// Clock is a Mock that moves with a Manual wheel. Make one with [New]. Add, Set and
// WaitForAllTimers move both clocks. Do not call the wheel's Advance, which does not move the Mock.
// All methods may be called at any time from any goroutine, unless documented otherwise.
type Clock struct {
	*clock.Mock
	tw *timingwheel.TimingWheel
	mu sync.Mutex // held while the clocks move
}

var _ clock.Clock = (*Clock)(nil)

// New returns a Clock that shows the time on the wheel's clock. The wheel must be in Manual mode.
// Otherwise Add and Set panic.
func New(tw *timingwheel.TimingWheel) *Clock {
	c := &Clock{Mock: clock.NewMock(), tw: tw}
	c.Mock.Set(tw.Now())
	return c
}

// Add moves both clocks forward by d, as [Clock.Set] does. If d is zero, timers that are due fire.
// Add panics if d is negative.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(c.Now().Add(d))
}

// Set moves both clocks forward to t. It stops at each time at which a timer on the wheel is due,
// and both clocks then show this time. Between two such times, the Mock's timers fire in order,
// each at its own time, while the wheel's clock still shows the earlier one. A timer that a Mock
// callback arms on the wheel counts from the time on the wheel's clock. If a call that was handed
// to [timingwheel.Options.Executor] has not run yet, the wheel moves to t in one step.
//
// Set panics if t is before the current time, because a wheel cannot go back. A callback of the
// wheel must not call Set or Add. After the wheel's Stop only the Mock's timers fire.
//
// The Mock sleeps for a millisecond after each of its timers and after every step of Set, so that
// other goroutines can run.
func (c *Clock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(t)
}

func (c *Clock) set(t time.Time) {
	if now := c.Now(); t.Before(now) {
		panic(fmt.Sprintf("wheelclock: cannot set the clock to %v, which is before the current time %v", t, now))
	}
	for {
		next, pending := c.tw.Next()
		if !pending || next.After(t) {
			next = t
		}
		if next.After(c.Now()) {
			c.Mock.Set(next) // the Mock's functions may arm timers of the wheel that are due before next
			continue
		}
		before := c.tw.Now()
		if c.tw.Advance(next) == 0 && !c.tw.Now().After(before) {
			break // t is reached, or an Executor has yet to run a call
		}
	}
	c.Mock.Set(t) // even if the Mock shows t already: timers with a zero duration fire now
	c.tw.Advance(t)
}

// WaitForAllTimers moves both clocks forward until all of the Mock's timers have fired, and returns
// the new time. As with a Mock, it does not return while there is a ticker.
func (c *Clock) WaitForAllTimers() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.Mock.WaitForAllTimers()
	c.set(t)
	return t
}
