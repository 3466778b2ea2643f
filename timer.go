package timingwheel

import (
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// Timer is the handle of a timer or of a plan of [TimingWheel.ScheduleFunc]. It is a small
// comparable value, to be copied freely; == tells whether two handles name the same timer. The zero
// Timer is valid and inert: it is what adding to a stopped wheel returns.
//
// A handle never acts on a timer other than its own. Once the timer has fired or been stopped, Stop
// and Reschedule return false for ever, although the wheel reuses its memory.
//
// All methods may be called at any time from any goroutine, callbacks included.
type Timer struct {
	home  *home
	index uint32
	gen   uint32
}

// shard returns the shard of the timer, or nil for the zero Timer.
func (t Timer) shard() *shard {
	if t.home == nil {
		return nil
	}
	return t.home.shard
}

// load returns the timer's page and word. It returns false if the slot may be free or may have
// another timer, or if the wheel is stopped. t is not the zero Timer.
func (t Timer) load() (pg *arena.Page, w arena.Word, ok bool) {
	if pg = t.home.page.Load(); pg == nil {
		return nil, 0, false
	}
	w = pg.Load(t.index)
	return pg, w, w.Gen() == t.gen && !t.home.shard.closed.Load()
}

// Stop prevents the callback from running. It returns true if this call prevented it, and then the
// callback never starts and what it refers to is released at once. It returns false if the callback
// has started, if the timer was stopped before, or if its wheel was. Stop does not wait for a
// callback that is running.
//
// For a plan, also while one of its runs is under way, true means that this call prevented all
// further runs. O(1) amortised.
func (t Timer) Stop() bool {
	s, i := t.shard(), t.index
	if s == nil {
		return false
	}
	for {
		pg, w, ok := t.load()
		if !ok {
			return false
		}
		c := cell{s, pg, i}
		to, ok := c.ending(w)
		if !ok {
			return false
		}
		if pg.Swap(i, w, to) {
			c.ended(w, to)
			return true
		}
	}
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
// Moving a deadline later writes the deadline and nothing else, except in Manual mode, for a
// deadline more than 2^33 ticks ahead, and during a run of a plan. Moving it earlier is O(1).
func (t Timer) Reschedule(d time.Duration) bool {
	s := t.shard()
	if s == nil {
		return false
	}
	now := s.now.Load()
	if !s.Manual {
		now = s.Read()
	}
	return t.rescheduleTo(clock.Later(now, int64(d)), now)
}

// RescheduleAt is like [Timer.Reschedule] but takes a point in time. See [TimingWheel.AtFunc].
func (t Timer) RescheduleAt(at time.Time) bool {
	s := t.shard()
	if s == nil {
		return false
	}
	return t.rescheduleTo(s.Instant(at))
}

// rescheduleTo is like Reschedule but takes a reading of the clock. now is a reading that is not
// later than the call, or clock.Unread. t is not the zero Timer.
func (t Timer) rescheduleTo(deadline, now int64) bool {
	s := t.home.shard
	now = max(now, s.now.Load()) // the caller may have stood still since it read the clock
	deadline = max(deadline, now)
	tick := s.tickOf(deadline, now)
	for {
		pg, w, ok := t.load()
		if !ok {
			return false
		}
		switch w.Kind() {
		case arena.Placed, arena.Staged:
			// If the clock is past the deadline, the caller has stood still, and move looks again.
			near := uint64(deadline-s.now.Load()) < uint64(s.near)
			if near && !s.Manual && !w.Has(arena.Far) && w.NotAfter(tick) {
				if w.Kind() == arena.Staged && w.Bits() == arena.LowBits(s.alarm.at.Load()) {
					s.alarm.stale.Store(true)
				}
				if pg.Swap(t.index, w, w.WithBits(uint64(tick))) {
					return true
				}
				continue
			}
		case arena.Running:
		default:
			return false
		}
		if (cell{s, pg, t.index}).reschedule(w, deadline, tick) {
			return true
		}
	}
}

// Deadline returns the deadline, rounded up to a tick. It returns the zero time and false if the
// timer is not pending; a plan is not during a run, and no timer of a stopped wheel is. After a
// Flush the deadline is the time of the Flush, except in Manual mode and for plans. O(1).
func (t Timer) Deadline() (time.Time, bool) {
	s := t.shard()
	if s == nil {
		return time.Time{}, false
	}
	for {
		pg, w, ok := t.load()
		if k := w.Kind(); !ok || k != arena.Staged && k != arena.Placed {
			return time.Time{}, false
		}
		tick, ok := s.decode(w, s.ticks.Floor(s.now.Load()))
		if ok && pg.Load(t.index) == w { // else the clock may have left the word behind
			return s.TimeAt(s.ticks.Begin(tick)), true
		}
	}
}
