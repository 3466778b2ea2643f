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
	return asSchedule("Limit", s).wrap(func(c course.Course) course.Course { return &limitCourse{c, n} })
}

type limitCourse struct {
	course.Course
	n int
}

func (l *limitCourse) First(now time.Time) time.Time {
	if l.n == 0 {
		return time.Time{}
	}
	return l.Course.First(now)
}

func (l *limitCourse) Before(r course.Run) course.Step {
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
	return asSchedule("Until", s).wrap(func(c course.Course) course.Course { return &untilCourse{c, t} })
}

type untilCourse struct {
	course.Course
	last time.Time
}

// cut returns t, or no run if that is too late.
func (b *untilCourse) cut(t time.Time) time.Time {
	if t.After(b.last) {
		return time.Time{}
	}
	return t
}

func (b *untilCourse) First(now time.Time) time.Time { return b.cut(b.Course.First(now)) }

func (b *untilCourse) Before(r course.Run) course.Step {
	step := b.Course.Before(r)
	step.Next = b.cut(step.Next)
	return step
}

func (b *untilCourse) After(next, finished time.Time) time.Time {
	return b.cut(b.Course.After(next, finished))
}

func (b *untilCourse) Missed(missed, now time.Time) time.Time {
	return b.cut(b.Course.Missed(missed, now))
}

// Jitter delays each run of s by a random time from 0 to max, both included. A run never comes
// before its time. Delays do not add up, because the next run is planned from the time that s has
// given. max should be less than the interval of s. Otherwise a run may be planned before the run
// that it follows, and then counts as missed. Jitter panics if s is nil or max is negative. A max
// of zero changes nothing.
func Jitter(s timingwheel.Scheduler, max time.Duration) timingwheel.Scheduler {
	mustNotBeNegative("Jitter: max", max)
	randomDelay := func() time.Duration { return time.Duration(rand.Uint64N(uint64(max) + 1)) }
	return jitter(s, randomDelay)
}

func jitter(s timingwheel.Scheduler, randomDelay func() time.Duration) *schedule {
	return asSchedule("Jitter", s).wrap(func(c course.Course) course.Course { return &jitterCourse{Course: c, randomDelay: randomDelay} })
}

type jitterCourse struct {
	course.Course
	randomDelay func() time.Duration
	next        delayedTime // the run to come
}

// moved is a run: the time of the inner course, and the time after its delay.
type delayedTime struct{ nominal, delayed time.Time }

// origin returns the time of the inner course for the run that is planned for t. For a run that
// Reschedule has moved, that is t itself.
func (d delayedTime) nominalOf(t time.Time) time.Time {
	if t.Equal(d.delayed) {
		return d.nominal
	}
	return t
}

func (j *jitterCourse) delay(nominal time.Time, by time.Duration) time.Time {
	j.next = delayedTime{nominal, nominal}
	if !nominal.IsZero() {
		j.next.delayed = nominal.Add(by)
	}
	return j.next.delayed
}

func (j *jitterCourse) First(now time.Time) time.Time {
	return j.delay(j.Course.First(now), j.randomDelay())
}

func (j *jitterCourse) Before(r course.Run) course.Step {
	r.Planned = j.next.nominalOf(r.Planned)
	step := j.Course.Before(r)
	step.Next = j.delay(step.Next, j.randomDelay())
	return step
}

func (j *jitterCourse) After(_, finished time.Time) time.Time {
	next := j.Course.After(j.next.nominal, finished)
	if next.Equal(j.next.nominal) {
		return j.next.delayed
	}
	return j.delay(next, j.randomDelay())
}

// Missed draws first, because the delay says after which time the inner course has to plan.
func (j *jitterCourse) Missed(missed, now time.Time) time.Time {
	by := j.randomDelay()
	nominal, after := j.next.nominalOf(missed), now.Add(-by)
	if after.Before(nominal) {
		after = nominal
	}
	return j.delay(j.Course.Missed(nominal, after), by)
}
