package plan

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// Jitter delays each run of s by a random time from 0 to max, both included: never does a run come before its time.
// Delays do not add up, as the next run is planned from the time that s has given. max should be less than the interval
// of s: otherwise a run may be planned before the one that it follows, and then counts as missed. Jitter panics
// where s is nil or max negative; zero changes nothing.
func Jitter(s timingwheel.Scheduler, max time.Duration) timingwheel.Scheduler {
	if max < 0 {
		panic(fmt.Sprintf("plan: Jitter: max is %v; accepted is zero or a positive duration", max))
	}
	draw := func() time.Duration { return time.Duration(rand.Uint64N(uint64(max) + 1)) }
	return jitter(s, draw)
}

func jitter(s timingwheel.Scheduler, draw func() time.Duration) *schedule {
	return of("Jitter", s).around(func(c course) course { return &jittered{course: c, draw: draw} })
}

type jittered struct {
	course
	draw    func() time.Duration
	current moved // the run under way
	next    moved // the run to come
}

// moved is a run, where the inner Scheduler planned it and where it is planned now.
type moved struct{ from, to time.Time }

// origin returns the time at which the run at t was planned. For a run that Reschedule has moved,
// that is t itself.
func (m moved) origin(t time.Time) time.Time {
	if t.Equal(m.to) {
		return m.from
	}
	return t
}

func (j *jittered) move(from time.Time, by time.Duration) time.Time {
	j.next = moved{from, from}
	if !from.IsZero() {
		j.next.to = from.Add(by)
	}
	return j.next.to
}

func (j *jittered) first(now time.Time) time.Time { return j.move(j.course.first(now), j.draw()) }

func (j *jittered) before(r timingwheel.Run) timingwheel.Step {
	j.current = moved{j.next.origin(r.Planned), r.Planned}
	r.Planned = j.current.from
	step := j.course.before(r)
	step.Next = j.move(step.Next, j.draw())
	return step
}

func (j *jittered) after(r timingwheel.Run, _ time.Time) time.Time {
	r.Planned = j.current.from
	next := j.course.after(r, j.next.from)
	if next.Equal(j.next.from) {
		return j.next.to
	}
	return j.move(next, j.draw())
}

// skip draws first. Then it is clear after which time the inner Scheduler has to plan.
func (j *jittered) skip(missed, now time.Time) time.Time {
	by := j.draw()
	from, after := j.next.origin(missed), now.Add(-by)
	if after.Before(from) {
		after = from
	}
	return j.move(j.course.skip(from, after), by)
}
