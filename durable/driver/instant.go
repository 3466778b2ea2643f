package driver

import "time"

// Instant is a moment of a store's clock in milliseconds since 1970. The clock of a store is the only one
// that decides whether a message is due: that of the server for Redis, the wall clock of the process for a file and for memory.
type Instant int64

// Never is later than every instant: the saturated sum of an instant and a delay.
const Never Instant = 1 << 52 // a double, which is what Redis sorts by, is exact up to 2^53

// Time is the instant as a time.
func (i Instant) Time() time.Time { return time.UnixMilli(int64(i)) }

// Add is the instant d later, rounded up to the next millisecond; at most [Never]. A negative d counts as 0.
func (i Instant) Add(d time.Duration) Instant {
	if d <= 0 {
		return i
	}
	ms := Instant((d-1)/time.Millisecond) + 1
	return min(i+ms, Never) // both are far below the end of 64 bits
}

// InstantOf is the first instant that is not before t.
func InstantOf(t time.Time) Instant {
	switch { // milliseconds of times that are farther away could overflow
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
