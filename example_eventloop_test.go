package timingwheel_test

import (
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// An event loop waits for input and for timers. In Manual mode the wheel has no goroutine. The loop
// asks the wheel how long it may wait, and callbacks run inside Advance, so they need no lock.
func ExampleTimingWheel_Advance() {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	if err != nil {
		panic(err)
	}
	input := make(chan string, 1)
	input <- "hello"
	open := true
	var idle timingwheel.Timer // zero: there is no timeout before the first input

	for open {
		var due <-chan time.Time
		if next, ok := tw.Next(); ok { // not later than the first deadline, rounded up to a tick
			due = time.After(time.Until(next))
		}
		select {
		case line := <-input:
			fmt.Println("got", line)
			tw.Advance(time.Now())
			if !idle.Reschedule(20 * time.Millisecond) {
				idle = tw.AfterFunc(20*time.Millisecond, func() {
					fmt.Println("no input for 20 ms")
					open = false
				})
			}
		case <-due:
			tw.Advance(time.Now())
		}
	}
	// Output:
	// got hello
	// no input for 20 ms
}

// A simulation does not wait. It sets the clock to the next time at which a callback is due.
func ExampleTimingWheel_Next() {
	start := time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start, Tick: time.Second})
	if err != nil {
		panic(err)
	}
	clock := func() string { return tw.Now().Format("Jan 2 15:04:05") }
	tw.AfterFunc(72*time.Hour, func() { fmt.Println(clock(), "arrives") })
	tw.AfterFunc(90*time.Second, func() {
		fmt.Println(clock(), "leaves")
		tw.AfterFunc(time.Hour, func() { fmt.Println(clock(), "rests") })
	})

	for next, ok := tw.Next(); ok; next, ok = tw.Next() {
		tw.Advance(next)
	}
	// Output:
	// Mar 1 00:01:30 leaves
	// Mar 1 01:01:30 rests
	// Mar 4 00:00:00 arrives
}
