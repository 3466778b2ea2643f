// Package lasting gives package wheelnet what a wheel offers to no other package: its clock, and
// timers that outlast the wheel's Stop.
package lasting

import "github.com/timingwheel-go/timingwheel/internal/clock"

// Timers are the lasting timers of a wheel. The wheel's Stop hands those that are pending to the
// runtime, which then fires them at the same time. T is timingwheel.Timer.
type Timers[T comparable] struct {
	Clock *clock.Timeline // that of the wheel

	// Arm arms a timer that calls f when the wheel's clock reads at. It returns the zero T if the
	// wheel is stopped.
	Arm func(at int64, f func()) T

	// Cancel returns true if it prevented the call of f, also if the runtime has the timer.
	Cancel func(T) bool
}

// Of returns the lasting timers of a *timingwheel.TimingWheel as a *Timers[timingwheel.Timer].
// Package timingwheel sets it when it is initialised.
var Of func(tw any) any
