package timingwheel

import "time"

// Timer is the handle of a timer or of a plan of [TimingWheel.ScheduleFunc]. It is a small comparable
// value, to be copied freely; == tells whether two handles name the same timer. The zero Timer is valid
// and inert: it is what adding to a stopped wheel returns.
//
// A handle never acts on a timer other than its own. Once that has fired or was stopped, Stop and Reset
// return false for ever, although the wheel reuses its memory.
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

// Reset makes a pending timer run d from now instead, and returns true. Zero and negative mean at once.
// Where the timer is not pending any more it returns false and, unlike time.Timer.Reset, arms nothing,
// as the timer's slot may be another timer's by now:
//
//	if !t.Reset(d) {
//		t = tw.AfterFunc(d, f)
//	}
//
// For a plan Reset moves the next run; during a run it returns true if there is a next one.
//
// Moving a deadline later writes the deadline and nothing else, Manual mode and a Flush that is under way
// apart; moving it earlier is O(1).
func (t Timer) Reset(d time.Duration) bool {
	s := t.shard
	if s == nil {
		return false
	}
	if s.manual {
		return s.reset(t.index, t.gen, int64(d), 0, true)
	}
	now := s.clock()
	return s.reset(t.index, t.gen, later(now, int64(d)), now, false)
}

// ResetAt is Reset to a point in time, see [TimingWheel.AtFunc].
func (t Timer) ResetAt(at time.Time) bool {
	s := t.shard
	if s == nil {
		return false
	}
	return t.resetTo(s.instant(at))
}

// resetTo is Reset to a reading of the clock. now is a reading that is not later than the call. t is not the zero Timer.
func (t Timer) resetTo(deadline, now int64) bool {
	return t.shard.reset(t.index, t.gen, deadline, now, false)
}

// Deadline returns when the timer is to run, or the zero time and false if it is not pending.
func (t Timer) Deadline() (time.Time, bool) {
	if t.shard == nil {
		return time.Time{}, false
	}
	return t.shard.deadline(t.index, t.gen)
}
