// Package benbjohnson moves a Mock of github.com/benbjohnson/clock and a Manual timing wheel
// together. Code that takes that package's Clock and code that takes the wheel then see one time in
// a test:
//
//	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
//	…
//	clock := benbjohnson.New(tw)
//	s := newServer(clock, tw) // clock is a clock.Clock
//	clock.Add(time.Minute)
//
// The interface returns *clock.Timer and *clock.Ticker, and only that package can make them: they
// belong either to package time or to a Mock. The timers of a [Clock] are therefore those of its
// Mock, with all of its semantics, and no timers of the wheel. For the same reason there is no
// Clock on a running wheel: clock.New of that package serves there.
package benbjohnson

import (
	"fmt"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/timingwheel-go/timingwheel"
)

// Clock is a Mock that moves with a Manual wheel. Add, Set and WaitForAllTimers move both. The
// wheel's own Advance would leave the Mock behind.
type Clock struct {
	*clock.Mock
	tw *timingwheel.TimingWheel
	mu sync.Mutex // held while the clocks move
}

var _ clock.Clock = (*Clock)(nil)

// New returns a Clock that begins at the time of the wheel's clock. The wheel must be Manual:
// otherwise Add and Set panic.
func New(tw *timingwheel.TimingWheel) *Clock {
	c := &Clock{Mock: clock.NewMock(), tw: tw}
	c.Mock.Set(tw.Now())
	return c
}

// Add moves both clocks by d. See Set.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(c.Now().Add(d))
}

// Set moves both clocks to t. They stop together at each moment at which something is due on the
// wheel. In between, the timers of the Mock fire one after the other, each at its time, while the
// wheel's clock shows the moment before. What they arm on the wheel counts from that moment. If a
// call of [timingwheel.Options.Executor] has not run by then, the wheel goes to t in one step. Set
// panics if t is before the present, because a wheel does not go back. Set and Add must not be
// called by a callback of the wheel.
//
// The Mock sleeps for a millisecond after each of its timers and at each of these moments, so that
// other goroutines come to run.
func (c *Clock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(t)
}

func (c *Clock) set(t time.Time) {
	if now := c.Now(); t.Before(now) {
		panic(fmt.Sprintf("benbjohnson: Set to %v, before the present, %v; a wheel does not go back", t, now))
	}
	for {
		next, pending := c.tw.Next()
		if !pending || next.After(t) {
			next = t
		}
		if next.After(c.Now()) {
			c.Mock.Set(next) // its timers may arm timers of the wheel that are due before next
			continue
		}
		before := c.tw.Now()
		if c.tw.Advance(next) == 0 && !c.tw.Now().After(before) {
			break // the end, or an Executor has yet to run what is due
		}
	}
	c.Mock.Set(t) // also if it stands there: a timer of no duration fires then
	c.tw.Advance(t)
}

// WaitForAllTimers moves both clocks until all timers of the Mock have fired, and returns the time.
// As with the Mock it does not return while there is a ticker.
func (c *Clock) WaitForAllTimers() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.Mock.WaitForAllTimers()
	c.set(t)
	return t
}
