// Package schedule provides Schedulers that compose: fixed delays, wall-clock boundaries and
// backoff, with jitter, an end, and policies for missed runs.
//
//	s := schedule.Aligned(15*time.Minute, time.Local) // :00, :15, :30, :45
//	s = schedule.Jitter(s, 10*time.Second)            // so that programs do not all run together
//	s = schedule.Limit(s, 100)
//	tw.ScheduleFunc(s, f)
//
// Every function returns a [timingwheel.Scheduler], and the wrappers accept any Scheduler,
// including [timingwheel.Every], a Schedule from github.com/robfig/cron, and a Scheduler of your
// own. Bad arguments panic.
//
// # Run times
//
// [timingwheel.Every], [FixedDelay], [Aligned] and [Backoff] determine when runs start. [Jitter],
// [Limit] and [Until] change the times of the Scheduler that they wrap, so their order matters:
// Until(Jitter(s, max), t) plans no run after t, and Jitter(Until(s, t), max) none after t+max.
//
// # Policies for missed runs
//
// [WithMisfire], [MaxLate] and [WithOverlap] determine what happens to runs that could not start in
// time. A policy applies to the whole plan, so its position in a chain of wrappers does not matter.
// If a chain has two policies of one kind, the outer one applies. A run is missed in one of two
// ways:
//
//   - A run has misfired if it was due before the previous run started, for example because the
//     process was stopped, the machine was busy, or Advance took a large step. With [RunOnce], the
//     default, one late run replaces all runs that have misfired.
//   - A run overlaps if it came due between the start and the end of the previous run. With
//     [SkipIfRunning], the default, an overlapping run does not take place.
//
// # Sharing a Scheduler
//
// A Scheduler from this package may be shared by any number of plans. Each plan has its own count,
// backoff and jitter. The method Next is for callers that compute run times themselves, such as a
// cron.Cron. All calls to Next on one Scheduler form one more plan, whose state is kept in the
// Scheduler. Next may be called from any goroutine.
package schedule

import (
	"fmt"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/planner"
)

// schedule is the Scheduler that the functions of this package return.
type schedule struct {
	times      func() planner.Planner // returns the planner of a new plan, without policies
	policies   policies
	sequential bool // delays count from the end of the previous run, so runs cannot overlap

	mu       sync.Mutex
	nextPlan *nextPlan // the plan of the callers of Next; nil before the first call
}

// NewPlanner returns the planner of a new plan.
func (s *schedule) NewPlanner() planner.Planner {
	p := s.policies
	if s.sequential && p.overlap == Allow {
		p.overlap = SkipIfRunning
	}
	if p == defaults {
		return s.times()
	}
	return &policyPlanner{Planner: s.times(), policies: p}
}

// Next returns the time of the run after t in the plan that all calls to Next form, or the zero
// time if that plan has ended.
func (s *schedule) Next(t time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nextPlan == nil {
		s.nextPlan = &nextPlan{planner: s.times()}
	}
	return s.nextPlan.next(t)
}

// nextPlan is the plan of the callers of Next. For this plan a run starts and ends when the next
// time is asked for.
type nextPlan struct {
	planner planner.Planner
	calls   int
	last    time.Time
	ended   bool
}

func (p *nextPlan) next(t time.Time) time.Time {
	if p.ended {
		return time.Time{}
	}
	if p.calls == 0 {
		p.last = p.planner.First(t)
	} else {
		p.last = p.follow(planner.Run{N: p.calls, Planned: p.planned(t), Started: t})
	}
	p.calls = max(p.calls+1, p.calls) // calls+1 may overflow
	p.ended = p.last.IsZero()
	return p.last
}

// planned returns the planned time of the run to which t belongs: the last run, unless t is before
// it.
func (p *nextPlan) planned(t time.Time) time.Time {
	if t.Before(p.last) {
		return t
	}
	return p.last
}

// follow returns the run that follows r.
func (p *nextPlan) follow(r planner.Run) time.Time {
	next := p.planner.Before(r).Next
	if next.IsZero() {
		return next
	}
	next = p.planner.After(next, r.Started)
	if isDue(next, r.Started) {
		next = p.planner.Missed(next, r.Started)
	}
	return next
}

// isDue reports whether t is the time of a run and not after now.
func isDue(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

// asSchedule returns s as a schedule. caller names the function for the panic if s is nil.
func asSchedule(caller string, s timingwheel.Scheduler) *schedule {
	switch s := s.(type) {
	case nil:
		panic("schedule: " + caller + " of a nil Scheduler")
	case *schedule:
		return s
	}
	return newSchedule(func() planner.Planner { return planner.For(s) })
}

// newSchedule returns a schedule with the default policies.
func newSchedule(times func() planner.Planner) *schedule {
	return &schedule{times: times, policies: defaults}
}

// copy returns a copy without the state of Next.
func (s *schedule) copy() *schedule {
	return &schedule{times: s.times, policies: s.policies, sequential: s.sequential}
}

// wrap returns a copy whose planners are wrapped by with.
func (s *schedule) wrap(with func(planner.Planner) planner.Planner) *schedule {
	c := s.copy()
	c.times = func() planner.Planner { return with(s.times()) }
	return c
}

// mustBePositive panics unless d is positive. what names the function and the argument.
func mustBePositive(what string, d time.Duration) {
	if d <= 0 {
		panic(fmt.Sprintf("schedule: %s is %v; it must be positive", what, d))
	}
}

// mustNotBeNegative panics if d is negative. what names the function and the argument.
func mustNotBeNegative(what string, d time.Duration) {
	if d < 0 {
		panic(fmt.Sprintf("schedule: %s is %v; it must be zero or positive", what, d))
	}
}
