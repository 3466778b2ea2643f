package plan_test

import (
	"errors"
	"fmt"
	"time"
	_ "time/tzdata"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/plan"
)

var start = time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)

// newWheel returns a wheel whose clock stands at start, and a function that lets time pass as if the
// process ran. A program makes a wheel without Manual, and time passes by itself.
func newWheel() (tw *timingwheel.TimingWheel, advance func(d time.Duration)) {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		panic(err)
	}
	return tw, func(d time.Duration) {
		end := tw.Now().Add(d)
		for next, ok := tw.Next(); ok && !next.After(end); next, ok = tw.Next() {
			tw.Advance(next)
		}
		tw.Advance(end)
	}
}

// Three runs at quarters of an hour, as the clock in Kolkata shows them.
func Example() {
	kolkata, err := time.LoadLocation("Asia/Kolkata")
	if err != nil {
		panic(err)
	}
	tw, advance := newWheel()
	advance(7 * time.Minute)

	s := plan.Limit(plan.Aligned(15*time.Minute, kolkata), 3)
	tw.ScheduleFunc(s, func() { fmt.Println(tw.Now().In(kolkata).Format(time.TimeOnly)) })
	advance(time.Hour)
	// Output:
	// 17:45:00
	// 18:00:00
	// 18:15:00
}

// A retry: pauses of 1, 2, 4 and then 5 seconds, ten attempts at most, and none after one that
// succeeds.
func ExampleBackoff() {
	tw, advance := newWheel()
	attempt := func(n int) error {
		if n < 5 {
			return errors.New("not yet")
		}
		return nil
	}
	tw.ScheduleRun(plan.Limit(plan.Backoff(time.Second, 5*time.Second), 10), func(r *timingwheel.Run) {
		err := attempt(r.N)
		fmt.Println(tw.Now().Sub(start), err)
		if err == nil {
			r.Stop()
		}
	})
	advance(time.Minute)
	// Output:
	// 1s not yet
	// 3s not yet
	// 7s not yet
	// 12s not yet
	// 17s <nil>
}

// A daily run at 02:30. On March 31, 2030 the clocks in Berlin show 03:00 instead of 02:00.
func ExampleAlignedAt() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	s := plan.AlignedAt(24*time.Hour, 2*time.Hour+30*time.Minute, berlin)
	at := time.Date(2030, time.March, 30, 0, 0, 0, 0, berlin)
	for range 3 {
		at = s.Next(at)
		fmt.Println(at.Format("Jan 2 15:04 MST"))
	}
	// Output:
	// Mar 30 02:30 CET
	// Mar 31 03:00 CEST
	// Apr 1 02:30 CEST
}

// The process stands still from 12:00:25 to 12:01:02. The policies differ in the runs of that time.
func ExampleWithMisfire() {
	every := timingwheel.Every(10 * time.Second)
	for _, policy := range []struct {
		name string
		s    timingwheel.Scheduler
	}{
		{"run once", every},
		{"run all", plan.WithMisfire(every, plan.RunAll)},
		{"run once, at most 1 s late", plan.MaxLate(every, time.Second)},
		{"run all, at most 15 s late", plan.MaxLate(plan.WithMisfire(every, plan.RunAll), 15*time.Second)},
	} {
		tw, advance := newWheel()
		fmt.Print(policy.name, ":")
		tw.ScheduleRun(policy.s, func(r *timingwheel.Run) {
			fmt.Print(" ", r.Planned.Second())
			if late := r.Started.Sub(r.Planned); late > 0 {
				fmt.Print("+", late.Seconds())
			}
		})
		advance(25 * time.Second)
		tw.Advance(start.Add(62 * time.Second))
		advance(10 * time.Second)
		fmt.Println()
		tw.Stop()
	}
	// Output:
	// run once: 10 20 30+32 10
	// run all: 10 20 30+32 40+22 50+12 0+2 10
	// run once, at most 1 s late: 10 20 10
	// run all, at most 15 s late: 10 20 50+12 0+2 10
}

// A cache is filled again ten seconds after it was filled, however long that takes, until the end of
// the day.
func ExampleFixedDelay() {
	tw, advance := newWheel()
	endOfDay := start.Truncate(24 * time.Hour).Add(24 * time.Hour)
	fills := 0
	tw.ScheduleFunc(plan.Until(plan.FixedDelay(10*time.Second), endOfDay), func() { fills++ })
	advance(24 * time.Hour)
	fmt.Println(fills, "times in twelve hours; pending:", tw.Len())
	// Output: 4320 times in twelve hours; pending: 0
}
