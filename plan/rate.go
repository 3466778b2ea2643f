package plan

import (
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// FixedRate plans a run for each d: the first one d from now, all others at multiples of d after it. It is
// [timingwheel.Every], under the name that it has elsewhere. It panics where d is not positive.
func FixedRate(d time.Duration) timingwheel.Scheduler {
	mustBePositive("FixedRate: d", d)
	return timingwheel.Every(d)
}

// FixedDelay plans each run d after the end of the one before, the first one d from now. So there is a pause of d, or
// up to a tick longer, however long runs take, and no run is missed because of another. It panics where d is not positive.
func FixedDelay(d time.Duration) timingwheel.Scheduler {
	mustBePositive("FixedDelay: d", d)
	return pausing(func(int) time.Duration { return d })
}

// pausing is a schedule of pauses: pause(n) follows the end of run n, pause(0) the beginning of the plan.
func pausing(pause func(n int) time.Duration) *schedule {
	s := made(func() course { return &pauses{pause: pause} })
	s.delays = true
	return s
}

type pauses struct {
	pause func(n int) time.Duration
	n     int // the run that began last
}

func (p *pauses) first(now time.Time) time.Time { return now.Add(p.pause(0)) }

// before knows that there is a further run, but not yet when.
func (p *pauses) before(r timingwheel.Run) timingwheel.Step {
	p.n = r.N
	return timingwheel.Step{Next: r.Started.Add(p.pause(r.N))}
}

func (p *pauses) after(r timingwheel.Run, _ time.Time) time.Time { return r.Finished.Add(p.pause(r.N)) }

// skip goes on in steps of the present pause.
func (p *pauses) skip(missed, now time.Time) time.Time {
	return timingwheel.Every(p.pause(p.n)).(timingwheel.Skipper).Skip(missed, now)
}
