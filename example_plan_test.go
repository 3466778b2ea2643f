package timingwheel_test

import (
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// A plan has one handle for all its runs. Missed runs are skipped, and the plan keeps its phase.
func ExampleTimingWheel_ScheduleFunc() {
	start := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		panic(err)
	}

	plan := tw.ScheduleFunc(timingwheel.Every(10*time.Second), func() {
		fmt.Println("run at", tw.Now().Format(time.TimeOnly))
	})
	tw.Advance(start.Add(10 * time.Second))
	tw.Advance(start.Add(35 * time.Second)) // the run of 12:00:20 is late, and the run of 12:00:30 is missed
	tw.Advance(start.Add(40 * time.Second))

	fmt.Println("stopped:", plan.Stop())
	tw.Advance(start.Add(time.Hour))
	// Output:
	// run at 12:00:10
	// run at 12:00:35
	// run at 12:00:40
	// stopped: true
}

// backoff is a Scheduler: each pause is twice as long as the previous one, and after some attempts
// the plan ends.
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

// A Scheduler may end the plan and may have state, such as the pause before the next attempt.
func ExampleScheduler() {
	start := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		panic(err)
	}

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

// Every plans each run a multiple of the period after the first one.
func ExampleEvery() {
	s := timingwheel.Every(90 * time.Minute)
	run := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)
	for range 3 {
		run = s.Next(run)
		fmt.Println(run.Format(time.TimeOnly))
	}
	// Output:
	// 13:30:00
	// 15:00:00
	// 16:30:00
}

// The function gets a description of the run. A report covers the hour for which it was planned,
// even if the run is late.
func ExampleTimingWheel_ScheduleRun() {
	start := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		panic(err)
	}

	tw.ScheduleRun(timingwheel.Every(time.Hour), func(r *timingwheel.Run) {
		fmt.Printf("report %d, of %s, made at %s\n", r.N, r.Planned.Format(time.TimeOnly), r.Started.Format(time.TimeOnly))
	})
	tw.Advance(start.Add(time.Hour))
	tw.Advance(start.Add(135 * time.Minute)) // the second run is late
	tw.Advance(start.Add(3 * time.Hour))
	// Output:
	// report 1, of 13:00:00, made at 13:00:00
	// report 2, of 14:00:00, made at 14:15:00
	// report 3, of 15:00:00, made at 15:00:00
}

// A run ends its own plan. Stop returns true because another attempt was planned.
func ExampleRun_Stop() {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	if err != nil {
		panic(err)
	}

	tw.ScheduleRun(timingwheel.Every(time.Second), func(r *timingwheel.Run) {
		succeeded := r.N == 3
		fmt.Println("attempt", r.N)
		if succeeded {
			fmt.Println("stopped:", r.Stop())
		}
	})
	for next, ok := tw.Next(); ok; next, ok = tw.Next() {
		tw.Advance(next)
	}
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
	// stopped: true
}

// If the next time depends on the result of a run, a FuncTimer is the simplest plan: its function
// resets it. This timer polls every minute, and every second while there is work.
func ExampleFuncTimer_Reset() {
	start := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		panic(err)
	}

	work := 3
	var poll timingwheel.FuncTimer
	poll.Init(tw, time.Minute, func() {
		work = max(work-1, 0)
		fmt.Println(tw.Now().Format(time.TimeOnly), "left:", work)
		if work > 0 {
			poll.Reset(time.Second)
		} else {
			poll.Reset(time.Minute)
		}
	})
	for tw.Now().Sub(start) < 3*time.Minute {
		tw.Advance(tw.Now().Add(time.Second))
	}
	// Output:
	// 12:01:00 left: 2
	// 12:01:01 left: 1
	// 12:01:02 left: 0
	// 12:02:02 left: 0
}
