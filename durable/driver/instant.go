package driver

import "time"

// Instant is a time on a store's clock in milliseconds since 1970. Only this clock determines
// whether a message is due. It is the server's clock for Redis and PostgreSQL, and the wall clock
// of the process for other stores.
type Instant int64

// Never is later than every other instant. Sums of an instant and a delay saturate at Never.
const Never Instant = 1 << 52 // Redis sorts by doubles, which are exact up to 2^53

// Time returns the instant as a time.Time.
func (i Instant) Time() time.Time { return time.UnixMilli(int64(i)) }

// Add returns the instant plus d, rounded up to whole milliseconds and at most [Never]. A negative
// d counts as 0.
func (i Instant) Add(d time.Duration) Instant {
	if d <= 0 {
		return i
	}
	ms := Instant((d-1)/time.Millisecond) + 1
	return min(i+ms, Never) // the sum cannot overflow
}

// InstantOf returns the first instant not before t, clamped to the range from 0 to [Never].
func InstantOf(t time.Time) Instant {
	switch { // UnixMilli could overflow outside this range
	case t.After(Never.Time()):
		return Never
	case t.Before(Instant(0).Time()):
		return 0
	}
	ms := Instant(t.UnixMilli())
	if ms.Time().Before(t) {
		ms++
	}
	return ms
}
