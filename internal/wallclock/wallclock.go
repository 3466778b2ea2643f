// Package wallclock finds the times of plans that follow a wall clock, whose zone may have changes.
package wallclock

import "time"

// Plan has readings of a wall clock. A reading is represented as a time in UTC.
type Plan interface {
	// After returns the first time after a reading, or the zero time if there is none.
	After(reading time.Time) time.Time

	// Pause returns the pause from the last time in [start, end) to the next one.
	Pause(start, end time.Time) time.Duration
}

// Next returns the time of the first run of p after t, or the zero time, for clocks in loc:
//
//   - If the clocks are set forward and times fall into the gap, one run replaces them, at the time
//     of the change.
//   - If the clocks are set back, times come twice. If the plan's pause after the last of them is
//     at most the time by which the clocks are set back, runs take place both times, so that no
//     pause is longer than the plan's pauses. Otherwise they take place only the first time.
//
// Next searches one offset period of the zone after the other. A period is rarely shorter than a
// pause, so few iterations are needed.
func Next(t time.Time, loc *time.Location, p Plan) time.Time {
	t = t.Round(0).In(loc)
	for {
		w := offsetPeriodAt(t)
		b := p.After(w.reading(t))
		back, last := w.before-w.offset, w.lastReadingBefore()
		if back > 0 && b.Before(last) && p.Pause(last.Add(-back), last) > back {
			b = p.After(last.Add(-1)) // the clocks were set back, and have shown all readings up to last
		}
		if b.IsZero() {
			return b
		}
		if at := w.instant(b); w.end.IsZero() || at.Before(w.end) {
			return at.In(loc)
		}
		back = w.offset - offsetAt(w.end)
		shown := w.reading(w.end).Add(-back)
		switch {
		case back <= 0: // the clocks were not changed, or set forward; did they reach b?
			if !b.After(shown) {
				return w.end
			}
		case p.Pause(shown, shown.Add(back)) <= back && p.After(shown.Add(-1)).Equal(shown):
			return w.end
		}
		t = w.end
	}
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

// lastReadingBefore returns the reading at which the period before w ended.
func (w offsetPeriod) lastReadingBefore() time.Time { return w.start.UTC().Add(w.before) }
