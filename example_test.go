package timingwheel_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// newManual returns a wheel whose clock stands still until Advance moves it, and a function that
// lets some time pass. Examples with such a wheel do the same on every machine.
func newManual(opts timingwheel.Options) (tw *timingwheel.TimingWheel, pass func(d time.Duration) int) {
	opts.Manual = true
	tw, err := timingwheel.New(opts)
	if err != nil {
		panic(err)
	}
	return tw, func(d time.Duration) int { return tw.Advance(tw.Now().Add(d)) }
}

// A timeout is stopped because the answer comes first.
func Example() {
	tw, err := timingwheel.New(timingwheel.Options{}) // ticks of 1 ms
	if err != nil {
		panic(err)
	}
	defer tw.Stop()

	done := make(chan struct{})
	timeout := tw.AfterFunc(time.Hour, func() { fmt.Println("timeout") })
	tw.AfterFunc(10*time.Millisecond, func() {
		fmt.Println("answer")
		fmt.Println("timeout prevented:", timeout.Stop())
		close(done)
	})
	<-done
	// Output:
	// answer
	// timeout prevented: true
}

// The package-level AfterFunc uses the wheel that the process shares.
func ExampleAfterFunc() {
	done := make(chan struct{})
	timingwheel.AfterFunc(10*time.Millisecond, func() {
		fmt.Println("10 ms have passed")
		close(done)
	})
	<-done
	// Output: 10 ms have passed
}

// A bad option is an error that names the option, its value and the accepted range.
func ExampleNew() {
	_, err := timingwheel.New(timingwheel.Options{WheelSize: 100})
	fmt.Println(err)
	fmt.Println(errors.Is(err, timingwheel.ErrOption))
	// Output:
	// timingwheel: bad option: Options.WheelSize is 100; it must be a power of two from 2 to 65536, or 0 for the default
	// true
}

// A field that is zero takes its default.
func ExampleOptions() {
	tw, err := timingwheel.New(timingwheel.Options{Name: "sessions", Shards: 2})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()

	st := tw.Stats()
	fmt.Println(st.Name, st.Shards, st.Tick)
	// Output: sessions 2 1ms
}

func ExampleTimingWheel_AfterFunc() {
	tw, pass := newManual(timingwheel.Options{})
	tw.AfterFunc(3*time.Second, func() { fmt.Println("after 3 s") })
	tw.AfterFunc(time.Second, func() { fmt.Println("after 1 s") })
	tw.AfterFunc(0, func() { fmt.Println("immediately") })

	fmt.Println("pending:", tw.Len())
	fmt.Println("ran:", pass(2*time.Second))
	fmt.Println("ran:", pass(2*time.Second))
	// Output:
	// pending: 3
	// immediately
	// after 1 s
	// ran: 2
	// after 3 s
	// ran: 1
}

func ExampleTimingWheel_AtFunc() {
	start := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)
	tw, pass := newManual(timingwheel.Options{Start: start})
	report := func() { fmt.Println("report at", tw.Now().Format(time.TimeOnly)) }
	tw.AtFunc(start.Add(90*time.Minute), report)
	tw.AtFunc(start.Add(-time.Hour), report) // the time has passed: immediately

	for range 4 {
		pass(30 * time.Minute)
	}
	// Output:
	// report at 12:30:00
	// report at 13:30:00
}

// The zero Timer is valid. A field of type Timer needs no flag that tells whether a timer is armed.
func ExampleTimer() {
	tw, pass := newManual(timingwheel.Options{})
	var timeout timingwheel.Timer
	fmt.Println("zero Timer stopped:", timeout.Stop())

	timeout = tw.AfterFunc(time.Second, func() { fmt.Println("timeout") })
	same := timeout
	fmt.Println("copies are equal:", same == timeout)
	pass(time.Second)
	fmt.Println("stopped after it has fired:", same.Stop())
	// Output:
	// zero Timer stopped: false
	// copies are equal: true
	// timeout
	// stopped after it has fired: false
}

// A connection has an idle timeout, which each message postpones.
func ExampleTimer_Reschedule() {
	tw, pass := newManual(timingwheel.Options{})

	const idle = 30 * time.Second
	cut := func() { fmt.Println("silent for", idle) }
	timeout := tw.AfterFunc(idle, cut)

	for range 3 {
		fmt.Println("20 s pass, expired:", pass(20*time.Second))
		timeout.Reschedule(idle) // a message has arrived
	}
	fmt.Println("30 s pass, expired:", pass(30*time.Second))

	// Reschedule does not arm a timer that has fired. A new timer takes its place.
	if !timeout.Reschedule(idle) {
		timeout = tw.AfterFunc(idle, cut)
	}
	fmt.Println("pending:", tw.Len())
	// Output:
	// 20 s pass, expired: 0
	// 20 s pass, expired: 0
	// 20 s pass, expired: 0
	// silent for 30s
	// 30 s pass, expired: 1
	// pending: 1
}

func ExampleTimer_Deadline() {
	start := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)
	tw, _ := newManual(timingwheel.Options{Start: start})

	t := tw.AfterFunc(90*time.Minute, func() {})
	at, pending := t.Deadline()
	fmt.Println(at.Format(time.TimeOnly), pending)

	t.RescheduleAt(start.Add(time.Hour))
	at, pending = t.Deadline()
	fmt.Println(at.Format(time.TimeOnly), pending)

	t.Stop()
	_, pending = t.Deadline()
	fmt.Println(pending)
	// Output:
	// 13:30:00 true
	// 13:00:00 true
	// false
}

// The idle timeout is a field of the connection. Touch postpones it.
func ExampleFuncTimer() {
	tw, pass := newManual(timingwheel.Options{})

	type connection struct{ idle timingwheel.FuncTimer }
	var c connection
	c.idle.Init(tw, 30*time.Second, func() { fmt.Println("silent for 30 s") })

	for range 3 {
		fmt.Println("20 s pass, expired:", pass(20*time.Second))
		c.idle.Touch() // a message has arrived
	}
	fmt.Println("30 s pass, expired:", pass(30*time.Second))
	fmt.Println("touched in time:", c.idle.Touch())

	c.idle.Reset(time.Minute) // arms the timer again
	fmt.Println("pending:", tw.Len())
	// Output:
	// 20 s pass, expired: 0
	// 20 s pass, expired: 0
	// 20 s pass, expired: 0
	// silent for 30 s
	// 30 s pass, expired: 1
	// touched in time: false
	// pending: 1
}

// A connection has no deadline until the first call to Reset.
func ExampleFuncTimer_InitStopped() {
	tw, pass := newManual(timingwheel.Options{})

	type connection struct{ deadline timingwheel.FuncTimer }
	var c connection
	c.deadline.InitStopped(tw, func() { fmt.Println("deadline has passed") })

	fmt.Println("an hour passes, expired:", pass(time.Hour))
	c.deadline.Reset(time.Second)
	fmt.Println("a second passes, expired:", pass(time.Second))
	// Output:
	// an hour passes, expired: 0
	// deadline has passed
	// a second passes, expired: 1
}

// The timeout counts from the arrival of a packet, although the packet has waited in a queue.
func ExampleFuncTimer_TouchFrom() {
	start := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)
	tw, pass := newManual(timingwheel.Options{Start: start})
	idle := tw.NewFuncTimer(30*time.Second, func() { fmt.Println("silent at", tw.Now().Format(time.TimeOnly)) })

	pass(20 * time.Second)
	arrived := tw.Now()
	pass(5 * time.Second) // in the queue
	idle.TouchFrom(arrived)
	for range 30 {
		pass(time.Second)
	}
	// Output: silent at 12:00:50
}

// Once StopWait has returned nil, the function does not run, and what it uses can be closed.
func ExampleFuncTimer_StopWait() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()

	started := make(chan struct{})
	save := tw.NewFuncTimer(0, func() {
		close(started)
		time.Sleep(10 * time.Millisecond)
		fmt.Println("saved")
	})
	<-started
	err = save.StopWait(context.Background())
	fmt.Println("file can be closed:", err == nil)
	// Output:
	// saved
	// file can be closed: true
}

// Before a program ends, it performs immediately what its timers would have done later.
func ExampleTimingWheel_Flush() {
	tw, _ := newManual(timingwheel.Options{})
	for _, key := range []string{"a", "b"} {
		tw.AfterFunc(time.Hour, func() { fmt.Println("write back", key) })
	}
	fmt.Println("flushed:", tw.Flush())
	// Output:
	// write back a
	// write back b
	// flushed: 2
}

// Stop discards the pending timers, and nothing can be armed afterwards.
func ExampleTimingWheel_Stop() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	pending := tw.AfterFunc(time.Hour, func() { fmt.Println("an hour has passed") })

	tw.Stop()
	fmt.Println("pending:", tw.Len())
	fmt.Println("handle stops the timer:", pending.Stop())
	fmt.Println("zero Timer:", tw.AfterFunc(0, func() {}) == timingwheel.Timer{})
	// Output:
	// pending: 0
	// handle stops the timer: false
	// zero Timer: true
}

// Shutdown waits for the callbacks that are running.
func ExampleTimingWheel_Shutdown() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	started := make(chan struct{})
	tw.AfterFunc(0, func() {
		close(started)
		time.Sleep(10 * time.Millisecond)
		fmt.Println("callback has ended")
	})
	<-started

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println("shut down:", tw.Shutdown(ctx) == nil)
	// Output:
	// callback has ended
	// shut down: true
}

// The process shares the default wheel, so no part of a program can stop it.
func ExampleDefault() {
	defer func() { fmt.Println(recover()) }()
	timingwheel.Default().Stop()
	// Output: timingwheel: Stop of the default wheel, which the whole process shares
}

// A program whose timers may be 10 ms late wakes up less often. It calls SetDefault at the start of
// main, before any use of the default wheel.
func ExampleSetDefault() {
	tw, err := timingwheel.New(timingwheel.Options{Tick: 10 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	timingwheel.SetDefault(tw)
}
