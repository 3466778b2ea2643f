package plan

import (
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// course makes the times of one plan and keeps its state. Its methods are called one after the other. A zero time
// says that there is no further run.
type course interface {
	// first is the first run of a plan that begins now.
	first(now time.Time) time.Time

	// before is asked before run r: for the one that follows it.
	before(r timingwheel.Run) timingwheel.Step

	// after is asked when r has ended. next is what before has said; after may correct it.
	after(r timingwheel.Run, next time.Time) time.Time

	// skip is the first run after now of those that follow missed, which is not after now. It never searches, so
	// its cost does not depend on how many runs were missed.
	skip(missed, now time.Time) time.Time
}

// plain is a Scheduler that knows nothing of runs.
type plain struct{ timingwheel.Scheduler }

func (p plain) first(now time.Time) time.Time { return p.Next(now) }

func (p plain) before(r timingwheel.Run) timingwheel.Step {
	return timingwheel.Step{Next: p.Next(r.Planned)}
}

func (p plain) after(_ timingwheel.Run, next time.Time) time.Time { return next }

func (p plain) skip(missed, now time.Time) time.Time {
	if s, ok := p.Scheduler.(timingwheel.Skipper); ok {
		return s.Skip(missed, now)
	}
	return p.Next(now)
}

// foreign is the Follower of a Planner that is not of this package. It decides by itself.
type foreign struct{ timingwheel.Follower }

func (f foreign) first(now time.Time) time.Time { return f.Follow(call(now)).Next }

func (f foreign) before(r timingwheel.Run) timingwheel.Step { return f.Follow(r) }

func (f foreign) after(r timingwheel.Run, _ time.Time) time.Time { return f.Follow(r).Next }

func (f foreign) skip(missed, _ time.Time) time.Time { return missed }

// call is the Run that stands for the call that begins a plan.
func call(now time.Time) timingwheel.Run {
	return timingwheel.Run{Planned: now, Started: now, Finished: now}
}
