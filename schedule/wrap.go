package schedule

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/planner"
)

// Limit returns a Scheduler that plans the first n runs of s. Runs that were missed and did not
// take place do not count. A run that [timingwheel.Timer.Reschedule] has moved counts once. If n is
// zero, there is no run, and ScheduleFunc returns the zero Timer. Limit panics if s is nil or n is
// negative.
func Limit(s timingwheel.Scheduler, n int) timingwheel.Scheduler {
	if n < 0 {
		panic(fmt.Sprintf("schedule: Limit: n is %d; it must be zero or positive", n))
	}
	return asSchedule("Limit", s).wrap(func(c planner.Planner) planner.Planner { return &limitPlanner{c, n} })
}

// limitPlanner is the planner of [Limit].
type limitPlanner struct {
	planner.Planner
	n int
}

func (l *limitPlanner) First(now time.Time) time.Time {
	if l.n == 0 {
		return time.Time{}
	}
	return l.Planner.First(now)
}

func (l *limitPlanner) Before(r planner.Run) planner.Step {
	step := l.Planner.Before(r)
	if r.N >= l.n {
		step.Next = time.Time{}
	}
	return step
}

// Until returns a Scheduler that plans the runs of s up to t, inclusive. A run that is planned for
// t or earlier may start after t if it is late. If s plans no run up to t, there is no run. Until
// panics if s is nil or t is the zero time.
func Until(s timingwheel.Scheduler, t time.Time) timingwheel.Scheduler {
	if t.IsZero() {
		panic("schedule: Until: t is the zero time")
	}
	return asSchedule("Until", s).wrap(func(c planner.Planner) planner.Planner { return &untilPlanner{c, t} })
}

// untilPlanner is the planner of [Until].
type untilPlanner struct {
	planner.Planner
	last time.Time
}

// cut returns t, or the zero time if t is after the last time.
func (b *untilPlanner) cut(t time.Time) time.Time {
	if t.After(b.last) {
		return time.Time{}
	}
	return t
}

func (b *untilPlanner) First(now time.Time) time.Time { return b.cut(b.Planner.First(now)) }

func (b *untilPlanner) Before(r planner.Run) planner.Step {
	step := b.Planner.Before(r)
	step.Next = b.cut(step.Next)
	return step
}

func (b *untilPlanner) After(next, finished time.Time) time.Time {
	return b.cut(b.Planner.After(next, finished))
}

func (b *untilPlanner) Missed(missed, now time.Time) time.Time {
	return b.cut(b.Planner.Missed(missed, now))
}

// Jitter returns a Scheduler that delays each run of s by a random time from 0 to max, inclusive.
// No run is early. Delays do not accumulate, because the next run is planned from the undelayed
// time. max should be less than the interval between runs of s. Otherwise a run may be due before
// the previous one, and it then counts as missed. If max is zero, no run is delayed. Jitter panics
// if s is nil or max is negative.
func Jitter(s timingwheel.Scheduler, max time.Duration) timingwheel.Scheduler {
	mustNotBeNegative("Jitter: max", max)
	randomDelay := func() time.Duration { return time.Duration(rand.Uint64N(uint64(max) + 1)) }
	return jitter(s, randomDelay)
}

func jitter(s timingwheel.Scheduler, randomDelay func() time.Duration) *schedule {
	return asSchedule("Jitter", s).wrap(func(c planner.Planner) planner.Planner { return &jitterPlanner{Planner: c, randomDelay: randomDelay} })
}

// jitterPlanner is the planner of [Jitter].
type jitterPlanner struct {
	planner.Planner
	randomDelay func() time.Duration
	next        delayedTime // of the next run
}

// delayedTime is the time of a run: nominal by the wrapped planner, and with its delay.
type delayedTime struct{ nominal, delayed time.Time }

// nominalOf returns the nominal time of the run that is planned for t. If Reschedule has moved the
// run, the nominal time is t.
func (d delayedTime) nominalOf(t time.Time) time.Time {
	if t.Equal(d.delayed) {
		return d.nominal
	}
	return t
}

// delay sets and returns the time of the next run. The zero time stays zero.
func (j *jitterPlanner) delay(nominal time.Time, by time.Duration) time.Time {
	j.next = delayedTime{nominal, nominal}
	if !nominal.IsZero() {
		j.next.delayed = nominal.Add(by)
	}
	return j.next.delayed
}

func (j *jitterPlanner) First(now time.Time) time.Time {
	return j.delay(j.Planner.First(now), j.randomDelay())
}

func (j *jitterPlanner) Before(r planner.Run) planner.Step {
	r.Planned = j.next.nominalOf(r.Planned)
	step := j.Planner.Before(r)
	step.Next = j.delay(step.Next, j.randomDelay())
	return step
}

func (j *jitterPlanner) After(_, finished time.Time) time.Time {
	next := j.Planner.After(j.next.nominal, finished)
	if next.Equal(j.next.nominal) {
		return j.next.delayed
	}
	return j.delay(next, j.randomDelay())
}

// Missed draws the delay first, because the delay determines after which time the wrapped planner
// must plan.
func (j *jitterPlanner) Missed(missed, now time.Time) time.Time {
	by := j.randomDelay()
	nominal, after := j.next.nominalOf(missed), now.Add(-by)
	if after.Before(nominal) {
		after = nominal
	}
	return j.delay(j.Planner.Missed(nominal, after), by)
}
