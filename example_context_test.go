package timingwheel_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// A request gets a context whose deadline the wheel keeps. What is given to other packages is a context like any other.
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

// A cause tells which of several deadlines has passed.
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

// In Manual mode an hour passes when the test says so.
func ExampleTimingWheel_WithTimeout_manual() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()
	ctx, cancel := tw.WithTimeout(context.Background(), time.Hour)
	defer cancel()

	tw.Advance(start.Add(59 * time.Minute))
	fmt.Println(ctx.Err())
	tw.Advance(start.Add(time.Hour))
	fmt.Println(ctx.Err())
	// Output:
	// <nil>
	// context deadline exceeded
}
