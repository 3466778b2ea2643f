// Package course has the questions that a plan of the wheel asks about its runs, and the answers of
// Schedulers that have nothing but the method Next.
//
// The wheel keeps one plan for each ScheduleFunc and asks the plan's Course. Package plan makes
// Courses that answer differently. A Course outside of this module is not possible, because no
// other module can name the types of this package.
package course

import "time"

// Scheduler is timingwheel.Scheduler.
type Scheduler interface{ Next(t time.Time) time.Time }

// Course decides how one plan goes on, run by run. A zero time means that there is no further run.
//
// Methods are called one after the other and without a lock, so a Course needs no lock for its
// state:
//
//	First                   when the plan begins
//	Before                  when a run is about to start
//	After, perhaps Missed   when that run has ended by return, panic or runtime.Goexit
//
// After is not called if there is no further run, if the run was omitted or may overlap with the
// next one, or if Stop or Reschedule has already decided. If a method panics, the plan ends, and a
// run that was about to start does not take place.
type Course interface {
	// First returns the first run of a plan that begins now.
	First(now time.Time) time.Time

	// Before returns the answer about run r. A Stop during the run returns true if and only if the
	// answer has a further run.
	Before(r Run) Step

	// After returns the final time of the further run. next is the answer of Before about the run
	// that has ended, and finished the time at which it has.
	After(next, finished time.Time) time.Time

	// Missed returns the first run after now of those that follow missed, which has passed. A plan
	// asks if After has returned a time that has passed, and uses the answer as it is. Missed does
	// not search, so its cost does not depend on the number of runs that were missed.
	Missed(missed, now time.Time) time.Time
}

// Run is a run that is about to start.
type Run struct {
	N       int       // 1 for the first run, up to math.MaxInt
	Planned time.Time // when the run was to start, as planned or as moved by Reschedule
	Started time.Time // the zero time if the Course is Untimed
}

// Step is the answer about a run that is about to start.
type Step struct {
	Next    time.Time // the run that follows
	Omit    bool      // the run does not take place; Next is armed instead and gets its number
	Overlap bool      // Next is armed before the run begins, so runs may overlap
}

// Starter is a Scheduler that makes a Course for each plan.
type Starter interface{ Begin() Course }

// Of returns the Course of a new plan.
func Of(s Scheduler) Course {
	switch s := s.(type) {
	case Starter:
		return s.Begin()
	case Course: // without state
		return s
	}
	return Plain{s}
}

// Untimed reports whether c does not look at Run.Started, so that no clock has to be read for it.
func Untimed(c Course) bool {
	switch c.(type) {
	case Every, Plain:
		return true
	}
	return false
}

// Plain is the Course of a Scheduler that knows nothing of runs.
type Plain struct{ Scheduler }

func (p Plain) First(now time.Time) time.Time     { return p.Next(now) }
func (p Plain) Before(r Run) Step                 { return Step{Next: p.Next(r.Planned)} }
func (p Plain) After(next, _ time.Time) time.Time { return next }
func (p Plain) Missed(_, now time.Time) time.Time { return p.Next(now) }

// Every is a Scheduler, and its own Course, with a fixed rate. It is positive.
type Every time.Duration

func (e Every) Next(t time.Time) time.Time        { return t.Add(time.Duration(e)) }
func (e Every) First(now time.Time) time.Time     { return e.Next(now) }
func (e Every) Before(r Run) Step                 { return Step{Next: e.Next(r.Planned)} }
func (e Every) After(next, _ time.Time) time.Time { return next }

// Missed keeps the phase, which Next alone would lose.
func (e Every) Missed(missed, now time.Time) time.Time {
	d := time.Duration(e)
	return now.Add(d - now.Sub(missed)%d) // missed plus a multiple of d could overflow
}
