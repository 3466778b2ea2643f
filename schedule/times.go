package schedule

import (
	"fmt"
	"math"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/planner"
	"github.com/timingwheel-go/timingwheel/internal/wallclock"
)

// Aligned returns a Scheduler that plans a run whenever the wall clock in loc shows a multiple of
// d: at :00, :15, :30 and :45 if d is 15 minutes, at midnight if d is 24 hours, and at midnight on
// Mondays if d is 7 days. Multiples are defined as in [time.Time.Truncate], but in local time: they
// count from Monday, January 1 of year 1. If d neither divides a day nor is a multiple of a day, as
// with 7 hours, the times differ from day to day.
//
// If the clocks are set forward and multiples fall into the gap, one run at the time of the change
// replaces them. If the clocks are set back, multiples occur twice. If the change is at least d, a
// run takes place both times, so that no pause is longer than d. Otherwise a run takes place only
// the first time, so that a daily run takes place once a day.
//
// Runs follow wall-clock steps as [timingwheel.Scheduler] describes. Aligned panics if d is not
// positive or loc is nil.
func Aligned(d time.Duration, loc *time.Location) timingwheel.Scheduler { return AlignedAt(d, 0, loc) }

// AlignedAt is [Aligned] with all times shifted by offset: with a d of 24 hours and an offset of 2½
// hours, a run takes place every day at 02:30. AlignedAt also panics if offset is negative or not
// less than d.
func AlignedAt(d, offset time.Duration, loc *time.Location) timingwheel.Scheduler {
	mustBePositive("Aligned: d", d)
	if offset < 0 || offset >= d {
		panic(fmt.Sprintf(
			"schedule: AlignedAt: offset is %v; it must be at least 0 and less than d, which is %v", offset, d))
	}
	if loc == nil {
		panic("schedule: Aligned: loc is nil; it must be time.Local, time.UTC or a result of time.LoadLocation")
	}
	return aligned{d, offset, loc}
}

// aligned is the Scheduler of [AlignedAt].
type aligned struct {
	d, offset time.Duration
	loc       *time.Location
}

func (a aligned) Next(t time.Time) time.Time { return wallclock.Next(t, a.loc, a) }

// After returns the first boundary after a reading of the wall clock.
func (a aligned) After(reading time.Time) time.Time {
	return reading.Add(-a.offset).Truncate(a.d).Add(a.d).Add(a.offset)
}

// Pause returns d.
func (a aligned) Pause(time.Time, time.Time) time.Duration { return a.d }

// FixedDelay returns a Scheduler that plans the first run d after the start of the plan, and every
// later run d after the end of the previous one. The pause between two runs is d, or up to a tick
// longer, however long runs take. Runs never overlap, so a long run causes no missed runs.
// FixedDelay panics if d is not positive.
func FixedDelay(d time.Duration) timingwheel.Scheduler {
	mustBePositive("FixedDelay: d", d)
	return delaySchedule(func(int) time.Duration { return d })
}

// Backoff returns a Scheduler for retries with exponential backoff. The pause before the first run
// is first, the pause between the end of that run and the start of the second is 2×first, and so
// on, up to max. A function that has succeeded ends the plan with [timingwheel.Run.Stop]. Add
// [Jitter] to spread retries and [Limit] to end them. Backoff panics if first is not positive or
// max is less than first.
func Backoff(first, max time.Duration) timingwheel.Scheduler { return BackoffBy(2, first, max) }

// BackoffBy is [Backoff] with the given factor instead of 2. With a factor of 1, all pauses equal
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
