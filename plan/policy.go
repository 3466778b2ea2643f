package plan

import (
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// Misfire is a policy for runs that could not start in time, see [WithMisfire]. The zero value is [RunOnce].
type Misfire struct {
	all     bool          // each takes place, not one for all
	limited bool          // none takes place that is later than grace
	grace   time.Duration // 0 where it is not limited
}

var (
	// RunOnce runs what was held up at once, however late, and leaves out the others that have misfired by then: one
	// late run stands for all of them, and the plan goes on in its phase. It is the default.
	RunOnce = Misfire{}

	// RunAll runs each of them, back to back, with its own planned time (see [timingwheel.TimingWheel.ScheduleRun]),
	// however many there are. While a plan is behind, runs that come due during a run are among them. In Manual
	// mode each takes an Advance of its own.
	RunAll = Misfire{all: true}
)

// Skip leaves out runs that start more than grace after their planned time, and runs once for those that are not so
// late. In the real world every run is a little late, so a grace of less than some ticks of the wheel leaves out
// good runs. Zero is accepted, for wheels in Manual mode. It panics where grace is negative.
func Skip(grace time.Duration) Misfire {
	return Misfire{limited: true, grace: notNegative("Skip", "grace", grace)}
}

// CatchUp is RunAll for runs that are at most window late; those that are later are left out. It panics where window
// is negative.
func CatchUp(window time.Duration) Misfire {
	return Misfire{all: true, limited: true, grace: notNegative("CatchUp", "window", window)}
}

func notNegative(caller, name string, d time.Duration) time.Duration {
	if d < 0 {
		panic(fmt.Sprintf("plan: %s: %s is %v; accepted is zero or a positive duration", caller, name, d))
	}
	return d
}

// WithMisfire returns s with the policy for runs that could not start in time: [RunOnce], [RunAll], [Skip] or
// [CatchUp]. A run that is left out counts neither for [Limit] nor for [Backoff].
//
// The policy has no effect where s is, or wraps, a [timingwheel.Planner] that is not of this package. It panics
// where s is nil.
func WithMisfire(s timingwheel.Scheduler, policy Misfire) timingwheel.Scheduler {
	c := of("WithMisfire", s).copy()
	c.misfire = policy
	return c
}

// Overlap is a policy for runs that come due while the run before them is under way, see [WithOverlap].
type Overlap int

const (
	// SkipIfRunning leaves them out. It is the default.
	SkipIfRunning Overlap = iota

	// QueueOne makes up for all of them with one run, which starts when the run under way has ended. It has the
	// planned time of the first of them. Then the plan goes on in its phase.
	QueueOne

	// Allow starts them beside the run under way: the next run is armed before a run begins. With RunAll, all that have
	// misfired start together. With [FixedDelay] and [Backoff], whose next run is planned when one has ended, it
	// changes nothing. On an executor that runs one callback after the other, as [timingwheel.Inline] does, no two
	// runs are under way at once.
	Allow
)

// WithOverlap returns s with the policy for runs that come due while the run before them is under way.
//
// The policy has no effect where s is, or wraps, a [timingwheel.Planner] that is not of this package. It panics
// where s is nil or the policy none of the three.
func WithOverlap(s timingwheel.Scheduler, policy Overlap) timingwheel.Scheduler {
	if policy < SkipIfRunning || policy > Allow {
		panic(fmt.Sprintf("plan: WithOverlap: policy is %d; accepted are SkipIfRunning, QueueOne and Allow", policy))
	}
	c := of("WithOverlap", s).copy()
	c.overlap = policy
	return c
}
