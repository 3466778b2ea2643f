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
	tw, pass := newManual(timingwheel.Options{Executor: &running})

	var sum atomic.Int64
	for i := range 5 {
		tw.AfterFunc(time.Second, func() { sum.Add(int64(i)) })
	}
	fmt.Println("handed over:", pass(time.Second))
	running.Wait()
	fmt.Println("sum:", sum.Load())
	// Output:
	// handed over: 5
	// sum: 10
}

// limited is an executor that runs as many callbacks at once as its channel has room. Go must not
// block for long, so a callback that finds no room waits on a goroutine of its own.
type limited chan struct{}

func (l limited) Go(f func()) {
	go func() {
		l <- struct{}{}
		defer func() { <-l }()
		f()
	}()
}

func ExampleExecutor_limited() {
	tw, err := timingwheel.New(timingwheel.Options{Executor: make(limited, 2)})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()

	var all sync.WaitGroup
	var now, most atomic.Int64
	all.Add(20)
	for range 20 {
		tw.AfterFunc(time.Millisecond, func() {
			defer all.Done()
			for n := now.Add(1); ; {
				old := most.Load()
				if n <= old || most.CompareAndSwap(old, n) {
					break
				}
			}
			time.Sleep(time.Millisecond)
			now.Add(-1)
		})
	}
	all.Wait()
	fmt.Println("more than two at once:", most.Load() > 2)
	// Output: more than two at once: false
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
	tw, pass := newManual(timingwheel.Options{Executor: timingwheel.Goroutines})

	request, reply := make(chan string), make(chan string)
	tw.AfterFunc(time.Second, func() { request <- "ping" })
	tw.AfterFunc(time.Second, func() { reply <- <-request + ", pong" })
	fmt.Println("handed over:", pass(time.Second))
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
	tw, pass := newManual(timingwheel.Options{Executor: timingwheel.ExecutorFunc(func(f func()) {
		if err := workers.submit(f); err != nil {
			go f()
		}
	})})
	first := tw.AfterFunc(time.Second, func() { fmt.Println("first") })
	tw.AfterFunc(time.Second, func() { fmt.Println("second") })

	fmt.Println("handed over:", pass(time.Second))
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
		fmt.Println("three at once")
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

// With OnPanic, a panic in a callback is reported, and the other callbacks run.
func ExampleOptions_onPanic() {
	tw, pass := newManual(timingwheel.Options{
		OnPanic: func(value any, stack []byte) {
			fmt.Println("reported:", value, "with a stack:", len(stack) > 0)
		},
	})
	tw.AfterFunc(time.Second, func() { fmt.Println("first") })
	tw.AfterFunc(time.Second, func() { panic("out of cheese") })
	tw.AfterFunc(time.Second, func() { fmt.Println("third") })
	fmt.Println("ran:", pass(time.Second))
	// Output:
	// first
	// reported: out of cheese with a stack: true
	// third
	// ran: 3
}
