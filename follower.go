package timingwheel

import (
	"reflect"
	"time"
)

// Run is one run of a plan.
//
// Its times come from the clock by which plans are made: the current time with both clocks, in Manual mode the
// wheel's. Planned is the time that was given by whoever planned the run, so it has a monotonic reading or has
// none as that one has.
type Run struct {
	N        int       // counts the runs from 1, up to math.MaxInt. 0 stands for the call that began the plan, with its time in all three
	Planned  time.Time // when the run was to start, as it was planned or as Reschedule moved it
	Started  time.Time // never before Planned, apart from a Flush and from steps of the wall clock
	Finished time.Time // zero: the run is about to start
}

// Step is what a [Follower] says of a run.
type Step struct {
	// Next is the run that follows, the zero time where there is none. A Next that is not in the future is
	// taken as it is, and starts at once.
	Next time.Time

	// Skip says that the run, which is about to start, does not take place: Next is armed instead, and the
	// number of the run is given to that one.
	Skip bool

	// Overlap says that Next is armed before the run, which is about to start, begins: runs may overlap. The
	// Follower is not asked after such a run.
	Overlap bool
}

// Follower decides how one plan goes on, run by run. It is asked
//
//   - when the plan begins, with a Run whose N is 0: for its first run;
//   - when a run is about to start: whether there is a further one, which is what Stop returns during the run;
//   - when that run has ended, by return, panic or runtime.Goexit: for the final time of the
//     further run. It is not asked this time if there is no further run, if the run was skipped or
//     may overlap with the next, or if Stop or Reschedule has already decided.
//
// Follow runs without a lock and never concurrently, so a Follower may keep state without one of its own. If it
// panics the plan ends, and a run for which it was asked does not take place.
type Follower interface{ Follow(r Run) Step }

// Planner is a Scheduler that wants to know more of a run than its planned time. Plan is called once for each plan
// and returns the Follower that decides in its place; Next is then not called. The wrappers of package plan are
// Planners.
type Planner interface {
	Scheduler
	Plan() Follower
}

// ScheduleRun is ScheduleFunc for a function that wants to know of its run, most of all for which time it was
// planned. Finished is the zero time there.
func (tw *TimingWheel) ScheduleRun(s Scheduler, f func(r Run)) Timer {
	if s == nil || f == nil {
		panic("timingwheel: ScheduleRun with a nil Scheduler or function")
	}
	if p, ok := s.(Planner); ok {
		return tw.follow(p.Plan(), f, reflect.ValueOf(f).Pointer())
	}
	return tw.follow(&plain{scheduler: s}, f, reflect.ValueOf(f).Pointer())
}

// ScheduleRun calls [TimingWheel.ScheduleRun] on [Default].
func ScheduleRun(s Scheduler, f func(r Run)) Timer { return Default().ScheduleRun(s, f) }

// plain is the Follower of a Scheduler that is no Planner: missed runs are skipped.
type plain struct {
	scheduler Scheduler
	next      time.Time
}

func (p *plain) Follow(r Run) Step {
	switch {
	case r.N == 0:
		p.next = p.scheduler.Next(r.Started)
	case r.Finished.IsZero():
		p.next = p.scheduler.Next(r.Planned)
	case !p.next.After(r.Finished):
		p.next = skip(p.scheduler, p.next, r.Finished)
	}
	return Step{Next: p.next}
}

// followed is a plan with a Follower. It is a type of its own, so that plans without one stay small.
type followed struct {
	plan
	follower Follower
	f        func(Run)
	callee   uintptr // the code of the user's function, which is f or called by f
	n        int     // runs that have begun
}

func (tw *TimingWheel) follow(follower Follower, f func(Run), callee uintptr) Timer {
	if follower == nil {
		panic("timingwheel: a Planner whose Plan is a nil Follower")
	}
	now := tw.today()
	first := follower.Follow(Run{Planned: now, Started: now, Finished: now}).Next
	p := &followed{plan: plan{wheel: tw, planned: first}, follower: follower, f: f, callee: callee}
	return p.start(p.run)
}

// run is the payload.
func (p *followed) run() {
	r, step, off := p.begin()
	switch {
	case off || step.Skip:
		p.arm(step.Next)
	case step.Overlap:
		p.n = r.N
		p.arm(step.Next) // from here on all but p.f may be the next run's
		p.f(r)
	default:
		p.n = r.N
		defer p.finish(r, step.Next)
		p.f(r)
	}
}

// begin asks about the run that is about to start.
func (p *followed) begin() (r Run, step Step, off bool) {
	asked := false
	defer func() {
		if !asked {
			p.arm(time.Time{}) // Follow panics: Reschedule may have asked for one more run
		}
	}()
	p.takeRescheduled()
	r = Run{N: max(p.n+1, p.n), Planned: p.planned, Started: p.wheel.today()}
	step, off = p.ask(r)
	asked = true
	return r, step, off
}

// ask asks about the run. If there is no further run, the plan ends unless Reschedule has asked for
// one more. For off see settle.
func (p *followed) ask(r Run) (step Step, off bool) {
	defer func() { off = p.settle(step.Next) }()
	return p.follower.Follow(r), false
}

// finish arms the run that follows r, at the time that Reschedule has set or else the Follower.
func (p *followed) finish(r Run, next time.Time) {
	defer func() { p.arm(next) }() // also where Follow panics
	if next.IsZero() || !p.live() {
		return
	}
	next = time.Time{}
	r.Finished = p.wheel.today()
	step, _ := p.ask(r)
	next = step.Next
}
