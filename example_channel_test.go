package timingwheel_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// The deadline of a step, as it is written with package time.
func ExampleTimingWheel_After() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()

	answer := make(chan string) // of a server that takes too long
	select {
	case a := <-answer:
		fmt.Println(a)
	case <-tw.After(10 * time.Millisecond):
		fmt.Println("no answer")
	}
	// Output: no answer
}

// An idle timeout in a loop: one timer, reset for each message. Its channel never has to be drained.
func ExampleTimingWheel_NewTimer() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()

	messages := make(chan string, 2)
	messages <- "hello"
	messages <- "world"
	idle := tw.NewTimer(500 * time.Millisecond)
	defer idle.Stop()
	for {
		select {
		case m := <-messages:
			fmt.Println(m)
			idle.Reset(500 * time.Millisecond)
			continue
		case <-idle.C:
			fmt.Println("idle")
		}
		break
	}
	// Output:
	// hello
	// world
	// idle
}

// Stop returns false if the value was received. If it returns true, the value never is: Stop takes it
// back if it waits in the channel.
func ExampleChannelTimer_Stop() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()
	received, waiting := tw.NewTimer(time.Second), tw.NewTimer(time.Second)
	tw.Advance(start.Add(time.Second))

	fmt.Println((<-received.C).Sub(start))
	fmt.Println(received.Stop(), waiting.Stop())
	select {
	case <-waiting.C:
		fmt.Println("a stale value")
	default:
		fmt.Println("nothing")
	}
	// Output:
	// 1s
	// false true
	// nothing
}

// A ticker keeps its phase. In Manual mode a test decides when it ticks.
func ExampleTimingWheel_NewTicker() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()
	ticker := tw.NewTicker(time.Minute)
	defer ticker.Stop()

	for _, at := range []time.Duration{time.Minute, 150 * time.Second, 3 * time.Minute} {
		tw.Advance(start.Add(at))
		fmt.Println((<-ticker.C).Sub(start))
	}
	// Output:
	// 1m0s
	// 2m30s
	// 3m0s
}

// A loop over ticks stops its ticker when it is left.
func ExampleTimingWheel_Ticks() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()
	n := 0
	for range tw.Ticks(5 * time.Millisecond) {
		n++
		fmt.Println("tick", n)
		if n == 3 {
			break
		}
	}
	fmt.Println(tw.Len(), "pending")
	// Output:
	// tick 1
	// tick 2
	// tick 3
	// 0 pending
}

// A pause between two attempts that a shutdown cuts short.
func ExampleTimingWheel_Sleep() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()
	ctx, shutdown := context.WithCancel(context.Background())
	defer shutdown()

	for attempt := 1; ; attempt++ {
		fmt.Println("attempt", attempt)
		if attempt == 2 {
			shutdown()
		}
		if err := tw.Sleep(ctx, 10*time.Millisecond); err != nil {
			fmt.Println(errors.Is(err, context.Canceled))
			return
		}
	}
	// Output:
	// attempt 1
	// attempt 2
	// true
}
