package schedule

import (
	"fmt"
	"math"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/planner"
)

// Misfire is a policy for runs that were due before the previous run started: see [WithMisfire].
type Misfire int

const (
	// RunOnce starts the delayed run as soon as possible, however late, and skips the other runs
	// that have misfired by then. One late run replaces all of them, and the plan keeps its phase.
	// RunOnce is the default.
	RunOnce Misfire = iota

	// RunAll starts every misfired run, one right after the other, each with its own planned time
	// (see [timingwheel.Run.Planned]). The number of runs is not limited. While a plan is behind,
	// runs that come due during a run count as misfired too. In Manual mode each run takes its own
	// Advance.
	RunAll
)

// String returns the name of the constant, or Misfire(n) for any other value n.
func (m Misfire) String() string { return constName("Misfire", int(m), "RunOnce", "RunAll") }

// WithMisfire returns a Scheduler with the times of s and a policy for runs that have misfired. A
// run has misfired if it was due before the previous run started. [Limit] and [Backoff] do not
// count skipped runs. WithMisfire panics if s is nil or the policy is neither RunOnce nor RunAll.
func WithMisfire(s timingwheel.Scheduler, policy Misfire) timingwheel.Scheduler {
	if policy < RunOnce || policy > RunAll {
		panic(fmt.Sprintf("schedule: WithMisfire: policy is %v; it must be RunOnce or RunAll", policy))
	}
	c := asSchedule("WithMisfire", s).copy()
	c.policies.misfire = policy
	return c
}

// MaxLate returns a Scheduler with the times of s that skips each run that would start more than d
// after its planned time. MaxLate composes with both policies for [WithMisfire]: with RunOnce, one
// run replaces all misfired runs that are late by d or less; with RunAll, each of those runs takes
// place. [Limit] and [Backoff] do not count skipped runs.
//
// In practice every run is a little late, so a d of less than a few ticks of the wheel also skips
// runs that are on time. Zero is useful only for wheels in Manual mode. MaxLate panics if s is nil
// or d is negative.
func MaxLate(s timingwheel.Scheduler, d time.Duration) timingwheel.Scheduler {
	mustNotBeNegative("MaxLate: d", d)
	c := asSchedule("MaxLate", s).copy()
	c.policies.maxLate = d
	return c
}

// Overlap is a policy for runs that come due during the previous run: see [WithOverlap].
type Overlap int

const (
	// SkipIfRunning skips runs that come due during a run. SkipIfRunning is the default.
	SkipIfRunning Overlap = iota

	// QueueOne replaces all runs that come due during a run by one run, which starts as soon as the
	// current run has ended. Its planned time is the planned time of the first run that it
	// replaces. The plan then keeps its phase. The queued run does not count as late while it
	// waits.
	QueueOne

	// Allow starts runs even if the previous run has not ended: before a run begins, the next run
	// is armed. With RunAll, all runs that have misfired start together. Allow does not affect
	// [FixedDelay] and [Backoff], which plan the next run after a run has ended. An executor that
	// runs one callback after the other, such as [timingwheel.Inline], never runs two concurrently.
	Allow
)

// String returns the name of the constant, or Overlap(n) for any other value n.
func (o Overlap) String() string {
	return constName("Overlap", int(o), "SkipIfRunning", "QueueOne", "Allow")
}

// constName returns the name of constant i of a type.
func constName(typeName string, i int, names ...string) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprintf("%s(%d)", typeName, i)
	}
	return names[i]
}

// WithOverlap returns a Scheduler with the times of s and a policy for runs that come due between
// the start and the end of the previous run. WithOverlap panics if s is nil or the policy is not
// SkipIfRunning, QueueOne or Allow.
func WithOverlap(s timingwheel.Scheduler, policy Overlap) timingwheel.Scheduler {
	if policy < SkipIfRunning || policy > Allow {
		panic(fmt.Sprintf("schedule: WithOverlap: policy is %v; it must be SkipIfRunning, QueueOne or Allow", policy))
	}
	c := asSchedule("WithOverlap", s).copy()
	c.policies.overlap = policy
	return c
}

// policies are the policies of one plan.
type policies struct {
	misfire Misfire
	overlap Overlap
	maxLate time.Duration
}

// defaults are the policies that a plan of the wheel implements itself.
var defaults = policies{maxLate: math.MaxInt64} // no run is so late

// policyPlanner implements the policies of a plan. No other planner wraps it.
type policyPlanner struct {
	planner.Planner
	policies

	started time.Time // when the current run started

	// If the next run is queued by QueueOne, it replaces all runs that were missed until queued.
	// Otherwise queued is the zero time.
	queued time.Time
}

func (p *policyPlanner) Before(r planner.Run) planner.Step {
	p.started = r.Started
	until := p.queued
	p.queued = time.Time{}
	if p.tooLate(r, until) {
		// Next is the first run that is not too late. It may be due already. A run that is late by
		// exactly maxLate is not too late.
		return planner.Step{Next: p.Planner.Missed(r.Planned, r.Started.Add(-p.maxLate-1)), Omit: true}
	}
	step := p.Planner.Before(r)
	if !until.IsZero() && isDue(step.Next, until) {
		step.Next = p.Planner.Missed(step.Next, until)
	}
	if p.overlap == Allow {
		step.Overlap = true
		if isDue(step.Next, r.Started) {
			step.Next = p.Missed(step.Next, r.Started)
		}
	}
	return step
}

// tooLate reports whether r starts so late that it is skipped. The time for which a run was queued
// does not count.
func (p *policyPlanner) tooLate(r planner.Run, until time.Time) bool {
	due := r.Planned
	if until.After(due) {
		due = until
	}
	return r.Started.Sub(due) > p.maxLate
}

func (p *policyPlanner) Missed(missed, now time.Time) time.Time {
	misfired := !missed.After(p.started)
	switch {
	case misfired && p.misfire == RunAll:
		return missed
	case p.overlap != QueueOne:
		return p.Planner.Missed(missed, now)
	case misfired:
		if missed = p.Planner.Missed(missed, p.started); !isDue(missed, now) {
			return missed
		}
	}
	p.queued = now
	return missed
}
