package timingwheel

import (
	"time"

	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// Timer is the handle of a timer or of a plan of [TimingWheel.ScheduleFunc]. It is a small comparable
// value, to be copied freely; == tells whether two handles name the same timer. The zero Timer is valid
// and inert: it is what adding to a stopped wheel returns.
//
// A handle never acts on a timer other than its own. Once the timer has fired or been stopped, Stop
// and Reschedule return false for ever, although the wheel reuses its memory.
//
// All methods may be called at any time from any goroutine, callbacks included.
type Timer struct {
	shard *shard
	index uint32
	gen   uint32
}

// Stop prevents the callback from running. It returns true if this call prevented it, and then the
// callback never starts and what it refers to is released at once. It returns false if the callback has
// started, if the timer was stopped before, or if its wheel was. Stop does not wait for a callback that
// is running.
//
// For a plan, also while one of its runs is under way, true means that this call prevented all further
// runs. O(1) amortised.
func (t Timer) Stop() bool {
	if t.shard == nil {
		return false
	}
	return t.shard.stop(t.index, t.gen)
}

// Reschedule makes a pending timer run d from now instead, and returns true. A zero or negative d
// means at once. If the timer is no longer pending, Reschedule returns false and arms nothing,
// because the slot may already belong to another timer. A new timer then takes its place:
//
//	if !t.Reschedule(d) {
//		t = tw.AfterFunc(d, f)
//	}
//
// There is deliberately no method named Reset. [time.Timer.Reset] also re-arms a timer that has
// fired, and Reschedule does not. Code ported from package time therefore fails to compile instead
// of silently arming nothing.
//
// For a plan, Reschedule moves the next run. During a run it returns true if there is a next one.
//
// Moving a deadline later writes the deadline and nothing else, except in Manual mode and during a
// Flush. Moving it earlier is O(1).
func (t Timer) Reschedule(d time.Duration) bool {
	s := t.shard
	if s == nil {
		return false
	}
	if s.Manual {
		now := s.now.Load()
		return t.rescheduleTo(clock.Later(now, int64(d)), now)
	}
	now := s.Read()
	return t.rescheduleTo(clock.Later(now, int64(d)), now)
}

// RescheduleAt is like [Timer.Reschedule] but takes a point in time. See [TimingWheel.AtFunc].
func (t Timer) RescheduleAt(at time.Time) bool {
	s := t.shard
	if s == nil {
		return false
	}
	return t.rescheduleTo(s.Instant(at))
}

// rescheduleTo is like Reschedule but takes a reading of the clock. now is a reading that is not
// later than the call, or 0. t is not the zero Timer.
func (t Timer) rescheduleTo(deadline, now int64) bool {
	s := t.shard
	if now == 0 {
		now = s.now.Load()
	}
	deadline = max(deadline, now)
	return s.reschedule(t.index, t.gen, deadline, s.tickOf(deadline, now))
}

// Deadline returns when the timer is to run, or the zero time and false if it is not pending.
func (t Timer) Deadline() (time.Time, bool) {
	if t.shard == nil {
		return time.Time{}, false
	}
	return t.shard.deadline(t.index, t.gen)
}
