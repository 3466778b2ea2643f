package timingwheel

import (
	"math"
	"time"
)

// timeline is the clock of a wheel or of a DelayQueue: nanoseconds since a base, by the monotonic clock.
// Steps of the wall clock do not show in it. All that is inside the package takes such readings as int64,
// a wheel from 0 to math.MaxInt64; this file is where they are made, and the only one that reads a clock.
type timeline struct {
	base   time.Time
	origin int64 // the reading at base; other than 0 in tests only
	manual bool  // the clock does not run by itself
}

// start sets the base where there is none yet.
func (c *timeline) start() {
	if c.base.IsZero() {
		c.base = time.Now()
	}
}

// clock reads the clock. Not for Manual mode.
func (c *timeline) clock() int64 { return int64(time.Since(c.base)) + c.origin }

// timeAt converts a reading to a time.
func (c *timeline) timeAt(ns int64) time.Time { return c.base.Add(time.Duration(ns - c.origin)) }

// date is the present by both clocks, the wall clock as it stands now.
func (c *timeline) date() time.Time { return time.Now() }

// dateOf converts a reading to a time like that of time.Now, wall clock included. It reads the clock
// once: between two readings anything may happen.
func (c *timeline) dateOf(ns int64) time.Time {
	if c.manual {
		return c.timeAt(ns)
	}
	now := c.date()
	return now.Add(time.Duration(ns - int64(now.Sub(c.base)) - c.origin))
}

// instant converts t to a reading. now is a reading of the clock, or 0 where none was needed: a time
// that carries a monotonic reading needs none. One without is a date on the wall. It is converted
// once, here, and later steps of the wall clock do not move it.
func (c *timeline) instant(t time.Time) (deadline, now int64) {
	at, now := c.signed(t)
	return max(at, 0), now
}

// signed is instant for times before the first reading as well: those come out negative.
func (c *timeline) signed(t time.Time) (at, now int64) {
	if c.manual || t != t.Round(0) { // Round strips a monotonic reading, so t has one
		return saturated(c.origin, int64(t.Sub(c.base))), 0
	}
	date := c.date()
	now = int64(date.Sub(c.base)) + c.origin
	return saturated(now, int64(t.Sub(date))), now
}

// meter measures by the machine's clock, also where that of the wheel is driven by hand.
type meter struct{ base time.Time }

func newMeter() meter { return meter{time.Now()} }

func (m meter) read() time.Duration { return time.Since(m.base) }

// later adds a delay to a reading. Delays below 0 count as 0; the sum saturates.
func later(now, d int64) int64 {
	if d <= 0 {
		return now
	}
	return saturated(now, d)
}

// saturated is now+d, or the bound that it passes.
func saturated(now, d int64) int64 {
	sum := now + d
	switch {
	case d > 0 && sum < now:
		return math.MaxInt64
	case d < 0 && sum > now:
		return math.MinInt64
	}
	return sum
}
