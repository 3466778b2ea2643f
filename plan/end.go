package plan

import (
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// Limit ends s after n runs. Runs that were left out, because they were missed, do not count. Zero makes a plan
// without runs. It panics where s is nil or n negative.
func Limit(s timingwheel.Scheduler, n int) timingwheel.Scheduler {
	if n < 0 {
		panic(fmt.Sprintf("plan: Limit: n is %d; accepted is zero or a positive number", n))
	}
	return of("Limit", s).around(func(c course) course { return &limited{c, n} })
}

type limited struct {
	course
	n int
}

func (l *limited) first(now time.Time) time.Time {
	if l.n == 0 {
		return time.Time{}
	}
	return l.course.first(now)
}

func (l *limited) before(r timingwheel.Run) timingwheel.Step {
	step := l.course.before(r)
	if r.N >= l.n && !step.Skip {
		step.Next = time.Time{}
	}
	return step
}

// Until ends s after t: the last run is the last one that s plans for t or earlier. It may start later than t, if it is
// late. It panics where s is nil or t the zero time.
func Until(s timingwheel.Scheduler, t time.Time) timingwheel.Scheduler {
	if t.IsZero() {
		panic("plan: Until: t is the zero time; accepted is any other")
	}
	return of("Until", s).around(func(c course) course { return &bounded{c, t} })
}

type bounded struct {
	course
	last time.Time
}

// cut is t, or no run where that is too late.
func (b *bounded) cut(t time.Time) time.Time {
	if t.After(b.last) {
		return time.Time{}
	}
	return t
}

func (b *bounded) first(now time.Time) time.Time { return b.cut(b.course.first(now)) }

func (b *bounded) before(r timingwheel.Run) timingwheel.Step {
	step := b.course.before(r)
	step.Next = b.cut(step.Next)
	return step
}

func (b *bounded) after(r timingwheel.Run, next time.Time) time.Time {
	return b.cut(b.course.after(r, next))
}

func (b *bounded) skip(missed, now time.Time) time.Time { return b.cut(b.course.skip(missed, now)) }
