package plan

import (
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// follower follows one plan: the course makes the times, and here stand the policies for those that have passed.
type follower struct {
	course
	misfire Misfire
	decides bool
	allow   bool
	queue   bool

	next   time.Time // what the course has said before the run under way
	queued time.Time // the run to come was queued and stands for all that were missed until then; zero: it was not
}

func (f *follower) Follow(r timingwheel.Run) timingwheel.Step {
	switch {
	case r.N == 0:
		return timingwheel.Step{Next: f.first(r.Started)}
	case r.Finished.IsZero():
		return f.begin(r)
	default:
		return timingwheel.Step{Next: f.end(r)}
	}
}

func (f *follower) begin(r timingwheel.Run) timingwheel.Step {
	until := f.queued
	f.queued = time.Time{}
	if f.tooLate(r, until) {
		// Next is the first run that is not too late, though its time may have come as well. One that is late by
		// just the grace is not.
		return timingwheel.Step{Next: f.skip(r.Planned, r.Started.Add(-f.misfire.grace-1)), Skip: true}
	}
	step := f.before(r)
	if !until.IsZero() && passed(step.Next, until) {
		step.Next = f.skip(step.Next, until)
	}
	if f.allow {
		step.Overlap = true
		step.Next = f.settle(step.Next, r.Started, r.Started)
	}
	f.next = step.Next
	return step
}

// tooLate reports whether r starts so late that it is left out. A run that was queued is not late while it waits.
func (f *follower) tooLate(r timingwheel.Run, until time.Time) bool {
	if !f.misfire.limited || f.decides {
		return false
	}
	due := r.Planned
	if until.After(due) {
		due = until
	}
	return r.Started.Sub(due) > f.misfire.grace
}

func (f *follower) end(r timingwheel.Run) time.Time {
	next := f.after(r, f.next)
	if f.decides {
		return next
	}
	return f.settle(next, r.Started, r.Finished)
}

// settle applies the policies to next, the run that follows one from started to finished.
func (f *follower) settle(next, started, finished time.Time) time.Time {
	if passed(next, started) {
		if f.misfire.all {
			return next
		}
		next = f.skip(next, started)
	}
	if passed(next, finished) {
		if f.queue {
			f.queued = finished
			return next
		}
		next = f.skip(next, finished)
	}
	return next
}

// passed reports whether there is a run at t, and it is not after now.
func passed(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }
