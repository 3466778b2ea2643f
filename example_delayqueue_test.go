package timingwheel_test

import (
	"context"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// Elements leave the queue in the order in which they are due.
func ExampleDelayQueue() {
	var q timingwheel.DelayQueue[string]
	now := time.Now()
	q.PushAt("third", now.Add(30*time.Millisecond))
	q.PushAt("first", now.Add(10*time.Millisecond))
	q.PushAt("second", now.Add(20*time.Millisecond))

	for q.Len() > 0 {
		v, err := q.Take(context.Background())
		if err != nil {
			break
		}
		fmt.Println(v)
	}
	// Output:
	// first
	// second
	// third
}

// An order that is not paid in time is cancelled. A payment removes the order from the queue.
func ExampleDelayQueue_Remove() {
	var unpaid timingwheel.DelayQueue[string]
	a := unpaid.Push("order A", 20*time.Millisecond)
	unpaid.Push("order B", 20*time.Millisecond)

	fmt.Println("order A was paid in time:", unpaid.Remove(a))

	expired, _ := unpaid.Take(context.Background())
	fmt.Println("cancelled:", expired)
	fmt.Println("paying A again:", unpaid.Remove(a))
	// Output:
	// order A was paid in time: true
	// cancelled: order B
	// paying A again: false
}

// A session ends after some time without a request. Each request postpones the end.
func ExampleDelayQueue_Reset() {
	var idle timingwheel.DelayQueue[string]
	alice := idle.Push("alice", 10*time.Millisecond)
	idle.Push("bob", 20*time.Millisecond)

	idle.Reset(alice, time.Hour) // a request

	gone, _ := idle.Take(context.Background())
	fmt.Println(gone, "has gone,", idle.Len(), "is left")
	// Output: bob has gone, 1 is left
}

// A context limits how long Take waits.
func ExampleDelayQueue_Take_timeout() {
	var q timingwheel.DelayQueue[string]
	q.Push("tomorrow", 24*time.Hour)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := q.Take(ctx)
	fmt.Println(err)
	// Output: context deadline exceeded
}

// One call takes all elements that are due, for example for one batch request.
func ExampleDelayQueue_Drain() {
	var retries timingwheel.DelayQueue[int]
	now := time.Now()
	for i := range 5 {
		retries.PushAt(i, now.Add(time.Duration(i-2)*time.Hour))
	}
	fmt.Println(retries.Drain(2), retries.Drain(0), retries.Len())
	// Output: [0 1] [2] 2
}

// Peek returns the first element even if it is not due.
func ExampleDelayQueue_Peek() {
	var q timingwheel.DelayQueue[string]
	q.Push("a", time.Hour)
	v, due, ok := q.Peek()
	fmt.Println(v, time.Until(due).Round(time.Minute), ok)
	// Output: a 1h0m0s true
}

// A consumer that receives until the channel is closed loses no element: the others are in the
// queue.
func ExampleDelayQueue_Channel() {
	var q timingwheel.DelayQueue[int]
	for i := range 3 {
		q.Push(i, time.Duration(i)*10*time.Millisecond)
	}
	q.Push(3, time.Hour)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for v := range q.Channel(ctx, 1) {
		fmt.Println(v)
		if v == 2 {
			cancel()
		}
	}
	fmt.Println("left in the queue:", q.Len())
	// Output:
	// 0
	// 1
	// 2
	// left in the queue: 1
}

// No element is lost when the loop is left.
func ExampleDelayQueue_All() {
	var q timingwheel.DelayQueue[string]
	q.Push("one", 0)
	q.Push("two", 10*time.Millisecond)
	q.Push("three", 20*time.Millisecond)

	for v := range q.All(context.Background()) {
		fmt.Println(v)
		if v == "two" {
			break
		}
	}
	fmt.Println("left in the queue:", q.Len())
	// Output:
	// one
	// two
	// left in the queue: 1
}

// Poll does not wait for an element to be due.
func ExampleDelayQueue_Poll() {
	var q timingwheel.DelayQueue[string]
	q.Push("now", 0)
	q.Push("tomorrow", 24*time.Hour)

	v, ok := q.Poll()
	fmt.Println(v, ok)
	_, ok = q.Poll()
	fmt.Println(ok, "left in the queue:", q.Len())
	// Output:
	// now true
	// false left in the queue: 1
}

// The handle of an element tells when the element is due, as long as it is in the queue.
func ExampleDelayed() {
	var q timingwheel.DelayQueue[string]
	at := time.Now().Add(time.Hour)
	e := q.PushAt("a", at)

	due, queued := e.Due()
	fmt.Println(due.Equal(at), queued)
	q.Remove(e)
	_, queued = e.Due()
	fmt.Println(queued)
	// Output:
	// true true
	// false
}
