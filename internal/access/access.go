// Package access gives package wheelnet access to parts of a wheel that are not exported: the
// clock, and timers that survive the wheel's Stop.
package access

import "github.com/timingwheel-go/timingwheel/internal/clock"

// Timers arms and cancels timers that survive their wheel's Stop. Stop hands the pending timers to
// the runtime, which fires them at the same time as the wheel would. T is timingwheel.Timer.
type Timers[T comparable] struct {
	Clock *clock.Timeline // the clock of the wheel

	// Held names the option through which the program can hold back callbacks of the wheel for any
	// time. Empty if there is none.
	Held string

	// Arm arms a timer that calls f when the clock reads at. It returns the zero T if the wheel is
	// stopped.
	Arm func(at int64, f func()) T

	// Cancel cancels a timer of the wheel or of the runtime. It reports whether it prevented the
	// call to f.
	Cancel func(T) bool
}

// Of returns the timers of a *timingwheel.TimingWheel as a *Timers[timingwheel.Timer]. The init
// function of package timingwheel sets Of.
var Of func(tw any) any
