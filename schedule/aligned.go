package schedule

import (
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// Aligned returns a Scheduler that plans a run whenever the wall clock in loc shows a multiple of
// d: with 15 minutes at :00, :15, :30 and :45, with 24 hours at midnight, and with 7 days at
// midnight of each Monday. Multiples are those of [time.Time.Truncate] in local time: they count
// from Monday, January 1 of year 1. If d neither divides a day nor is a multiple of one, such as 7
// hours, the times differ from day to day.
//
// If the clocks are set forward and boundaries fall into the gap, one run replaces them, at the
// time of the change. If the clocks are set back, boundaries come twice. If d is at most the time
// by which the clocks are set back, a run takes place both times, so that no pause is longer than
// d. Otherwise a run takes place only the first time, so that a daily run takes place once a day.
//
// Runs follow steps of the wall clock as [timingwheel.Scheduler] describes. Aligned panics if d is
// not positive or loc is nil.
func Aligned(d time.Duration, loc *time.Location) timingwheel.Scheduler { return AlignedAt(d, 0, loc) }

// AlignedAt is [Aligned] with all boundaries shifted by offset: with a d of 24 hours and an offset
// of 2½ hours, a run takes place every day at 02:30. AlignedAt also panics if offset is negative or
// not less than d.
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

// Next searches one offset period of the zone after the other. A period is rarely shorter than d,
// so few iterations are needed.
func (a aligned) Next(t time.Time) time.Time {
	t = t.Round(0).In(a.loc)
	for {
		w := offsetPeriodAt(t)
		b := a.boundaryAfter(w.reading(t))
		if w.repeated() > 0 && a.d > w.repeated() && b.Before(w.lastReadingBefore()) {
			b = a.boundaryAfter(w.lastReadingBefore().Add(-1))
		}
		if at := w.instant(b); w.end.IsZero() || at.Before(w.end) {
			return at.In(a.loc)
		}
		back := w.offset - offsetAt(w.end)
		shown := w.reading(w.end).Add(-back)
		switch {
		case back <= 0: // the clocks were not changed, or set forward; did they reach b?
			if !b.After(shown) {
				return w.end
			}
		case a.d <= back && a.boundaryAfter(shown.Add(-1)).Equal(shown):
			return w.end
		}
		t = w.end
	}
}

// boundaryAfter returns the first boundary after a reading of the wall clock.
func (a aligned) boundaryAfter(reading time.Time) time.Time {
	return reading.Add(-a.offset).Truncate(a.d).Add(a.d).Add(a.offset)
}

// offsetPeriod is a period in which the clocks of a zone have a fixed offset from UTC. A reading of
// these clocks is represented as a time in UTC. The clocks need not change at the end of a period:
// if a zone repeats its rules each year, a period ends with the year.
type offsetPeriod struct {
	start, end     time.Time     // the zero time if the period has no start or no end
	before, offset time.Duration // the offsets before and in the period
}

func offsetPeriodAt(t time.Time) offsetPeriod {
	var w offsetPeriod
	w.start, w.end = t.ZoneBounds()
	for !w.end.IsZero() && !w.end.After(t) {
		// ZoneBounds assumes years of 365 days, so the end may be before a December 31.
		w.end = w.end.Add(24 * time.Hour)
	}
	w.offset = offsetAt(t)
	w.before = w.offset
	if !w.start.IsZero() {
		w.before = offsetAt(w.start.Add(-1))
	}
	return w
}

func offsetAt(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

func (w offsetPeriod) reading(t time.Time) time.Time { return t.UTC().Add(w.offset) }

func (w offsetPeriod) instant(reading time.Time) time.Time { return reading.Add(-w.offset) }

// repeated returns by how much the clocks were set back when the period began. The result is
// negative if they were set forward.
func (w offsetPeriod) repeated() time.Duration { return w.before - w.offset }

// lastReadingBefore returns the reading at which the period before w ended. If the clocks were set
// back, they have shown all readings up to this one.
func (w offsetPeriod) lastReadingBefore() time.Time { return w.start.UTC().Add(w.before) }
