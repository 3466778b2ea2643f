package jonboulle_test

import (
	"fmt"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/clocks/jonboulle"
)

// A test moves the code that takes a clockwork.Clock and the code that takes the wheel by one
// Advance.
func ExampleNewFakeClock() {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tw.Stop()
	clock := jonboulle.NewFakeClock(tw)

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
