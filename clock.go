package timingwheel

import (
	"math"
	"time"
)

// timeline is a wheel's clock: nanoseconds since a base, by the monotonic clock. Steps of the wall
// clock do not show in it. All that is inside the package takes such readings as int64, from 0 to
// math.MaxInt64; this file is where they are made.
type timeline struct {
	base   time.Time
	origin int64 // the reading at base; other than 0 in tests only
	manual bool  // the clock does not run by itself
}

// clock reads the clock. Not for Manual mode.
func (c *timeline) clock() int64 { return int64(time.Since(c.base)) + c.origin }

// timeAt converts a reading to a time.
func (c *timeline) timeAt(ns int64) time.Time { return c.base.Add(time.Duration(ns - c.origin)) }

// dateOf converts a reading to a time like that of time.Now, wall clock included. It reads the clock
// once: between two readings anything may happen.
func (c *timeline) dateOf(ns int64) time.Time {
	if c.manual {
		return c.timeAt(ns)
	}
	now := time.Now()
	return now.Add(time.Duration(ns - int64(now.Sub(c.base)) - c.origin))
}

// instant converts t to a reading. now is a reading of the clock, or 0 where none was needed: a time
// that carries a monotonic reading needs none. One without is a date on the wall. It is converted
// once, here, and later steps of the wall clock do not move it.
func (c *timeline) instant(t time.Time) (deadline, now int64) {
	if c.manual || t != t.Round(0) {
		return shifted(c.origin, int64(t.Sub(c.base))), 0
	}
	wall := time.Now()
	now = int64(wall.Sub(c.base)) + c.origin
	return shifted(now, int64(t.Sub(wall))), now
}

// later adds a delay to a reading. Delays below 0 count as 0; the sum saturates.
func later(now, d int64) int64 {
	if d <= 0 {
		return now
	}
	return shifted(now, d)
}

// shifted is now+d within 0 and the largest reading.
func shifted(now, d int64) int64 {
	switch {
	case d > math.MaxInt64-now:
		return math.MaxInt64
	case d < -now:
		return 0
	}
	return now + d
}
