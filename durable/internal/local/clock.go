package local

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Floor returns the last instant that is not after t. It is at least 1, because 0 means none.
func Floor(t time.Time) driver.Instant {
	return max(1, min(driver.Instant(t.UnixMilli()), driver.Never))
}

// After returns the first instant that is not before now plus d, or Floor(now) if d <= 0. It rounds
// the sum and not its parts, because now may be between two milliseconds.
func After(now time.Time, d time.Duration) driver.Instant {
	if d <= 0 {
		return Floor(now)
	}
	return driver.InstantOf(now.Add(d))
}

// DueAt returns the due time of a message: at, or now if that is later. If at is 0, the message is
// due after delay.
func DueAt(now time.Time, at driver.Instant, delay time.Duration) driver.Instant {
	if at != 0 {
		return max(Floor(now), min(at, driver.Never))
	}
	return After(now, delay)
}

// LeaseEnd returns the instant d after now, or d after the due time if that is later.
func LeaseEnd(now time.Time, due driver.Instant, d time.Duration) driver.Instant {
	return max(After(now, d), due.Add(d))
}

// ClaimedUntil returns the end of the lease that a claim gives to a leased or firing message.
func ClaimedUntil(now time.Time, c *driver.Claim, state driver.State, due driver.Instant) driver.Instant {
	if state == driver.StateLeased && c.Hold > 0 {
		return LeaseEnd(now, due, c.Hold)
	}
	return LeaseEnd(now, due, c.Visibility)
}

// Extension returns the length of the lease that OpExtend gives to a message in the state.
func Extension(c *driver.Change, state driver.State) time.Duration {
	if state == driver.StateFiring && c.Begun > 0 {
		return c.Begun
	}
	return c.Delay
}
