package schedule_test

import (
	"errors"
	"fmt"
	"time"
	_ "time/tzdata"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/schedule"
)

var start = time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)

// newWheel returns a wheel in Manual mode whose clock shows start, and a function that advances the
// clock from timer to timer. A program makes a wheel without Manual, whose clock runs by itself.
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

// Three runs take place at quarter hours by the clock in Kolkata.
func Example() {
	kolkata, err := time.LoadLocation("Asia/Kolkata")
	if err != nil {
		panic(err)
	}
	tw, advance := newWheel()
	advance(7 * time.Minute)

	s := schedule.Limit(schedule.Aligned(15*time.Minute, kolkata), 3)
	tw.ScheduleFunc(s, func() { fmt.Println(tw.Now().In(kolkata).Format(time.TimeOnly)) })
	advance(time.Hour)
	// Output:
	// 17:45:00
	// 18:00:00
	// 18:15:00
}

// A retry pauses for 1, 2, 4 and then 5 seconds. It makes at most ten attempts and stops after the
// first one that succeeds.
func ExampleBackoff() {
	tw, advance := newWheel()
	attempt := func(n int) error {
		if n < 5 {
			return errors.New("not yet")
		}
		return nil
	}
	tw.ScheduleRun(schedule.Limit(schedule.Backoff(time.Second, 5*time.Second), 10), func(r *timingwheel.Run) {
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

// A run takes place every day at 02:30. On March 31, 2030 the clocks in Berlin show 03:00 instead
// of 02:00.
func ExampleAlignedAt() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	s := schedule.AlignedAt(24*time.Hour, 2*time.Hour+30*time.Minute, berlin)
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

// The process is stopped from 12:00:25 to 12:01:02. The policies differ in what happens to the runs
// of this period.
func ExampleWithMisfire() {
	every := timingwheel.Every(10 * time.Second)
	for _, policy := range []struct {
		name string
		s    timingwheel.Scheduler
	}{
		{"run once", every},
		{"run all", schedule.WithMisfire(every, schedule.RunAll)},
		{"run once, at most 1 s late", schedule.MaxLate(every, time.Second)},
		{"run all, at most 15 s late", schedule.MaxLate(schedule.WithMisfire(every, schedule.RunAll), 15*time.Second)},
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

// A cache is refilled ten seconds after the last refill has ended, until the end of the day.
func ExampleFixedDelay() {
	tw, advance := newWheel()
	endOfDay := start.Truncate(24 * time.Hour).Add(24 * time.Hour)
	fills := 0
	tw.ScheduleFunc(schedule.Until(schedule.FixedDelay(10*time.Second), endOfDay), func() { fills++ })
	advance(24 * time.Hour)
	fmt.Println(fills, "times in twelve hours; pending:", tw.Len())
	// Output: 4320 times in twelve hours; pending: 0
}

// A report is due every hour on the hour.
func ExampleAligned() {
	s := schedule.Aligned(time.Hour, time.UTC)
	at := time.Date(2030, time.March, 1, 12, 7, 0, 0, time.UTC)
	for range 3 {
		at = s.Next(at)
		fmt.Println(at.Format(time.TimeOnly))
	}
	// Output:
	// 13:00:00
	// 14:00:00
	// 15:00:00
}

// The pauses grow by half until they reach 3 seconds.
func ExampleBackoffBy() {
	s := schedule.BackoffBy(1.5, time.Second, 3*time.Second)
	at := start
	for range 5 {
		next := s.Next(at)
		fmt.Println(next.Sub(at))
		at = next
	}
	// Output:
	// 1s
	// 1.5s
	// 2.25s
	// 3s
	// 3s
}

// Each of a thousand programs polls every 10 seconds. A random delay of up to 2 seconds spreads the
// polls.
func ExampleJitter() {
	first, last := time.Hour, time.Duration(0)
	for range 1000 {
		d := schedule.Jitter(timingwheel.Every(10*time.Second), 2*time.Second).Next(start).Sub(start)
		first, last = min(first, d), max(last, d)
	}
	fmt.Println("between 10s and 12s:", first >= 10*time.Second && last <= 12*time.Second)
	fmt.Println("spread:", last-first > time.Second)
	// Output:
	// between 10s and 12s: true
	// spread: true
}

// A reminder is sent three times.
func ExampleLimit() {
	tw, advance := newWheel()
	reminder := tw.ScheduleFunc(schedule.Limit(timingwheel.Every(time.Hour), 3), func() { fmt.Println("reminder") })
	advance(24 * time.Hour)
	fmt.Println("stopped:", reminder.Stop())
	// Output:
	// reminder
	// reminder
	// reminder
	// stopped: false
}

// A price feed skips runs that are more than a second late, because their prices are stale.
func ExampleMaxLate() {
	tw, advance := newWheel()
	tw.ScheduleRun(schedule.MaxLate(timingwheel.Every(10*time.Second), time.Second), func(r *timingwheel.Run) {
		fmt.Println("run of", r.Planned.Format(time.TimeOnly))
	})
	advance(10 * time.Second)
	tw.Advance(start.Add(35 * time.Second)) // the process was stopped
	advance(10 * time.Second)
	// Output:
	// run of 12:00:10
	// run of 12:00:40
}

// An offer is renewed every minute until 12:03.
func ExampleUntil() {
	tw, advance := newWheel()
	tw.ScheduleFunc(schedule.Until(timingwheel.Every(time.Minute), start.Add(3*time.Minute)), func() {
		fmt.Println(tw.Now().Format(time.TimeOnly))
	})
	advance(time.Hour)
	// Output:
	// 12:01:00
	// 12:02:00
	// 12:03:00
}

// A run is planned every 10 seconds. The first run takes from 12:00:10 to 12:00:45. The policies
// differ in what happens to the runs of this period.
func ExampleWithOverlap() {
	for _, policy := range []schedule.Overlap{schedule.SkipIfRunning, schedule.QueueOne, schedule.Allow} {
		fmt.Print(policy, ":")
		longRun(schedule.WithOverlap(timingwheel.Every(10*time.Second), policy))
		fmt.Println()
	}
	// Output:
	// SkipIfRunning: 10 50
	// QueueOne: 10 20 50
	// Allow: 10 20 30 40 50
}

// longRun prints the planned times of the runs of s up to 12:00:50. The first run ends at 12:00:45.
func longRun(s timingwheel.Scheduler) {
	started, end := make(chan struct{}), make(chan struct{})
	calls := 0
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start, Executor: timingwheel.ExecutorFunc(func(f func()) {
		if calls++; calls > 1 {
			f()
			return
		}
		go f() // the first run blocks
		<-started
	})})
	if err != nil {
		panic(err)
	}
	tw.ScheduleRun(s, func(r *timingwheel.Run) {
		fmt.Print(" ", r.Planned.Second())
		if r.N == 1 {
			close(started)
			<-end
		}
	})
	for second := range 51 {
		if second == 45 {
			close(end)
			for tw.Len() == 0 { // until the first run has planned the next one
				time.Sleep(time.Millisecond)
			}
		}
		tw.Advance(start.Add(time.Duration(second) * time.Second))
	}
	tw.Stop()
}
