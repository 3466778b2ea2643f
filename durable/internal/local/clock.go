package local

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Floor returns the last instant that is not after t. It is at least 1, because 0 means none.
func Floor(t time.Time) driver.Instant {
	return max(1, min(driver.Instant(t.UnixMilli()), driver.Never))
}

// after returns the first instant that is not before now plus d, or Floor(now) if d <= 0. It rounds
// the sum and not its parts, because now may be between two milliseconds.
func after(now time.Time, d time.Duration) driver.Instant {
	if d <= 0 {
		return Floor(now)
	}
	return driver.InstantOf(now.Add(d))
}

// dueAt returns the due time of a message: at, or now if that is later. If at is 0, the message is
// due after delay.
func dueAt(now time.Time, at driver.Instant, delay time.Duration) driver.Instant {
	if at != 0 {
		return max(Floor(now), min(at, driver.Never))
	}
	return after(now, delay)
}

// leaseEnd returns the instant d after now, or d after the due time if that is later.
func leaseEnd(now time.Time, due driver.Instant, d time.Duration) driver.Instant {
	return max(after(now, d), due.Add(d))
}
