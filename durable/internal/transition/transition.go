// Package transition has the rules by which messages change, for stores that are written in Go. See
// [driver.Backend].
package transition

import (
	"fmt"
	"math"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
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

// Plan makes the next delivery of a message a run of a series, or of none if repeat is empty.
func Plan(r *driver.Record, repeat string) {
	r.Repeat, r.Planned = repeat, 0
	if repeat != "" {
		r.Planned = r.Due
	}
}

// Crash counts a crash of a message that a process had begun.
func Crash(r *driver.Record, process string, now time.Time) {
	r.Crashes, r.Postponed = increment(r.Crashes), 0
	r.Reason = fmt.Sprintf("the consumer process ended or hung %d times during delivery, last %s", r.Crashes, process)
	if delay := contract.CrashDelay(r.Crashes); delay > 0 {
		r.Due = After(now, delay)
	}
	r.Due = max(r.Due, r.Planned)
}

// Removes reports whether a transition that ends the lease of a firing message removes it, and
// counts it. marked means that Cancel has marked the message, and repeat is its series.
func Removes(n *driver.Counters, op driver.Op, c *driver.Change, marked bool, repeat string) bool {
	switch {
	case op == driver.OpExpire:
		n.Expired++
	case op == driver.OpAck:
		n.Acked++
	case !marked && !(op == driver.OpRetry && c.Again && c.Incarnation != 0 && repeat == ""):
		return false
	case op == driver.OpRetry && c.Again && !runFailed(c):
		n.Acked++
	default:
		n.Cancelled++
	}
	return true
}

// runFailed reports whether the last attempt of a run has failed, which a Retry with Again ends.
func runFailed(c *driver.Change) bool { return c.Incarnation != 0 && c.Reason != "" }

// Settle makes the changes by which Retry, Bury or Release end the lease of a firing message that
// they do not remove, and counts them. The caller sets the state.
func Settle(n *driver.Counters, r *driver.Record, op driver.Op, c *driver.Change, now time.Time) {
	if op == driver.OpRelease {
		r.Due = max(r.Due, r.Planned)
		return
	}
	r.Reason = contract.CutReason(c.Reason)
	switch {
	case op == driver.OpBury:
	case !c.Again || c.Incarnation == 0:
		r.Due = max(DueAt(now, c.At, c.Delay), r.Planned)
	case c.Incarnation == r.Planned:
		r.Due = DueAt(now, c.At, c.Delay)
	default: // the series was changed during the run
		r.Due = max(r.Planned, Floor(now))
	}
	switch {
	case op == driver.OpBury:
		r.Attempts, r.Postponed = increment(r.Attempts), 0
		Bury(n, r, now)
	case c.Again:
		if runFailed(c) {
			n.Retried++
		} else {
			n.Acked++
			n.Enqueued++
		}
		if c.Incarnation != 0 {
			r.Planned = r.Due
		}
		r.Attempts, r.Crashes, r.Postponed = 0, 0, 0
	case c.Uncounted:
		r.Postponed = increment(r.Postponed)
	default:
		n.Retried++
		r.Attempts, r.Postponed = increment(r.Attempts), 0
	}
}

// GiveUp ends the deliveries of a message that ends its process too often. A recurring message
// waits for Replay. Others become dead.
func GiveUp(n *driver.Counters, r *driver.Record, now time.Time) {
	if r.Repeat == "" {
		Bury(n, r, now)
		return
	}
	r.Due = driver.Never
}

// Bury makes the record of a message the record of a dead letter.
func Bury(n *driver.Counters, r *driver.Record, now time.Time) {
	r.State, r.Died = driver.StateDead, Floor(now)
	n.Buried++
}

// Replay makes a dead letter, or a recurring message that waits until Never, due after delay.
func Replay(r *driver.Record, now time.Time, delay time.Duration) {
	r.State, r.Due, r.Died = driver.StateScheduled, After(now, delay), 0
	r.Attempts, r.Crashes, r.Postponed = 0, 0, 0
	Plan(r, r.Repeat)
}

// increment returns n+1, or the largest number that a record can hold.
func increment(n int) int { return min(n+1, math.MaxInt32) }
