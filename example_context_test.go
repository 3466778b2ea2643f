package timingwheel_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// A request has a context with a timeout. Other packages use it like any other context.
func ExampleTimingWheel_WithTimeout() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()
	ctx, cancel := tw.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()

	answer := make(chan string) // of a server that takes too long
	select {
	case a := <-answer:
		fmt.Println(a)
	case <-ctx.Done():
		fmt.Println(ctx.Err())
	}
	// Output: context deadline exceeded
}

// A cause shows which of several deadlines has passed.
func ExampleTimingWheel_WithTimeoutCause() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()
	errSlowQuery := errors.New("the query took more than 5 ms")
	request, cancelRequest := tw.WithTimeout(context.Background(), time.Hour)
	defer cancelRequest()
	query, cancelQuery := tw.WithTimeoutCause(request, 5*time.Millisecond, errSlowQuery)
	defer cancelQuery()

	<-query.Done()
	fmt.Println(query.Err(), "-", context.Cause(query))
	fmt.Println(request.Err())
	// Output:
	// context deadline exceeded - the query took more than 5 ms
	// <nil>
}

func ExampleTimingWheel_WithDeadline() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		panic(err)
	}
	ctx, cancel := tw.WithDeadline(context.Background(), start.Add(time.Hour))
	defer cancel()

	tw.Advance(start.Add(time.Hour - 1))
	fmt.Println(ctx.Err())
	tw.Advance(start.Add(time.Hour))
	fmt.Println(ctx.Err())
	// Output:
	// <nil>
	// context deadline exceeded
}
