// Package planner defines the interface through which a plan of the wheel determines its runs, and
// implements it for Schedulers that have only the method Next. Package schedule has other Planners.
package planner

import "time"

// Scheduler is timingwheel.Scheduler.
type Scheduler interface{ Next(t time.Time) time.Time }

// Planner determines the runs of one plan. A zero time means that there is no further run.
//
// The plan calls the methods one after the other, so a Planner needs no lock:
//
//	First                   when the plan begins, and when the wall clock was set back far
//	Before                  when a run is about to start
//	After, perhaps Missed   when that run has ended by return, panic or runtime.Goexit
//
// The plan does not call After if there is no further run, if the run was omitted or may overlap
// with the next one, or if Stop or Reschedule was called during the run. If a method panics, the
// plan ends, and a run that was about to start does not take place.
type Planner interface {
	// First returns the time of the first run of a plan that begins now, or continues now although
	// a run was planned for a later time.
	First(now time.Time) time.Time

	// Before decides about run r, which is about to start, and plans the next run. Stop during run
	// r returns true if and only if the Step has a next run.
	Before(r Run) Step

	// After returns the final time of the next run. next is the time that Before returned for it,
	// and finished is the time at which the run has ended.
	After(next, finished time.Time) time.Time

	// Missed returns the time of the first run after now. A plan calls Missed if After has returned
	// missed, a time in the past. The cost does not depend on the number of missed runs.
	Missed(missed, now time.Time) time.Time
}

// Run is a run that is about to start.
type Run struct {
	N       int       // 1 for the first run, up to math.MaxInt
	Planned time.Time // the time for which the run was planned, or to which Reschedule moved it
	Started time.Time
}

// Step is the decision about a run that is about to start.
type Step struct {
	Next    time.Time // the time of the next run
	Omit    bool      // the run does not take place; the run at Next gets its number
	Overlap bool      // the next run is armed before this run begins, so runs may overlap
}

// Factory is a Scheduler that returns a new Planner for each plan.
type Factory interface{ NewPlanner() Planner }

// For returns the Planner of a new plan.
func For(s Scheduler) Planner {
	switch s := s.(type) {
	case Factory:
		return s.NewPlanner()
	case Planner: // a Planner without state
		return s
	}
	return Plain{s}
}

// Plain is the Planner of a Scheduler that has only the method Next.
type Plain struct{ Scheduler }

func (p Plain) First(now time.Time) time.Time     { return p.Next(now) }
func (p Plain) Before(r Run) Step                 { return Step{Next: p.Next(r.Planned)} }
func (p Plain) After(next, _ time.Time) time.Time { return next }
func (p Plain) Missed(_, now time.Time) time.Time { return p.Next(now) }

// Every is a Scheduler with a fixed rate, and its own Planner. It must be positive.
type Every time.Duration

func (e Every) Next(t time.Time) time.Time        { return t.Add(time.Duration(e)) }
func (e Every) First(now time.Time) time.Time     { return e.Next(now) }
func (e Every) Before(r Run) Step                 { return Step{Next: e.Next(r.Planned)} }
func (e Every) After(next, _ time.Time) time.Time { return next }

// Missed keeps the phase, which a call to Next would lose.
func (e Every) Missed(missed, now time.Time) time.Time {
	d := time.Duration(e)
	return now.Add(d - now.Sub(missed)%d) // missed plus a multiple of d could overflow
}
