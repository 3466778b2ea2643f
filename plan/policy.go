package plan

import (
	"fmt"
	"math"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/course"
)

// Misfire is a policy for runs that could not start in time, see [WithMisfire].
type Misfire int

const (
	// RunOnce starts the run that was held up as soon as possible, however late, and leaves out the
	// others that have misfired by then. One late run stands for all of them, and the plan
	// continues in its phase. RunOnce is the default.
	RunOnce Misfire = iota

	// RunAll starts each of them, back to back, with its own planned time (see
	// [timingwheel.Run.Planned]), however many there are. While a plan is behind, runs that come
	// due during a run are among them. In Manual mode each takes an Advance of its own.
	RunAll
)

// String returns the name of the constant.
func (m Misfire) String() string { return constName("Misfire", int(m), "RunOnce", "RunAll") }

// WithMisfire returns s with a policy for runs that could not start in time. A run that is left out
// counts neither for [Limit] nor for [Backoff]. WithMisfire panics if s is nil or the policy is
// neither RunOnce nor RunAll.
func WithMisfire(s timingwheel.Scheduler, policy Misfire) timingwheel.Scheduler {
	if policy < RunOnce || policy > RunAll {
		panic(fmt.Sprintf("plan: WithMisfire: policy is %v; accepted are RunOnce and RunAll", policy))
	}
	c := asSchedule("WithMisfire", s).copy()
	c.policies.misfire = policy
	return c
}

// MaxLate returns s without the runs that start more than d after their planned time. It composes
// with both policies of [WithMisfire]: with RunOnce, one run stands for all that are not too late;
// with RunAll, each of those takes place. A run that is left out counts neither for [Limit] nor for
// [Backoff].
//
// In practice every run is a little late, so a d of less than some ticks of the wheel leaves out
// good runs. Zero is accepted, for wheels in Manual mode. MaxLate panics if s is nil or d is
// negative.
func MaxLate(s timingwheel.Scheduler, d time.Duration) timingwheel.Scheduler {
	mustNotBeNegative("MaxLate: d", d)
	c := asSchedule("MaxLate", s).copy()
	c.policies.maxLate = d
	return c
}

// Overlap is a policy for runs that come due while the run before them is under way, see
// [WithOverlap].
type Overlap int

const (
	// SkipIfRunning leaves them out. It is the default.
	SkipIfRunning Overlap = iota

	// QueueOne makes up for all of them with one run, which starts when the run under way has
	// ended. It has the planned time of the first of them. Then the plan continues in its phase.
	QueueOne

	// Allow starts them beside the run under way: the next run is armed before a run begins. With
	// RunAll, all that have misfired start together. Allow changes nothing for [FixedDelay] and
	// [Backoff], whose next run is planned when one has ended. On an executor that runs one
	// callback after the other, as [timingwheel.Inline] does, no two runs are under way at once.
	Allow
)

// String returns the name of the constant.
func (o Overlap) String() string {
	return constName("Overlap", int(o), "SkipIfRunning", "QueueOne", "Allow")
}

// name returns the name of constant i of a type.
func constName(typeName string, i int, names ...string) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprintf("%s(%d)", typeName, i)
	}
	return names[i]
}

// WithOverlap returns s with a policy for runs that come due while the run before them is under
// way. It panics if s is nil or the policy is none of SkipIfRunning, QueueOne and Allow.
func WithOverlap(s timingwheel.Scheduler, policy Overlap) timingwheel.Scheduler {
	if policy < SkipIfRunning || policy > Allow {
		panic(fmt.Sprintf("plan: WithOverlap: policy is %v; accepted are SkipIfRunning, QueueOne and Allow", policy))
	}
	c := asSchedule("WithOverlap", s).copy()
	c.policies.overlap = policy
	return c
}

// policies are those of one plan.
type policies struct {
	misfire Misfire
	overlap Overlap
	maxLate time.Duration
}

// defaults are what a plan does by itself.
var defaults = policies{maxLate: math.MaxInt64} // no run is so late

// policed is the course of a plan with policies. It is the outermost one.
type policyCourse struct {
	course.Course
	policies

	started time.Time // of the run under way

	// If the run to come was queued, it stands for all that were missed until queued. Otherwise
	// queued is the zero time.
	queued time.Time
}

func (p *policyCourse) Before(r course.Run) course.Step {
	p.started = r.Started
	until := p.queued
	p.queued = time.Time{}
	if p.tooLate(r, until) {
		// Next is the first run that is not too late, though its time may have come as well. A run
		// that is late by just maxLate is not too late.
		return course.Step{Next: p.Course.Missed(r.Planned, r.Started.Add(-p.maxLate-1)), Omit: true}
	}
	step := p.Course.Before(r)
	if !until.IsZero() && isDue(step.Next, until) {
		step.Next = p.Course.Missed(step.Next, until)
	}
	if p.overlap == Allow {
		step.Overlap = true
		if isDue(step.Next, r.Started) {
			step.Next = p.Missed(step.Next, r.Started)
		}
	}
	return step
}

// tooLate reports whether r starts so late that it is left out. A run that was queued is not late
// while it waits.
func (p *policyCourse) tooLate(r course.Run, until time.Time) bool {
	due := r.Planned
	if until.After(due) {
		due = until
	}
	return r.Started.Sub(due) > p.maxLate
}

func (p *policyCourse) Missed(missed, now time.Time) time.Time {
	misfired := !missed.After(p.started)
	switch {
	case misfired && p.misfire == RunAll:
		return missed
	case p.overlap != QueueOne:
		return p.Course.Missed(missed, now)
	case misfired:
		if missed = p.Course.Missed(missed, p.started); !isDue(missed, now) {
			return missed
		}
	}
	p.queued = now
	return missed
}
