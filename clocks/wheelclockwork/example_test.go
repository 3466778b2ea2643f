package wheelclockwork_test

import (
	"fmt"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/clocks/wheelclockwork"
)

// One Advance moves code that takes a clockwork.Clock and code that takes the wheel.
func ExampleNewFakeClock() {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tw.Stop()
	clock := wheelclockwork.NewFakeClock(tw)

	ticker := poller(clock)
	tw.AfterFunc(90*time.Second, func() { fmt.Println("timeout at", tw.Now().Format(time.TimeOnly)) })

	clock.Advance(time.Minute)
	fmt.Println("poll at", (<-ticker.Chan()).Format(time.TimeOnly))
	clock.Advance(time.Minute)
	fmt.Println("poll at", (<-ticker.Chan()).Format(time.TimeOnly))
	// Output:
	// poll at 12:01:00
	// timeout at 12:01:30
	// poll at 12:02:00
}

func poller(clock clockwork.Clock) clockwork.Ticker { return clock.NewTicker(time.Minute) }

// A program gives the clock of its wheel to code that takes a clockwork.Clock. The timers of that
// code are then timers of the wheel.
func ExampleNewClock() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tw.Stop()
	ticker := poller(wheelclockwork.NewClock(tw))
	defer ticker.Stop()
	fmt.Println("timers on the wheel:", tw.Len())
	// Output:
	// timers on the wheel: 1
}
