package timingwheel_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// Anything with a method Go(func()) can run the callbacks. A WaitGroup starts a goroutine for each and
// knows when all have ended.
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

// limited is an executor that runs at most as many callbacks at once as it has room. Go may not block
// for long, so what finds no room waits on a goroutine of its own.
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
		fmt.Println(err)
		return
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

// With OnPanic a panic of a callback is reported, and the others run as if nothing had happened.
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
