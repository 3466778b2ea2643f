package local

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
)

// Floor is the instant that the clock shows: the last one that is not after t. It is at least 1, as 0 stands for none.
func Floor(t time.Time) durable.Instant {
	return max(1, min(durable.Instant(t.UnixMilli()), durable.Never))
}

// After is the first instant that is not before now plus d; what the clock shows where d is 0 or less. The sum is rounded and not
// its parts, as the clock has passed a part of its millisecond.
func After(now time.Time, d time.Duration) durable.Instant {
	if d <= 0 {
		return Floor(now)
	}
	return durable.InstantOf(now.Add(d))
}

// DueAt is when something is due that shall be at an instant or, where that is 0, after a delay.
func DueAt(now time.Time, at durable.Instant, delay time.Duration) durable.Instant {
	if at != 0 {
		return max(Floor(now), min(at, durable.Never))
	}
	return After(now, delay)
}

// LeaseEnd is d after now, or after the due time if that is later.
func LeaseEnd(now time.Time, due durable.Instant, d time.Duration) durable.Instant {
	return max(After(now, d), due.Add(d))
}
