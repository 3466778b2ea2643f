package timingwheel_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// A select has a timeout, as with package time.
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

// A loop resets its idle timeout for each message. The channel of the timer need not be drained.
func ExampleTimingWheel_NewChannelTimer() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()

	messages := make(chan string, 2)
	messages <- "hello"
	messages <- "world"
	idle := tw.NewChannelTimer(500 * time.Millisecond)
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

// Stop returns false if the value was received. Otherwise it removes the value from the channel and
// returns true.
func ExampleChannelTimer_Stop() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		panic(err)
	}
	received, waiting := tw.NewChannelTimer(time.Second), tw.NewChannelTimer(time.Second)
	tw.Advance(start.Add(time.Second))

	fmt.Println((<-received.C).Sub(start))
	fmt.Println(received.Stop(), waiting.Stop())
	select {
	case <-waiting.C:
		fmt.Println("stale value")
	default:
		fmt.Println("no stale value")
	}
	// Output:
	// 1s
	// false true
	// no stale value
}

// A ticker keeps its phase even if a tick is late.
func ExampleTimingWheel_NewTicker() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		panic(err)
	}
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

// Reset changes the period and restarts a ticker that was stopped.
func ExampleTicker() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		panic(err)
	}
	ticker := tw.NewTicker(time.Minute)

	tw.Advance(start.Add(time.Minute))
	fmt.Println((<-ticker.C).Sub(start))
	ticker.Stop()
	fmt.Println("ran while the ticker was stopped:", tw.Advance(start.Add(time.Hour)))
	ticker.Reset(time.Second)
	tw.Advance(start.Add(time.Hour + time.Second))
	fmt.Println((<-ticker.C).Sub(start))
	// Output:
	// 1m0s
	// ran while the ticker was stopped: 0
	// 1h0m1s
}

// The ticker of a loop is stopped when the loop is left.
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

// A shutdown cancels the context and so ends the pause between two attempts.
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
