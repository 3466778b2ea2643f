package timingwheel_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// Anything with a method Go(func()) can run the callbacks. A WaitGroup starts a goroutine for each
// of them and can wait until all have ended.
func ExampleExecutor() {
	var running sync.WaitGroup
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Executor: &running})
	if err != nil {
		panic(err)
	}

	var sum atomic.Int64
	for i := range 5 {
		tw.AfterFunc(time.Second, func() { sum.Add(int64(i)) })
	}
	fmt.Println("handed over:", tw.Advance(tw.Now().Add(time.Second)))
	running.Wait()
	fmt.Println("sum:", sum.Load())
	// Output:
	// handed over: 5
	// sum: 10
}

// On one shard, Inline runs callbacks one after the other, so they can share data without a lock.
func ExampleExecutor_inline() {
	tw, err := timingwheel.New(timingwheel.Options{Executor: timingwheel.Inline, Shards: 1})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()

	const n = 100
	sum, done := 0, make(chan int)
	count := 0
	for i := range n {
		tw.AfterFunc(time.Duration(i%7)*time.Millisecond, func() {
			sum += i
			if count++; count == n {
				done <- sum
			}
		})
	}
	fmt.Println("sum:", <-done)
	// Output: sum: 4950
}

// Goroutines starts a goroutine for each callback, so callbacks may wait for each other.
func ExampleExecutor_goroutines() {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Executor: timingwheel.Goroutines})
	if err != nil {
		panic(err)
	}

	request, reply := make(chan string), make(chan string)
	tw.AfterFunc(time.Second, func() { request <- "ping" })
	tw.AfterFunc(time.Second, func() { reply <- <-request + ", pong" })
	fmt.Println("handed over:", tw.Advance(tw.Now().Add(time.Second)))
	fmt.Println(<-reply)
	// Output:
	// handed over: 2
	// ping, pong
}

// pool is a pool of workers whose method for submitting a function may fail.
type pool chan func()

func (p pool) submit(f func()) error {
	select {
	case p <- f:
		return nil
	default:
		return errors.New("the pool is full")
	}
}

// ExecutorFunc adapts the method of a pool. A callback that the pool has not begun is pending, and
// can be stopped.
func ExampleExecutorFunc() {
	workers := make(pool, 10)
	executor := timingwheel.ExecutorFunc(func(f func()) {
		if err := workers.submit(f); err != nil {
			go f()
		}
	})
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Executor: executor})
	if err != nil {
		panic(err)
	}
	first := tw.AfterFunc(time.Second, func() { fmt.Println("first") })
	tw.AfterFunc(time.Second, func() { fmt.Println("second") })

	fmt.Println("handed over:", tw.Advance(tw.Now().Add(time.Second)))
	fmt.Println("first stopped:", first.Stop())
	for range 2 { // a worker of the pool
		f := <-workers
		f()
	}
	// Output:
	// handed over: 2
	// first stopped: true
	// second
}

// With Limit, callbacks that are due wait for others to return. They stay pending meanwhile.
func ExampleLimit() {
	tw, err := timingwheel.New(timingwheel.Options{Executor: timingwheel.Limit(2)})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()

	started, release := make(chan struct{}), make(chan struct{})
	for range 3 {
		tw.AfterFunc(0, func() {
			started <- struct{}{}
			<-release
		})
	}
	<-started
	<-started
	select {
	case <-started:
		fmt.Println("three run")
	case <-time.After(10 * time.Millisecond):
		fmt.Println("two run, pending:", tw.Len())
	}
	close(release)
	<-started
	fmt.Println("the third has started")
	// Output:
	// two run, pending: 1
	// the third has started
}
