// Package wheelclockwork implements the Clock in github.com/jonboulle/clockwork on a timing wheel.
//
// A test makes a [FakeClock] on a Manual wheel and moves it with [FakeClock.Advance]. The code
// under test takes the FakeClock, the wheel, or both:
//
//	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Tick: time.Microsecond})
//	…
//	clock := wheelclockwork.NewFakeClock(tw)
//	go poll(clock) // takes a clockwork.Clock
//	err = clock.BlockUntilContext(ctx, 1)
//	clock.Advance(time.Minute)
//
// A program passes the result of [NewClock] to code that takes a clockwork.Clock. That code's
// timers are then timers on the wheel, and cost the same as any others.
//
// [clockwork.WithDeadline] and [clockwork.WithTimeout] support only clockwork's own FakeClock. With
// any other Clock, such as the clocks in this package, they use package time. For contexts that
// follow the wheel's clock, use [timingwheel.TimingWheel.WithTimeout].
package wheelclockwork

import (
	"context"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/timingwheel-go/timingwheel"
)

// NewClock returns a Clock that behaves like clockwork's NewRealClock, but whose timers are timers
// on a running wheel: they fire up to one tick late and never early. Stop and Reset discard a value
// that was sent and not received, as in package time since Go 1.23. Now returns time.Now. All
// methods may be called at any time from any goroutine.
//
// Once the wheel has been stopped, the clock's timers and tickers do not fire. Sleep still returns
// after its duration.
func NewClock(tw *timingwheel.TimingWheel) clockwork.Clock { return clock{tw} }

// clock is the Clock of [NewClock].
type clock struct{ tw *timingwheel.TimingWheel }

func (c clock) After(d time.Duration) <-chan time.Time   { return c.tw.After(d) }
func (c clock) Now() time.Time                           { return time.Now() }
func (c clock) Since(t time.Time) time.Duration          { return time.Since(t) }
func (c clock) Until(t time.Time) time.Duration          { return time.Until(t) }
func (c clock) NewTimer(d time.Duration) clockwork.Timer { return timer{c.tw.NewChannelTimer(d)} }

func (c clock) NewTicker(d time.Duration) clockwork.Ticker { return ticker{c.tw.NewTicker(d)} }

func (c clock) AfterFunc(d time.Duration, f func()) clockwork.Timer {
	return funcTimer{c.tw.NewFuncTimer(d, f)}
}

func (c clock) Sleep(d time.Duration) {
	begin := time.Now()
	if c.tw.Sleep(context.Background(), d) != nil { // the wheel is stopped
		time.Sleep(d - time.Since(begin))
	}
}

type timer struct{ *timingwheel.ChannelTimer }

func (t timer) Chan() <-chan time.Time { return t.C }

type ticker struct{ *timingwheel.Ticker }

func (t ticker) Chan() <-chan time.Time { return t.C }

type funcTimer struct{ *timingwheel.FuncTimer }

// Chan returns nil, as for a timer of time.AfterFunc.
func (t funcTimer) Chan() <-chan time.Time { return nil }
