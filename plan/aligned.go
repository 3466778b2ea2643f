package plan

import (
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// Aligned plans a run whenever the wall clock in loc shows a multiple of d: with 15 minutes at :00,
// :15, :30 and :45, with 24 hours at midnight, with 7 days on Monday at midnight. Multiples are
// those of [time.Time.Truncate], which count from Monday, January 1 of year 1, in local time. If d
// neither divides a day nor is made of whole days, such as 7 hours, runs come at other times each
// day.
//
// If the clock is put forward and boundaries fall into the gap, there is one run for them, at the
// moment of the change. If the clock is put back, boundaries come twice. A run takes place each
// time if d is at most the time by which the clock is put back, so that no pause is longer than d.
// Otherwise it takes place the first time only, so that a daily run stays one run a day.
//
// A run is planned by the wall clock of that moment. If the wall clock is stepped later, the run
// keeps its distance, and the next run is planned by the new wall clock. Aligned panics if d is not
// positive or loc is nil.
func Aligned(d time.Duration, loc *time.Location) timingwheel.Scheduler { return AlignedAt(d, 0, loc) }

// AlignedAt is Aligned with boundaries that come offset later. A d of 24 hours and an offset of 2½
// hours mean every day at 02:30. AlignedAt also panics if offset is negative or not less than d.
func AlignedAt(d, offset time.Duration, loc *time.Location) timingwheel.Scheduler {
	mustBePositive("Aligned: d", d)
	if offset < 0 || offset >= d {
		panic(fmt.Sprintf(
			"plan: AlignedAt: offset is %v; accepted is from 0 to less than d, which is %v", offset, d))
	}
	if loc == nil {
		panic("plan: Aligned: loc is nil; accepted are time.Local, time.UTC and results of time.LoadLocation")
	}
	return aligned{d, offset, loc}
}

type aligned struct {
	d, offset time.Duration
	loc       *time.Location
}

// Next looks at one stretch of time after the other in which the clocks of the zone are not
// changed. A stretch rarely lasts less than d, so these are few.
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
		case back <= 0: // not changed, or put forward: past b or to b or not as far
			if !b.After(shown) {
				return w.end
			}
		case a.d <= back && a.boundaryAfter(shown.Add(-1)).Equal(shown):
			return w.end
		}
		t = w.end
	}
}

// boundaryAfter returns the first boundary after the reading.
func (a aligned) boundaryAfter(reading time.Time) time.Time {
	return reading.Add(-a.offset).Truncate(a.d).Add(a.d).Add(a.offset)
}

// stretch is a time in which clocks are a fixed offset ahead of UTC. A reading of these clocks is
// written as if it were UTC. The clocks need not be changed at the ends of a stretch: if a zone
// repeats its rules each year, a stretch ends with the year.
type offsetPeriod struct {
	start, end     time.Time // the zero time: it has no start, no end
	before, offset time.Duration
}

func offsetPeriodAt(t time.Time) offsetPeriod {
	var w offsetPeriod
	w.start, w.end = t.ZoneBounds()
	for !w.end.IsZero() && !w.end.After(t) {
		// ZoneBounds takes every year to have 365 days, so a December 31 may lie beyond its end.
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

// repeated returns by how much the clocks were put back when the stretch began. It is negative if
// they were put forward.
func (w offsetPeriod) repeated() time.Duration { return w.before - w.offset }

// seen returns the reading at which the stretch before w ended. Clocks that were put back have
// shown all readings until then.
func (w offsetPeriod) lastReadingBefore() time.Time { return w.start.UTC().Add(w.before) }
