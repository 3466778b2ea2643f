package timingwheel

import (
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// Timer is the handle of a timer or of a plan, a small comparable value. The methods of the zero
// Timer return false. So do all methods for ever once the timer has fired or was stopped, although
// the wheel uses the memory again.
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

// Stop returns true if this call prevented the callback, or all further runs of a plan. The
// callback then never starts and is released at once. Stop does not wait for a running callback.
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

// Reschedule makes a pending timer, or the next run of a plan, run d from now instead, and returns
// true. Otherwise it returns false and arms nothing, because the memory may belong to another
// timer. [FuncTimer.Reset] arms in any case.
//
//	if !t.Reschedule(d) {
//		t = tw.AfterFunc(d, f)
//	}
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

// RescheduleAt is [Timer.Reschedule] for a point in time.
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
	now = max(now, s.now.Load()) // the caller may have been preempted since it read the clock
	deadline = max(deadline, now)
	tick := s.tickOf(deadline, now)
	for {
		pg, w, ok := t.load()
		if !ok {
			return false
		}
		switch w.Kind() {
		case arena.Placed, arena.Staged:
			// If the clock is past the deadline, the caller was preempted, and move looks again.
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

// Deadline returns the deadline, rounded up to a tick. It returns false if the timer is not
// pending, or is a plan in a run. A Flush may change it. O(1).
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
