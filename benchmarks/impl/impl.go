// Package impl puts timers of several libraries behind one interface, so that one workload measures them
// all, and says of each what it can do and what it cannot.
//
// There is a file for each implementation. To add one, write its file, list it in workload.Subjects, and
// run the tests: conformance_test.go tries out everything that its Traits promise.
package impl

import "time"

// Timers is an implementation at work. H is its handle; it is a type parameter since an interface would
// cost those an allocation whose handle is no pointer.
type Timers[H any] interface {
	// After arms a timer that calls f in d. An implementation that keeps values instead of functions
	// (Traits.Values) ignores f, keeps id, and hands it to Config.Fire.
	After(d time.Duration, id uint64, f func()) H

	// Stop prevents the callback. Its answer is that of the implementation, if it gives one; false
	// otherwise.
	Stop(h H) bool

	// Reset makes a pending timer run in d from now. Its answer is that of the implementation, if
	// it gives one; false otherwise.
	Reset(h H, d time.Duration) bool

	// Close ends what the implementation itself has running. Callbacks may still run afterwards.
	Close()
}

// Config is what an implementation has to know when it is made.
type Config struct {
	Horizon time.Duration   // no timer is armed for later than this
	Fire    func(id uint64) // called for what expires, by an implementation that keeps values
}

// Answer is what a call of an implementation says about its success.
type Answer int

const (
	Absent     Answer = iota // there is no such call
	Deadlocked               // there is one that can wait for itself for ever, so it is not called
	Lossy                    // there is one that may be dropped, without an answer
	Silent                   // there is one without an answer
	Wrong                    // its answer is true or false, and sometimes not so
	Exact                    // its answer is true if and only if the call took effect
)

func (a Answer) String() string {
	return [...]string{"no", "may deadlock", "may be dropped", "without an answer", "answers may be wrong", "yes"}[a]
}

// Callable says whether there is such a call and it returns.
func (a Answer) Callable() bool { return a > Deadlocked }

// Answers says whether the call says what it has done.
func (a Answer) Answers() bool { return a >= Wrong }

// Traits say what an implementation can do.
type Traits struct {
	Name   string // in the names of benchmarks
	Title  string // in prose
	Module string // its module, "" for package time and this library
	Tick   time.Duration
	Stop   Answer
	Reset  Answer
	Clock  bool   // arming a timer reads the clock
	Manual bool   // has no clock: nothing fires unless the caller moves it
	Values bool   // keeps values, and hands them over in batches
	Most   int    // so many timers are all that it can be tried with; 0: any number
	Unfit  string // why it cannot run on this machine, or ""
	Note   string
}

// Implementation is a library's timers, ready to be made.
type Implementation[H any] struct {
	Traits
	Open func(Config) (Timers[H], error)
}
