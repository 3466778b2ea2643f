// Package plan makes Schedulers that compose: delays, wall-clock boundaries and backoff, with
// jitter, an end, and policies for runs that were missed.
//
//	s := plan.Aligned(15*time.Minute, time.Local) // :00, :15, :30, :45
//	s = plan.Jitter(s, 10*time.Second)            // programs do not all run at once
//	s = plan.Limit(s, 100)
//	tw.ScheduleFunc(s, f)
//
// Every function takes or returns a [timingwheel.Scheduler]. A Schedule of github.com/robfig/cron,
// [timingwheel.Every] and a Scheduler of your own compose in the same way.
//
// # Times
//
// [timingwheel.Every], [FixedDelay], [Aligned] and [Backoff] say when runs are to start. [Jitter],
// [Limit] and [Until] change the times of the Scheduler that they wrap, from the inside to the
// outside: Until(Jitter(s, max), t) plans no run after t, Jitter(Until(s, t), max) none after
// t+max.
//
// # Policies
//
// [WithMisfire], [MaxLate] and [WithOverlap] say what becomes of runs that could not start in time.
// Policies belong to the whole plan, so it does not matter where in a chain of wrappers they stand.
// Of two policies of one kind the outer one counts. A run is missed in one of two ways:
//
//   - It has misfired if its time had come when the run before it started: the process was stopped,
//     the machine was busy, or Advance took a large step. With [RunOnce], the default, one late run
//     stands for all runs that have misfired.
//   - It overlaps if its time came between the start and the end of the run before it. With
//     [SkipIfRunning], the default, it does not take place.
//
// # Values
//
// A Scheduler of this package may serve any number of plans at once. Each plan has a count, a
// backoff and a jitter of its own. The method Next, for callers that ask for times themselves, is
// one more such plan, whose state is kept in the value. Next may be called from any goroutine.
package plan

import (
	"fmt"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/course"
)

// schedule is the Scheduler that the functions of this package return.
type schedule struct {
	times      func() course.Course // makes the course of one plan, without policies
	policies   policies
	sequential bool // times count from the end of the run before: runs cannot overlap

	mu       sync.Mutex
	nextPlan *nextPlan // the plan of the callers of Next; nil: there was no call
}

// Begin returns the course of a new plan.
func (s *schedule) Begin() course.Course {
	p := s.policies
	if s.sequential && p.overlap == Allow {
		p.overlap = SkipIfRunning
	}
	if p == defaults {
		return s.times()
	}
	return &policyCourse{Course: s.times(), policies: p}
}

// Next returns the run after t in the plan of the callers of Next.
func (s *schedule) Next(t time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nextPlan == nil {
		s.nextPlan = &nextPlan{course: s.times()}
	}
	return s.nextPlan.next(t)
}

// user is a plan that is told of its runs by calls of Next. A run starts and ends at its call.
type nextPlan struct {
	course course.Course
	calls  int
	last   time.Time
	ended  bool
}

func (p *nextPlan) next(t time.Time) time.Time {
	if p.ended {
		return time.Time{}
	}
	if p.calls == 0 {
		p.last = p.course.First(t)
	} else {
		p.last = p.follow(course.Run{N: p.calls, Planned: p.planned(t), Started: t})
	}
	p.calls = max(p.calls+1, p.calls) // it may overflow
	p.ended = p.last.IsZero()
	return p.last
}

// planned returns the run to which t belongs: the last one, unless t lies before it.
func (p *nextPlan) planned(t time.Time) time.Time {
	if t.Before(p.last) {
		return t
	}
	return p.last
}

// follow returns the run that follows r.
func (p *nextPlan) follow(r course.Run) time.Time {
	next := p.course.Before(r).Next
	if next.IsZero() {
		return next
	}
	next = p.course.After(next, r.Started)
	if isDue(next, r.Started) {
		next = p.course.Missed(next, r.Started)
	}
	return next
}

// passed reports whether there is a run at t and it is not after now.
func isDue(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

// of returns s as a schedule. caller names the function for the panic if s is nil.
func asSchedule(caller string, s timingwheel.Scheduler) *schedule {
	switch s := s.(type) {
	case nil:
		panic("plan: " + caller + " of a nil Scheduler")
	case *schedule:
		return s
	}
	return newSchedule(func() course.Course { return course.Of(s) })
}

// made returns a schedule with the default policies.
func newSchedule(times func() course.Course) *schedule {
	return &schedule{times: times, policies: defaults}
}

// copy returns a schedule for the caller to change.
func (s *schedule) copy() *schedule {
	return &schedule{times: s.times, policies: s.policies, sequential: s.sequential}
}

// around returns a schedule whose courses are wrapped.
func (s *schedule) wrap(with func(course.Course) course.Course) *schedule {
	c := s.copy()
	c.times = func() course.Course { return with(s.times()) }
	return c
}

// mustBePositive panics unless d is positive. what names the function and the argument.
func mustBePositive(what string, d time.Duration) {
	if d <= 0 {
		panic(fmt.Sprintf("plan: %s is %v; accepted is a positive duration", what, d))
	}
}

// mustNotBeNegative panics if d is negative. what names the function and the argument.
func mustNotBeNegative(what string, d time.Duration) {
	if d < 0 {
		panic(fmt.Sprintf("plan: %s is %v; accepted is zero or a positive duration", what, d))
	}
}
