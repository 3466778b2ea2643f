package wheelclock_test

import (
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/clocks/wheelclock"
)

// One Add moves code that takes a clock.Clock and code that takes the wheel.
func ExampleClock() {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tw.Stop()
	clock := wheelclock.New(tw)

	timer := clock.Timer(30 * time.Second)
	tw.AfterFunc(time.Minute, func() { fmt.Println("timeout at", clock.Now().Format(time.TimeOnly)) })
	clock.Add(2 * time.Minute)
	fmt.Println("timer fired at", (<-timer.C).Format(time.TimeOnly))
	fmt.Println("now", tw.Now().Format(time.TimeOnly))
	// Output:
	// timeout at 12:01:00
	// timer fired at 12:00:30
	// now 12:02:00
}
