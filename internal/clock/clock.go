// Package clock converts times to readings of the monotonic clock, and divides readings into ticks.
// A reading is a number of nanoseconds since a base.
package clock

import (
	"math"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"time"
)

// Unread is the value of a reading that was not taken. It is less than every reading.
const Unread = -1

// Timeline is the clock of a wheel or of a delay queue. The wheel uses readings from 0 on.
type Timeline struct {
	Base   time.Time
	Origin int64 // the reading at Base; 0 except in tests

	// Manual is the reading of a clock that does not run by itself, or nil if the clock runs.
	Manual *atomic.Int64
}

// Tests change these variables.
var (
	Now     = time.Now    // tests step the wall clock
	Compare = time.Minute // the time between two comparisons of the wall clock with the monotonic clock
)

// Start sets Base to the current time unless it is set already.
func (c *Timeline) Start() {
	if c.Base.IsZero() {
		c.Base = Now()
	}
}

// Read reads the clock.
func (c *Timeline) Read() int64 {
	if c.Manual != nil {
		return c.Manual.Load()
	}
	return int64(time.Since(c.Base)) + c.Origin
}

// Now returns the current time. Unless the clock is Manual, Now reads the wall clock, which may
// have been set since Base.
func (c *Timeline) Now() time.Time {
	if c.Manual != nil {
		return c.TimeAt(c.Read())
	}
	return Now()
}

func (c *Timeline) TimeAt(ns int64) time.Time { return c.Base.Add(time.Duration(ns - c.Origin)) }

// Instant converts t to a reading. Times before the first reading become 0. A time without a
// monotonic reading is a time of the wall clock, and later steps of that clock do not move the
// result. now is a reading of the clock, or Unread if the conversion needed none.
func (c *Timeline) Instant(t time.Time) (deadline, now int64) {
	at, now := c.Signed(t)
	return max(at, 0), now
}

// Signed is Instant, but returns a negative result for a time before the first reading.
func (c *Timeline) Signed(t time.Time) (at, now int64) {
	if c.Manual != nil || IsMonotonic(t) {
		return Saturated(c.Origin, int64(t.Sub(c.Base))), Unread
	}
	date := Now()
	now = int64(date.Sub(c.Base)) + c.Origin
	return Saturated(now, int64(t.Sub(date))), now
}

// IsMonotonic reports whether t has a monotonic reading. In a bubble of testing/synctest no time
// has one.
func IsMonotonic(t time.Time) bool { return t != t.Round(0) }

// Later adds a delay to a reading. A negative delay counts as 0. The sum saturates.
func Later(now, d int64) int64 { return Saturated(now, max(d, 0)) }

// Saturated returns now+d, or the bound of int64 that the sum would exceed.
func Saturated(now, d int64) int64 {
	sum := now + d
	switch {
	case d > 0 && sum < now:
		return math.MaxInt64
	case d < 0 && sum > now:
		return math.MinInt64
	}
	return sum
}
