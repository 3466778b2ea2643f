package schedule

import (
	"fmt"
	"math"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/planner"
)

// FixedDelay returns a Scheduler that plans the first run d after the start of the plan, and every
// further run d after the end of the previous one. The pause between two runs is d, or up to a tick
// longer, however long runs take. Runs never overlap, so a long run causes no missed runs.
// FixedDelay panics if d is not positive.
func FixedDelay(d time.Duration) timingwheel.Scheduler {
	mustBePositive("FixedDelay: d", d)
	return delaySchedule(func(int) time.Duration { return d })
}

// Backoff returns a Scheduler for retries with exponential backoff. The pause before the first run
// is first, the pause between the end of that run and the start of the second is 2×first, and so
// on, up to max. The function calls [timingwheel.Run.Stop] when it has succeeded. Add [Jitter] to
// spread retries and [Limit] to end them. Backoff panics if first is not positive or max is less
// than first.
func Backoff(first, max time.Duration) timingwheel.Scheduler { return BackoffBy(2, first, max) }

// BackoffBy is [Backoff] with the given factor instead of 2. With a factor of 1 all pauses are
// first. BackoffBy also panics if factor is less than 1, infinite or not a number.
func BackoffBy(factor float64, first, max time.Duration) timingwheel.Scheduler {
	mustBePositive("Backoff: first", first)
	if max < first {
		panic(fmt.Sprintf("schedule: Backoff: max is %v; it must not be less than first, which is %v", max, first))
	}
	if !(factor >= 1) || math.IsInf(factor, 1) {
		panic(fmt.Sprintf("schedule: BackoffBy: factor is %v; it must be finite and at least 1", factor))
	}
	return delaySchedule(func(n int) time.Duration {
		pause := float64(first) * math.Pow(factor, float64(n))
		if pause >= float64(max) {
			return max
		}
		return time.Duration(pause)
	})
}

// delaySchedule returns a schedule of pauses: pause(0) follows the start of the plan, and pause(n)
// the end of run n.
func delaySchedule(pause func(n int) time.Duration) *schedule {
	s := newSchedule(func() planner.Planner { return &delayPlanner{pause: pause} })
	s.sequential = true
	return s
}

// delayPlanner is the planner of [FixedDelay] and [Backoff].
type delayPlanner struct {
	pause func(n int) time.Duration
	n     int // the number of the last run that began
}

func (p *delayPlanner) First(now time.Time) time.Time { return now.Add(p.pause(0)) }

// Before returns a provisional time: the final one depends on the end of the run, see After.
func (p *delayPlanner) Before(r planner.Run) planner.Step {
	p.n = r.N
	return planner.Step{Next: r.Started.Add(p.pause(r.N))}
}

func (p *delayPlanner) After(_, finished time.Time) time.Time { return finished.Add(p.pause(p.n)) }

// Missed continues in steps of the current pause.
func (p *delayPlanner) Missed(missed, now time.Time) time.Time {
	return planner.Every(p.pause(p.n)).Missed(missed, now)
}
