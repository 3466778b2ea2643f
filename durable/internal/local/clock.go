package local

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Floor is the instant that the clock shows: the last one that is not after t. It is at least 1, as
// 0 stands for none.
func Floor(t time.Time) driver.Instant {
	return max(1, min(driver.Instant(t.UnixMilli()), driver.Never))
}

// After is the first instant that is not before now plus d; what the clock shows where d is 0 or
// less. The sum is rounded and not its parts, as the clock has passed a part of its millisecond.
func After(now time.Time, d time.Duration) driver.Instant {
	if d <= 0 {
		return Floor(now)
	}
	return driver.InstantOf(now.Add(d))
}

// DueAt is when something is due that shall be at an instant or, where that is 0, after a delay.
func DueAt(now time.Time, at driver.Instant, delay time.Duration) driver.Instant {
	if at != 0 {
		return max(Floor(now), min(at, driver.Never))
	}
	return After(now, delay)
}

// LeaseEnd is d after now, or after the due time if that is later.
func LeaseEnd(now time.Time, due driver.Instant, d time.Duration) driver.Instant {
	return max(After(now, d), due.Add(d))
}

// ClaimedUntil is the end of the lease that a claim gives to a message in a state, leased or
// firing.
func ClaimedUntil(now time.Time, c *driver.Claim, state driver.State, due driver.Instant) driver.Instant {
	if state == driver.StateLeased && c.Hold > 0 {
		return LeaseEnd(now, due, c.Hold)
	}
	return LeaseEnd(now, due, c.Visibility)
}

// Extension is how long OpExtend makes the lease of a message in a state.
func Extension(c *driver.Change, state driver.State) time.Duration {
	if state == driver.StateFiring && c.Begun > 0 {
		return c.Begun
	}
	return c.Delay
}
