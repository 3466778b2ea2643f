package timingwheel_test

import (
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// A plan runs again and again under one handle. Runs that were missed are skipped, and the plan keeps
// its phase.
func ExampleTimingWheel_ScheduleFunc() {
	start := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)
	tw, pass := newManual(timingwheel.Options{Start: start})

	plan := tw.ScheduleFunc(timingwheel.Every(10*time.Second), func() {
		fmt.Println("run at", tw.Now().Format(time.TimeOnly))
	})
	pass(10 * time.Second)
	pass(25 * time.Second) // the program was held up: the run of 12:00:20 is late, that of 12:00:30 missed
	pass(5 * time.Second)

	fmt.Println("stopped:", plan.Stop())
	pass(time.Hour)
	// Output:
	// run at 12:00:10
	// run at 12:00:35
	// run at 12:00:40
	// stopped: true
}

// backoff is a Scheduler of its own kind: each pause is twice as long as the one before, and after
// some attempts the plan ends.
type backoff struct {
	pause    time.Duration
	attempts int
}

func (b *backoff) Next(t time.Time) time.Time {
	if b.attempts == 0 {
		return time.Time{}
	}
	b.attempts--
	next := t.Add(b.pause)
	b.pause *= 2
	return next
}

func ExampleScheduler() {
	start := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)
	tw, _ := newManual(timingwheel.Options{Start: start})

	tw.ScheduleFunc(&backoff{pause: time.Second, attempts: 4}, func() {
		fmt.Println("attempt after", tw.Now().Sub(start))
	})
	for next, ok := tw.Next(); ok; next, ok = tw.Next() {
		tw.Advance(next)
	}
	// Output:
	// attempt after 1s
	// attempt after 3s
	// attempt after 7s
	// attempt after 15s
}
