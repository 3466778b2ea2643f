// Package impl adapts the timers of several libraries to one interface, so that one workload
// measures all of them, and describes the capabilities of each.
//
// Each library has a file. To add one, write its file, list it in workload.Subjects and run the
// tests: conformance_test.go checks what its Traits say about Stop and Reset.
package impl

import "time"

// Timers is an open implementation. H is the type of its handles. H is a type parameter, because an
// interface value would allocate for each handle that is not a pointer.
type Timers[H any] interface {
	// After arms a timer that calls f after d. An implementation that keeps values instead of
	// functions (Traits.Values) ignores f and passes id to Config.Fire.
	After(d time.Duration, id uint64, f func()) H

	// Stop prevents the callback. It returns the result of the implementation, or false if there is
	// none.
	Stop(h H) bool

	// Reset postpones a pending timer to d from now. It returns the result of the implementation,
	// or false if there is none.
	Reset(h H, d time.Duration) bool

	// Close ends the goroutines of the implementation. Callbacks may still run afterwards.
	Close()
}

// Config holds the parameters of Open.
type Config struct {
	Horizon time.Duration   // no timer is armed further ahead
	Tick    time.Duration   // Traits.Tick; ignored if the tick is fixed
	Resets  bool            // the caller may call Reset
	Fire    func(id uint64) // called for each expired value, by an implementation that keeps values
}

// Support says how an implementation supports Stop or Reset.
type Support int

const (
	Absent        Support = iota // there is no such call
	MayDeadlock                  // the call may wait for itself for ever, so the workloads do not make it
	MayDrop                      // the call may have no effect, and returns no result
	WrongDeadline                // the call may set a deadline a revolution of the wheel too early or late; it returns no result
	NoResult                     // the call returns no result
	WrongResults                 // the call returns a result, which is sometimes wrong
	Exact                        // the call returns true if and only if it took effect
)

func (s Support) String() string {
	return [...]string{"no", "may deadlock", "may be dropped", "may be a revolution off", "no result", "results may be wrong", "yes"}[s]
}

// Reliable reports whether the call exists, always returns and always changes the timer.
func (s Support) Reliable() bool { return s > MayDrop }

// HasResult reports whether the call returns a result.
func (s Support) HasResult() bool { return s >= WrongResults }

// Traits describe an implementation.
type Traits struct {
	Name        string // in the names of benchmarks
	Title       string // in prose
	Module      string // "" for package time and this library
	Tick        time.Duration
	Coarse      bool // from AtCoarseTick
	Seconds     bool // delays are whole seconds
	Stop        Support
	Reset       Support
	Manual      bool   // the caller moves the clock: nothing fires by itself
	Values      bool   // keeps values, and hands them over in batches
	Population  string // why adds and pending timers cannot be measured, or ""
	Unsupported string // why it cannot run on this machine, or ""
	Note        string
}

// Implementation is the timers of a library.
type Implementation[H any] struct {
	Traits
	Open func(Config) (Timers[H], error)
}

// AtCoarseTick returns i with a tick of 100 ms. With that tick most libraries keep up with their
// tickers on a busy machine.
func (i Implementation[H]) AtCoarseTick() Implementation[H] {
	i.Note = "as `" + i.Name + "`, with another tick"
	i.Name, i.Tick, i.Coarse = i.Name+"-100ms", 100*time.Millisecond, true
	return i
}
