package plan

import (
	"fmt"
	"math"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/course"
)

// FixedDelay plans each run d after the end of the run before, and the first one d from now. There
// is a pause of d, or up to a tick longer, however long runs take. No run is missed because of
// another one. FixedDelay panics if d is not positive.
func FixedDelay(d time.Duration) timingwheel.Scheduler {
	mustBePositive("FixedDelay: d", d)
	return delaySchedule(func(int) time.Duration { return d })
}

// Backoff plans runs with pauses that double: first before the first run, 2×first between the end
// of that run and the start of the second, and so on, never more than max. It is for retries: the
// function calls [timingwheel.Run.Stop] when it has succeeded. Add a random part with [Jitter] and
// an end with [Limit]. Backoff panics if first is not positive or max is less than first.
func Backoff(first, max time.Duration) timingwheel.Scheduler { return BackoffBy(2, first, max) }

// BackoffBy is Backoff with another factor than 2. It panics if the factor is less than 1, infinite
// or not a number.
func BackoffBy(factor float64, first, max time.Duration) timingwheel.Scheduler {
	mustBePositive("Backoff: first", first)
	if max < first {
		panic(fmt.Sprintf("plan: Backoff: max is %v; accepted is first, which is %v, or more", max, first))
	}
	if !(factor >= 1) || math.IsInf(factor, 1) {
		panic(fmt.Sprintf("plan: BackoffBy: factor is %v; accepted is a finite number from 1", factor))
	}
	return delaySchedule(func(n int) time.Duration {
		pause := float64(first) * math.Pow(factor, float64(n))
		if pause >= float64(max) {
			return max
		}
		return time.Duration(pause)
	})
}

// pausing returns a schedule of pauses: pause(n) follows the end of run n, and pause(0) the
// beginning of the plan.
func delaySchedule(pause func(n int) time.Duration) *schedule {
	s := newSchedule(func() course.Course { return &delayCourse{pause: pause} })
	s.sequential = true
	return s
}

type delayCourse struct {
	pause func(n int) time.Duration
	n     int // the run that began last
}

func (p *delayCourse) First(now time.Time) time.Time { return now.Add(p.pause(0)) }

// Before knows that there is a further run, but not yet when.
func (p *delayCourse) Before(r course.Run) course.Step {
	p.n = r.N
	return course.Step{Next: r.Started.Add(p.pause(r.N))}
}

func (p *delayCourse) After(_, finished time.Time) time.Time { return finished.Add(p.pause(p.n)) }

// Missed goes on in steps of the present pause.
func (p *delayCourse) Missed(missed, now time.Time) time.Time {
	return course.Every(p.pause(p.n)).Missed(missed, now)
}
