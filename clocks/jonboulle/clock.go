// Package jonboulle implements the Clock of github.com/jonboulle/clockwork on a timing wheel.
//
// A test makes a [FakeClock] on a Manual wheel and moves it with Advance. The code under test takes
// the FakeClock, the wheel, or both:
//
//	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Tick: time.Microsecond})
//	…
//	clock := jonboulle.NewFakeClock(tw)
//	go poll(clock) // takes a clockwork.Clock
//	err = clock.BlockUntilContext(ctx, 1)
//	clock.Advance(time.Minute)
//
// A program passes [NewClock] of a running wheel to code that takes a clockwork.Clock. Its timers
// then cost what timers of the wheel cost.
//
// [clockwork.WithDeadline] and [clockwork.WithTimeout] know only clockwork's own FakeClock. With
// any other Clock, such as these two, their deadlines are those of package time. The contexts of
// the wheel follow its clock: [timingwheel.TimingWheel.WithTimeout].
package jonboulle

import (
	"context"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/timingwheel-go/timingwheel"
)

// NewClock returns a Clock that behaves as clockwork's NewRealClock, with the timers of a running
// wheel: they fire up to one tick late, never early. Stop and Reset discard a value that has not
// been received, as in package time since Go 1.23. Now is that of package time.
//
// Nothing that the clock made fires once the wheel has been stopped, apart from Sleep, which still
// returns in time.
func NewClock(tw *timingwheel.TimingWheel) clockwork.Clock { return clock{tw} }

type clock struct{ tw *timingwheel.TimingWheel }

func (c clock) After(d time.Duration) <-chan time.Time   { return c.tw.After(d) }
func (c clock) Now() time.Time                           { return time.Now() }
func (c clock) Since(t time.Time) time.Duration          { return time.Since(t) }
func (c clock) Until(t time.Time) time.Duration          { return time.Until(t) }
func (c clock) NewTimer(d time.Duration) clockwork.Timer { return timer{c.tw.NewTimer(d)} }

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

// Chan returns nil, as of a timer of time.AfterFunc.
func (t funcTimer) Chan() <-chan time.Time { return nil }
