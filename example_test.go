package timingwheel_test

import (
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// newManual returns a wheel whose clock stands still until Advance moves it, so that these examples do
// the same on every machine, and a function that lets some time pass.
func newManual(opts timingwheel.Options) (tw *timingwheel.TimingWheel, pass func(d time.Duration) int) {
	opts.Manual = true
	tw, err := timingwheel.New(opts)
	if err != nil {
		panic(err)
	}
	return tw, func(d time.Duration) int { return tw.Advance(tw.Now().Add(d)) }
}

func ExampleAfterFunc() {
	done := make(chan struct{})
	timingwheel.AfterFunc(10*time.Millisecond, func() {
		fmt.Println("10 ms have passed")
		close(done)
	})
	<-done
	// Output: 10 ms have passed
}

func ExampleTimingWheel() {
	tw, err := timingwheel.New(timingwheel.Options{Tick: 100 * time.Microsecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tw.Stop()

	begin := time.Now()
	fired := make(chan time.Duration)
	tw.AfterFunc(20*time.Millisecond, func() { fired <- time.Since(begin) })
	fmt.Println("early:", <-fired < 20*time.Millisecond)
	// Output: early: false
}

// Bad options are errors that name the option, its value and what is accepted.
func ExampleNew() {
	_, err := timingwheel.New(timingwheel.Options{WheelSize: 100})
	fmt.Println(err)
	// Output: timingwheel: bad option: Options.WheelSize is 100; it must be a power of two from 2 to 65536, or 0 for the default
}

// The timeout of a request: true is a promise that the function will not run.
func ExampleTimer_Stop() {
	tw, pass := newManual(timingwheel.Options{})

	answered := tw.AfterFunc(5*time.Second, func() { fmt.Println("first request: timeout") })
	tw.AfterFunc(5*time.Second, func() { fmt.Println("second request: timeout") })

	pass(2 * time.Second)
	fmt.Println("first request: answered in time:", answered.Stop())
	pass(3 * time.Second)
	fmt.Println("stopped once more:", answered.Stop())
	// Output:
	// first request: answered in time: true
	// second request: timeout
	// stopped once more: false
}

// The idle timeout of a connection: each beat postpones it.
func ExampleTimer_Reschedule() {
	tw, pass := newManual(timingwheel.Options{})

	const idle = 30 * time.Second
	cut := func() { fmt.Println("silent for", idle) }
	timeout := tw.AfterFunc(idle, cut)

	for range 3 {
		fmt.Println("20 s pass, expired:", pass(20*time.Second))
		timeout.Reschedule(idle) // a beat
	}
	fmt.Println("30 s pass, expired:", pass(30*time.Second))

	// Reschedule does not re-arm a timer that has fired. A new one takes its place.
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

// The idle timeout of a connection, as a field of it. Touch gives it the whole timeout again.
func ExampleFuncTimer() {
	tw, pass := newManual(timingwheel.Options{})

	type connection struct{ idle timingwheel.FuncTimer }
	var c connection
	c.idle.Init(tw, 30*time.Second, func() { fmt.Println("silent for 30 s") })

	for range 3 {
		fmt.Println("20 s pass, expired:", pass(20*time.Second))
		c.idle.Touch() // a beat
	}
	fmt.Println("30 s pass, expired:", pass(30*time.Second))
	fmt.Println("touched in time:", c.idle.Touch())

	c.idle.Reset(time.Minute) // arms it again
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

// Before a program ends, what is pending may have to be done at once.
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

// A program that can wait 10 ms longer wakes up less often. SetDefault comes before anything else.
func ExampleSetDefault() {
	tw, err := timingwheel.New(timingwheel.Options{Tick: 10 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	timingwheel.SetDefault(tw)
}
