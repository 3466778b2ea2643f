package plan

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/course"
)

// Limit ends s after n runs. Runs that did not take place, because they were missed, do not count.
// With an n of zero there is no run. Limit panics if s is nil or n is negative.
func Limit(s timingwheel.Scheduler, n int) timingwheel.Scheduler {
	if n < 0 {
		panic(fmt.Sprintf("plan: Limit: n is %d; accepted is zero or a positive number", n))
	}
	return of("Limit", s).around(func(c course.Course) course.Course { return &limited{c, n} })
}

type limited struct {
	course.Course
	n int
}

func (l *limited) First(now time.Time) time.Time {
	if l.n == 0 {
		return time.Time{}
	}
	return l.Course.First(now)
}

func (l *limited) Before(r course.Run) course.Step {
	step := l.Course.Before(r)
	if r.N >= l.n {
		step.Next = time.Time{}
	}
	return step
}

// Until ends s after t: the last run is the last one that s plans for t or earlier. That run may
// start later than t, if it is late. Until panics if s is nil or t is the zero time.
func Until(s timingwheel.Scheduler, t time.Time) timingwheel.Scheduler {
	if t.IsZero() {
		panic("plan: Until: t is the zero time; accepted is any other")
	}
	return of("Until", s).around(func(c course.Course) course.Course { return &bounded{c, t} })
}

type bounded struct {
	course.Course
	last time.Time
}

// cut returns t, or no run if that is too late.
func (b *bounded) cut(t time.Time) time.Time {
	if t.After(b.last) {
		return time.Time{}
	}
	return t
}

func (b *bounded) First(now time.Time) time.Time { return b.cut(b.Course.First(now)) }

func (b *bounded) Before(r course.Run) course.Step {
	step := b.Course.Before(r)
	step.Next = b.cut(step.Next)
	return step
}

func (b *bounded) After(next, finished time.Time) time.Time {
	return b.cut(b.Course.After(next, finished))
}

func (b *bounded) Missed(missed, now time.Time) time.Time {
	return b.cut(b.Course.Missed(missed, now))
}

// Jitter delays each run of s by a random time from 0 to max, both included. A run never comes
// before its time. Delays do not add up, because the next run is planned from the time that s has
// given. max should be less than the interval of s. Otherwise a run may be planned before the run
// that it follows, and then counts as missed. Jitter panics if s is nil or max is negative. A max
// of zero changes nothing.
func Jitter(s timingwheel.Scheduler, max time.Duration) timingwheel.Scheduler {
	mustNotBeNegative("Jitter: max", max)
	draw := func() time.Duration { return time.Duration(rand.Uint64N(uint64(max) + 1)) }
	return jitter(s, draw)
}

func jitter(s timingwheel.Scheduler, draw func() time.Duration) *schedule {
	return of("Jitter", s).around(func(c course.Course) course.Course { return &jittered{Course: c, draw: draw} })
}

type jittered struct {
	course.Course
	draw func() time.Duration
	next moved // the run to come
}

// moved is a run: the time of the inner course, and the time after its delay.
type moved struct{ from, to time.Time }

// origin returns the time of the inner course for the run that is planned for t. For a run that
// Reschedule has moved, that is t itself.
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

func (j *jittered) First(now time.Time) time.Time { return j.move(j.Course.First(now), j.draw()) }

func (j *jittered) Before(r course.Run) course.Step {
	r.Planned = j.next.origin(r.Planned)
	step := j.Course.Before(r)
	step.Next = j.move(step.Next, j.draw())
	return step
}

func (j *jittered) After(_, finished time.Time) time.Time {
	next := j.Course.After(j.next.from, finished)
	if next.Equal(j.next.from) {
		return j.next.to
	}
	return j.move(next, j.draw())
}

// Missed draws first, because the delay says after which time the inner course has to plan.
func (j *jittered) Missed(missed, now time.Time) time.Time {
	by := j.draw()
	from, after := j.next.origin(missed), now.Add(-by)
	if after.Before(from) {
		after = from
	}
	return j.move(j.Course.Missed(from, after), by)
}
