// Afterfunc is a first program with the library: functions that run later, a timer that is stopped,
// one that is postponed, and a function that runs repeatedly.
package main

import (
	"context"
	"io"
	"log"
	"os"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer) error {
	tw, err := timingwheel.New(timingwheel.Options{}) // starts running, with a tick of 1 ms
	if err != nil {
		return err
	}
	begin := tw.Now()
	out := log.New(w, "", 0) // callbacks run concurrently, and a Logger has a lock
	say := func(what string) {
		out.Printf("%5v  %s", tw.Now().Sub(begin).Round(10*time.Millisecond), what)
	}

	tw.AfterFunc(100*time.Millisecond, func() { say("hello") })

	stopped := tw.AfterFunc(200*time.Millisecond, func() { say("never printed") })
	if stopped.Stop() { // true: the function will not run
		say("stopped the second timer")
	}

	postponed := tw.AfterFunc(300*time.Millisecond, func() { say("hello again, later than planned") })
	if postponed.Reschedule(500 * time.Millisecond) { // from now
		say("postponed the third timer")
	}

	plan := tw.ScheduleFunc(timingwheel.Every(200*time.Millisecond), func() { say("tick") })
	time.Sleep(700 * time.Millisecond)
	plan.Stop()

	if !postponed.Reschedule(0) { // false: the timer has fired
		say("the third timer has fired and cannot be rescheduled")
	}
	return tw.Shutdown(context.Background()) // waits for running callbacks
}
