package plan

import (
	"fmt"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// schedule is what the functions of this package return.
type schedule struct {
	begin   func() course
	misfire Misfire
	overlap Overlap
	decides bool // a foreign Planner is at the bottom: the policies do not apply
	delays  bool // times count from the end of the run before: runs cannot overlap

	mu   sync.Mutex
	user *user // whoever calls Next; nil: nobody yet
}

// Plan begins a plan.
func (s *schedule) Plan() timingwheel.Follower { return s.follower() }

func (s *schedule) follower() *follower {
	return &follower{
		course:  s.begin(),
		misfire: s.misfire,
		decides: s.decides,
		allow:   s.overlap == Allow && !s.delays && !s.decides,
		queue:   s.overlap == QueueOne,
	}
}

// Next is the run after t in the one plan of those who call it.
func (s *schedule) Next(t time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.user == nil {
		s.user = &user{course: s.begin()}
	}
	return s.user.after(t)
}

// user is a plan whose runs are not seen. A call of after is the whole of one: it starts and ends at t.
type user struct {
	course
	calls int
	last  time.Time
	ended bool
}

func (u *user) after(t time.Time) time.Time {
	switch {
	case u.ended:
		return time.Time{}
	case u.calls == 0:
		u.last = u.first(t)
	default:
		u.last = u.follow(timingwheel.Run{N: u.calls, Planned: u.planned(t), Started: t})
	}
	u.calls = max(u.calls+1, u.calls) // it may overflow
	u.ended = u.last.IsZero()
	return u.last
}

// planned is the run to which t belongs: the last one, unless t lies before it.
func (u *user) planned(t time.Time) time.Time {
	if t.Before(u.last) {
		return t
	}
	return u.last
}

func (u *user) follow(r timingwheel.Run) time.Time {
	step := u.before(r)
	if step.Skip {
		u.calls--
	}
	if step.Next.IsZero() || step.Skip || step.Overlap {
		return step.Next
	}
	r.Finished = r.Started
	next := u.course.after(r, step.Next)
	if next.IsZero() || next.After(r.Started) {
		return next
	}
	return u.skip(next, r.Started)
}

// of returns s as a schedule. caller names the function for the panic where s is nil.
func of(caller string, s timingwheel.Scheduler) *schedule {
	switch v := s.(type) {
	case nil:
		panic("plan: " + caller + " of a nil Scheduler")
	case *schedule:
		return v
	case timingwheel.Planner:
		return &schedule{begin: func() course { return foreign{v.Plan()} }, decides: true}
	default:
		return made(func() course { return plain{v} })
	}
}

// made is a schedule with the default policies.
func made(begin func() course) *schedule { return &schedule{begin: begin} }

// copy is a schedule of its own that differs in what the caller will change.
func (s *schedule) copy() *schedule {
	return &schedule{begin: s.begin, misfire: s.misfire, overlap: s.overlap, decides: s.decides, delays: s.delays}
}

// around is a schedule whose courses are wrapped.
func (s *schedule) around(wrap func(course) course) *schedule {
	c := s.copy()
	c.begin = func() course { return wrap(s.begin()) }
	return c
}

// mustBePositive panics unless d is positive. what names the function and the argument.
func mustBePositive(what string, d time.Duration) {
	if d <= 0 {
		panic(fmt.Sprintf("plan: %s is %v; accepted is a positive duration", what, d))
	}
}
