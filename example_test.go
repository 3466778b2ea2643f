package timingwheel_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

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

// A server whose timeouts are long saves wake-ups by a long tick. At most 100 of its callbacks run
// concurrently, and a callback that panics does not end the program.
func ExampleOptions() {
	panics := make(chan any)
	tw, err := timingwheel.New(timingwheel.Options{
		Name:     "sessions",            // in statistics and profiles
		Tick:     10 * time.Millisecond, // callbacks run up to 10 ms late
		Executor: timingwheel.Limit(100),
		OnPanic:  func(value any, stack []byte) { panics <- value },
	})
	if err != nil {
		panic(err)
	}
	defer tw.Stop()

	tw.AfterFunc(20*time.Millisecond, func() { panic("no such session") })
	fmt.Println("panic:", <-panics)
	st := tw.Stats()
	fmt.Println(st.Name, "tick:", st.Tick, "fired:", st.Fired, "panics:", st.Panics)
	// Output:
	// panic: no such session
	// sessions tick: 10ms fired: 1 panics: 1
}

// One wheel has all kinds of timers. This wheel is in Manual mode: its clock stands still until
// Advance sets it, so the example prints the same on every machine. The clock of other wheels runs.
func ExampleTimingWheel() {
	start := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		panic(err)
	}
	clock := func() string { return tw.Now().Format(time.TimeOnly) }

	answer := tw.AfterFunc(30*time.Second, func() { fmt.Println(clock(), "no answer") })
	idle := tw.NewFuncTimer(30*time.Second, func() { fmt.Println(clock(), "idle") })
	pings := tw.ScheduleFunc(timingwheel.Every(20*time.Second), func() { fmt.Println(clock(), "ping") })
	ctx, cancel := tw.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	for second := 10; second <= 60; second += 10 {
		tw.Advance(start.Add(time.Duration(second) * time.Second))
		if second == 20 {
			fmt.Println(clock(), "answered in time:", answer.Stop())
			idle.Touch() // postpones the timer to 12:00:50
		}
	}
	fmt.Println(clock(), ctx.Err())
	fmt.Println("stopped:", pings.Stop(), "pending:", tw.Len())
	// Output:
	// 12:00:20 ping
	// 12:00:20 answered in time: true
	// 12:00:40 ping
	// 12:00:50 idle
	// 12:01:00 ping
	// 12:01:00 context deadline exceeded
	// stopped: true pending: 0
}

// Advance runs callbacks that are due, in the order of their deadlines, and returns their number.
func ExampleTimingWheel_AfterFunc() {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	if err != nil {
		panic(err)
	}
	tw.AfterFunc(3*time.Second, func() { fmt.Println("after 3 s") })
	tw.AfterFunc(time.Second, func() { fmt.Println("after 1 s") })
	tw.AfterFunc(0, func() { fmt.Println("immediately") })

	fmt.Println("pending:", tw.Len())
	fmt.Println("ran:", tw.Advance(tw.Now().Add(2*time.Second)))
	fmt.Println("ran:", tw.Advance(tw.Now().Add(2*time.Second)))
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
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		panic(err)
	}
	report := func() { fmt.Println("report at", tw.Now().Format(time.TimeOnly)) }
	tw.AtFunc(start.Add(90*time.Minute), report)
	tw.AtFunc(start.Add(-time.Hour), report) // in the past: due immediately

	tw.Advance(start.Add(30 * time.Minute))
	tw.Advance(start.Add(90 * time.Minute))
	// Output:
	// report at 12:30:00
	// report at 13:30:00
}

// The zero Timer is valid. A field of type Timer needs no flag that tells whether a timer is armed.
func ExampleTimer() {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	if err != nil {
		panic(err)
	}
	var timeout timingwheel.Timer
	fmt.Println("zero Timer stopped:", timeout.Stop())

	timeout = tw.AfterFunc(time.Second, func() { fmt.Println("timeout") })
	same := timeout
	fmt.Println("copies are equal:", same == timeout)
	tw.Advance(tw.Now().Add(time.Second))
	fmt.Println("stopped after it has fired:", same.Stop())
	// Output:
	// zero Timer stopped: false
	// copies are equal: true
	// timeout
	// stopped after it has fired: false
}

// A connection has an idle timeout, which each message postpones.
func ExampleTimer_Reschedule() {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	if err != nil {
		panic(err)
	}

	const idle = 30 * time.Second
	cut := func() { fmt.Println("silent for", idle) }
	timeout := tw.AfterFunc(idle, cut)

	for range 3 {
		fmt.Println("20 s pass, expired:", tw.Advance(tw.Now().Add(20*time.Second)))
		timeout.Reschedule(idle) // a message has arrived
	}
	fmt.Println("30 s pass, expired:", tw.Advance(tw.Now().Add(30*time.Second)))

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
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		panic(err)
	}

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

// A document is saved two seconds after the last of several changes. Reset arms the timer, and
// reports whether it was pending before.
func ExampleFuncTimer() {
	start := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		panic(err)
	}
	var save timingwheel.FuncTimer
	save.InitStopped(tw, func() { fmt.Println("saved at", tw.Now().Format(time.TimeOnly)) })

	for second := 1; second <= 6; second++ {
		tw.Advance(start.Add(time.Duration(second) * time.Second))
		if second <= 3 { // a change
			fmt.Println("unsaved changes before:", save.Reset(2*time.Second))
		}
	}
	// Output:
	// unsaved changes before: false
	// unsaved changes before: true
	// unsaved changes before: true
	// saved at 12:00:05
}

// The timer is a field of the connection, which saves an allocation. Its function refers to the
// connection.
func ExampleFuncTimer_Init() {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	if err != nil {
		panic(err)
	}
	type connection struct {
		name string
		idle timingwheel.FuncTimer
	}
	conns := make([]connection, 3)
	for i := range conns {
		c := &conns[i]
		c.name = fmt.Sprint("connection ", i)
		c.idle.Init(tw, time.Duration(i+1)*time.Minute, func() { fmt.Println("close", c.name) })
	}
	conns[1].idle.Stop() // the client has closed it
	fmt.Println("expired:", tw.Advance(tw.Now().Add(time.Hour)))
	// Output:
	// close connection 0
	// close connection 2
	// expired: 2
}

// Each message postpones the idle timeout of a connection. Touch reports whether the message was in
// time. If it was not, Touch does not arm the timer.
func ExampleFuncTimer_Touch() {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	if err != nil {
		panic(err)
	}
	idle := tw.NewFuncTimer(30*time.Second, func() { fmt.Println("silent for 30 s") })
	for range 3 {
		tw.Advance(tw.Now().Add(20 * time.Second))
		fmt.Println("message in time:", idle.Touch())
	}
	tw.Advance(tw.Now().Add(30 * time.Second))
	fmt.Println("message in time:", idle.Touch())
	// Output:
	// message in time: true
	// message in time: true
	// message in time: true
	// silent for 30 s
	// message in time: false
}

// The timeout counts from the arrival of a packet, although the packet has waited in a queue.
func ExampleFuncTimer_TouchFrom() {
	start := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
	if err != nil {
		panic(err)
	}
	idle := tw.NewFuncTimer(30*time.Second, func() { fmt.Println("silent at", tw.Now().Format(time.TimeOnly)) })

	tw.Advance(start.Add(20 * time.Second))
	arrived := tw.Now()
	tw.Advance(start.Add(25 * time.Second)) // in the queue
	idle.TouchFrom(arrived)
	tw.Advance(start.Add(50 * time.Second))
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
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	if err != nil {
		panic(err)
	}
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

// A program works until a signal arrives. Then Shutdown discards the pending timers and waits for
// the callbacks that are running, but not forever.
func ExampleTimingWheel_Shutdown() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	tw.AfterFunc(time.Hour, func() { fmt.Println("an hour has passed") })
	tw.AfterFunc(10*time.Millisecond, func() {
		stop() // ends the context, as a signal does
		time.Sleep(10 * time.Millisecond)
		fmt.Println("callback has ended")
	})
	<-ctx.Done()

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := tw.Shutdown(ctx); err != nil {
		fmt.Println("callbacks are still running:", err)
	}
	// Output: callback has ended
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
