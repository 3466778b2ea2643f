package timingwheel

import (
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// Timer is a handle to a timer or a plan. It is a comparable value of at most 16 bytes, and may be
// copied. Two handles are equal if they refer to the same timer. The zero Timer is valid: its
// methods return false. Once the timer has fired, or it or its wheel has been stopped, all methods
// return false and have no effect, even though the wheel reuses the memory for other timers.
type Timer struct {
	ref   *pageRef
	index uint32
	gen   uint32
}

// load returns the timer's page and word. It returns nil and 0 if the record may be free or may
// have another timer, or if the wheel is stopped. t is not the zero Timer.
func (t Timer) load() (pg *arena.Page, w arena.Word) {
	if pg = t.ref.page.Load(); pg == nil {
		return nil, 0
	}
	if w = pg.Load(t.index); w.Gen() != t.gen || t.ref.shard.closed.Load() {
		return nil, 0
	}
	return pg, w
}

// pending is like load, but returns nil and 0 unless the timer is pending.
func (t Timer) pending() (pg *arena.Page, w arena.Word) {
	pg, w = t.load()
	if k := w.Kind(); k != arena.Staged && k != arena.Placed {
		return nil, 0
	}
	return pg, w
}

// isDue reports whether an entry of a queue of due timers may still be claimed.
func (t Timer) isDue() bool {
	_, w := t.load()
	s, k := t.ref.shard, w.Kind()
	return k == arena.Flushed || k == arena.Placed && (s.config.Manual == nil || t.isCollected())
}

// Stop stops a pending timer and reports whether it did. If so, the callback never starts, and what
// it refers to is released immediately. Stop returns false if the callback has started or is about
// to start, if the timer or its wheel had already been stopped, and for the zero Timer. If several
// goroutines call Stop concurrently, exactly one call returns true. Stop does not wait for a
// running callback.
//
// For a plan, true means that no further run starts. Stop also returns true during a run if another
// run was planned. The run that is under way continues. Stop is O(1) amortised.
func (t Timer) Stop() bool {
	if t.ref == nil {
		return false
	}
	if p := t.ref.plan; p != nil {
		return p.stop()
	}
	pg, to := t.end()
	if pg == nil {
		return false
	}
	t.finishStop(pg, to)
	return true
}

// end ends a pending timer by its word, and returns its page and the new word. The caller then
// calls finishStop. If the timer is not pending, end returns nil. t is not the zero Timer.
func (t Timer) end() (pg *arena.Page, to arena.Word) {
	for {
		pg, w := t.pending()
		if pg == nil {
			return nil, 0
		}
		if w.Kind() == arena.Staged {
			to = w.With(arena.Ending)
		} else {
			to = w.With(arena.Dead).WithBits(t.ref.shard.removals.link()) &^ arena.Listed
		}
		if pg.Swap(t.index, w, to) {
			return pg, to
		}
	}
}

// finishStop completes Stop, which has set the word to, as end returned it. It clears the payload,
// and pushes the record onto the removals unless the record is still in the inbox. If there are
// enough removals, it tries to become the owner and carries them out.
func (t Timer) finishStop(pg *arena.Page, to arena.Word) {
	s := t.ref.shard
	s.page(t.index).payloads.drop(t.index)
	if to.Kind() == arena.Ending && pg.Swap(t.index, to, to.With(arena.Ended)) {
		return
	}
	if s.removals.push(chain{pg, t.index, t.index + 1, 1}) >= removalGroup {
		s.tryDrain()
	}
}

// Reschedule moves a pending timer, or the next run of a plan, to d from now and reports whether it
// did. The callback then runs only at the new deadline, which may be earlier or later. If d is zero
// or negative, it runs immediately, or in Manual mode in the next [TimingWheel.Advance].
//
// Reschedule returns false and arms nothing if the callback has started or is about to start, even
// if the callback itself is the caller. The same holds if the timer or its wheel was stopped, and
// for the zero Timer. To arm a new timer in these cases:
//
//	if !t.Reschedule(d) {
//		t = tw.AfterFunc(d, f)
//	}
//
// A [FuncTimer] can itself be armed again. If several goroutines call Reschedule, the last one to
// reach the timer wins. Reschedule is O(1) amortised. Moving a timer to a later deadline allocates
// nothing, and takes no lock except in Manual mode and for a plan.
func (t Timer) Reschedule(d time.Duration) bool {
	if t.ref == nil {
		return false
	}
	s := t.ref.shard
	now := s.config.Read()
	return t.rescheduleTo(clock.Later(now, int64(d)), now)
}

// RescheduleAt moves a pending timer, or the next run of a plan, to the time at, and reports
// whether it did. If not, it arms nothing. If that time has passed, the timer is due immediately.
// If it has no monotonic reading, it is converted as in [TimingWheel.AtFunc]. In all other respects
// RescheduleAt is like [Timer.Reschedule].
func (t Timer) RescheduleAt(at time.Time) bool {
	if t.ref == nil {
		return false
	}
	s := t.ref.shard
	return t.rescheduleTo(s.config.Instant(at))
}

// rescheduleTo is Reschedule with a reading of the clock as the deadline. now is a reading from
// before the call, or clock.Unread. t is not the zero Timer.
func (t Timer) rescheduleTo(deadline, now int64) bool {
	if p := t.ref.plan; p != nil {
		return p.reschedule(deadline, now)
	}
	return t.move(deadline, now, true)
}

// move is rescheduleTo for the handle of a record, and reports whether it moved the timer. If wait
// is false and another goroutine holds inbox.mu, move does not wait for the lock and returns false
// although the timer may be pending.
func (t Timer) move(deadline, now int64, wait bool) bool {
	s := t.ref.shard
	now = max(now, s.now.Load()) // the caller may have been preempted since it read the clock
	deadline = max(deadline, now)
	tick := s.config.ticks.Rounded(deadline, now)
	for {
		pg, w := t.pending()
		switch {
		case pg == nil:
			return false
		case s.config.Manual == nil && w.Tick() <= tick:
			if pg.Swap(t.index, w, w.WithBits(uint64(tick))) {
				return true
			}
		default:
			if moved, busy := t.lockAndMove(pg, w, tick, wait); moved || busy {
				return moved
			}
		}
	}
}

// lockAndMove handles the cases of Timer.move that need inbox.mu. It returns false if the word has
// changed or the wheel is stopped. busy is true if inbox.mu is locked and wait is false.
func (t Timer) lockAndMove(pg *arena.Page, w arena.Word, tick int64, wait bool) (moved, busy bool) {
	s := t.ref.shard
	if wait || s.config.Manual != nil { // in Manual mode the order of the calls counts
		s.inbox.mu.Lock()
	} else if !s.inbox.mu.TryLock() {
		return false, true
	}
	if s.closed.Load() {
		s.inbox.mu.Unlock()
		return false, false
	}
	moved = t.moveLocked(pg, w, tick)
	s.inbox.unlock()
	return moved, false
}

// moveLocked moves a pending timer to another deadline, through the inbox if necessary. It reports
// whether it did: it fails if the word has changed. inbox.mu is held.
func (t Timer) moveLocked(pg *arena.Page, w arena.Word, tick int64) bool {
	s := t.ref.shard
	old, now := w.Tick(), s.config.ticks.Floor(s.now.Load())
	tick = max(tick, now) // an Advance may have come after the caller's reading
	moved := w.WithBits(uint64(tick))
	staged := w.Kind() == arena.Staged
	// A timer that is moved later stays in its bucket, as in other modes, unless it is due.
	stays := s.config.Manual != nil && !staged && tick > old && old > now
	if !staged && !stays {
		moved = moved.With(arena.Staged) | arena.Listed
	}
	if !pg.Swap(t.index, w, moved) {
		return false
	}
	s.inbox.counts.rescheduled++
	if s.config.Manual != nil {
		s.inbox.setStamp(t.index)
	}
	switch {
	case stays:
	case staged:
		s.inbox.lowerFirst(tick)
	default:
		s.inbox.stage(t.index, tick)
	}
	return true
}

// Deadline returns the deadline of a pending timer or of a plan's next run, rounded up to a tick,
// on the wheel's clock. It returns false for the zero Timer, if the wheel was stopped, and if the
// timer is not pending, for example during most runs of a plan. O(1).
func (t Timer) Deadline() (time.Time, bool) {
	if t.ref == nil {
		return time.Time{}, false
	}
	if p := t.ref.plan; p != nil {
		return p.next()
	}
	pg, w := t.pending()
	if pg == nil {
		return time.Time{}, false
	}
	c := &t.ref.shard.config
	return c.TimeAt(c.ticks.Begin(w.Tick())), true
}

// pageRef connects handles with the page of their records. A pageRef is small, and handles keep it
// alive when the page is released or the wheel is stopped. A page that is opened again under the
// same number has another pageRef, so a handle of the old page never names a timer of the new one.
type pageRef struct {
	shard *shard
	page  atomic.Pointer[arena.Page] // nil once the page is released or the wheel is stopped
	plan  planHandle                 // of the handle of a plan, which has no page; else nil
}

// planHandle is a plan as its handle sees it.
type planHandle interface {
	stop() bool
	reschedule(deadline, now int64) bool
	next() (time.Time, bool)
}
