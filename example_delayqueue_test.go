package timingwheel_test

import (
	"context"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

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

// Orders that are not paid in time are cancelled; paying takes an order out of the queue.
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

// A session ends after some time without a request; each request postpones the end.
func ExampleDelayQueue_Reset() {
	var idle timingwheel.DelayQueue[string]
	alice := idle.Push("alice", 10*time.Millisecond)
	idle.Push("bob", 20*time.Millisecond)

	idle.Reset(alice, time.Hour) // a request

	gone, _ := idle.Take(context.Background())
	fmt.Println(gone, "has gone,", idle.Len(), "is left")
	// Output: bob has gone, 1 is left
}

func ExampleDelayQueue_Take_timeout() {
	var q timingwheel.DelayQueue[string]
	q.Push("tomorrow", 24*time.Hour)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := q.Take(ctx)
	fmt.Println(err)
	// Output: context deadline exceeded
}

// One call takes everything that is due, such as retries for one batch request.
func ExampleDelayQueue_Drain() {
	var retries timingwheel.DelayQueue[int]
	now := time.Now()
	for i := range 5 {
		retries.PushAt(i, now.Add(time.Duration(i-2)*time.Hour))
	}
	fmt.Println(retries.Drain(2), retries.Drain(0), retries.Len())
	// Output: [0 1] [2] 2
}

func ExampleDelayQueue_Peek() {
	var q timingwheel.DelayQueue[string]
	q.Push("a", time.Hour)
	v, due, ok := q.Peek()
	fmt.Println(v, time.Until(due).Round(time.Minute), ok)
	// Output: a 1h0m0s true
}

// Receiving until the channel is closed, and looking into the queue after that, accounts for each element.
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
			cancel() // a select could take other channels into account
		}
	}
	fmt.Println("left in the queue:", q.Len())
	// Output:
	// 0
	// 1
	// 2
	// left in the queue: 1
}

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
