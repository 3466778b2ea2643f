package timingwheel

import (
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// home is what handles know of a page of slots. It is small and stays with the handles when the
// page is given back, or when the wheel is stopped. A page that is opened again with the same
// number has another home, so handles of the old page never name a timer of the new one.
type home struct {
	shard *shard
	page  atomic.Pointer[arena.Page] // nil if it was given back
}

// cell is a slot with its page and its shard. Its methods are the steps of a timer's word that
// callers and plans take, each with what has to follow it.
type cell struct {
	shard *shard
	page  *arena.Page
	index uint32
}

// load returns the slot's word.
func (c cell) load() arena.Word { return c.page.Load(c.index) }

// ending returns the word of a timer that is stopped now, or false if the timer of w is not pending
// and no run of a plan.
func (c cell) ending(w arena.Word) (to arena.Word, ok bool) {
	switch w.Kind() {
	case arena.Staged:
		return w.With(arena.Ending), true
	case arena.Placed:
		return w.With(arena.Dead).WithBits(c.shard.removals.link()) &^ arena.Moved, true
	case arena.Running:
		// The run buries the slot, because the worker that has just claimed it may not have read
		// the payload yet.
		return w.With(arena.Dead) | arena.Moved, true
	}
	return 0, false
}

// ended does what follows once a Stop has swapped the word w for that of ending.
func (c cell) ended(w, to arena.Word) {
	s := c.shard
	switch w.Kind() {
	case arena.Staged:
		s.release(c.index)
		c.page.Store(c.index, to.With(arena.Ended))
		if w.Has(arena.Moved) && s.removals.offerAt.Load() < removalsMax {
			// A bucket may still have the slot, as one of the last of the wheel.
			s.tend()
		}
	case arena.Placed:
		c.bury(to)
	case arena.Running:
		s.claims.planEnds.Add(1)
	}
	if s.alarm.isFor(w) {
		s.relax()
	}
	s.forget(w)
}

// endCounted ends a pending timer whose Stop is counted already, and leaves the rest to the owner. It
// returns false if the timer is Running. armMu is held.
func (c cell) endCounted() bool {
	s := c.shard
	for {
		w := c.load()
		to, _ := c.ending(w)
		switch w.Kind() {
		case arena.Running:
			return false
		case arena.Placed:
			to |= arena.Moved
		}
		if !c.page.Swap(c.index, w, to) {
			continue
		}
		s.forget(w)
		s.release(c.index)
		if w.Kind() == arena.Staged {
			c.page.Store(c.index, to.With(arena.Ended))
			s.inbox.stopped-- // it will be counted with the others of its kind
		} else {
			s.removals.push(c.page, c.index, to)
		}
		s.wanted.Store(true)
		return true
	}
}

// bury releases the payload of a slot whose word is Dead and pushes the slot. If there are enough
// removals, it offers to carry them out.
func (c cell) bury(dead arena.Word) {
	s := c.shard
	s.release(c.index)
	if s.removals.push(c.page, c.index, dead) >= int(s.removals.offerAt.Load()) {
		s.tend()
	}
}

// reschedule handles the cases of Timer.rescheduleTo that are rare or need armMu. It returns false
// if the word has changed or the wheel is stopped.
func (c cell) reschedule(w arena.Word, deadline, tick int64) bool {
	s := c.shard
	if w.Kind() == arena.Running { // the word is read at the end of the run, which may be much later
		return s.replace(c.page, c.index, w, w.WithBits(s.far.put(tick))|arena.Far|arena.Moved)
	}
	old, ok := s.decode(w, s.ticks.Floor(s.now.Load()))
	if !ok {
		return false
	}
	if tick >= old && !s.Manual {
		flags, bits := s.encode(deadline, tick)
		return s.replace(c.page, c.index, w, w.WithBits(bits)&^arena.Far|flags)
	}
	s.armMu.Lock()
	if s.closed.Load() {
		s.armMu.Unlock()
		return false
	}
	moved := c.moveLocked(w, deadline, tick)
	s.unlockArm()
	return moved
}

// moveLocked moves a pending timer to another deadline by way of the inbox. It returns false if the
// word has changed. armMu is held.
func (c cell) moveLocked(w arena.Word, deadline, tick int64) bool {
	s := c.shard
	clock := s.now.Load()
	now := s.ticks.Floor(clock)
	old, ok := s.decode(w, now)
	if !ok {
		return false
	}
	if deadline < clock { // Advance has overtaken this call
		deadline, tick = clock, now
	}
	flags, bits := s.encode(deadline, tick)
	moved := w.WithBits(bits)&^arena.Far | flags
	staged := w.Kind() == arena.Staged
	// As in other modes, a timer that is moved later stays in its bucket, unless it is due or about
	// to be claimed.
	stays := s.Manual && !staged && tick > old && old > now && !s.order.claiming
	if !staged && !stays {
		moved = moved.With(arena.Staged) | arena.Moved
	}
	if !s.replace(c.page, c.index, w, moved) {
		return false
	}
	s.inbox.rescheduled++
	if s.Manual {
		s.order.stamp(c.index)
	}
	switch {
	case stays:
	case staged:
		if s.inbox.lowerFirst(tick) {
			s.alarm.setEarlier(tick)
		}
	default:
		s.stage(c.index, tick)
	}
	return true
}

// stageAgain puts a Running timer into the inbox and returns its tick. It returns false if the word
// has changed. now is from noteReading. armMu is held.
func (c cell) stageAgain(w arena.Word, deadline, now int64) (tick int64, ok bool) {
	s := c.shard
	deadline = max(deadline, now)
	tick = s.tickOf(deadline, now)
	return tick, c.stageAt(w, w, deadline, tick)
}

// stageAt is stageAgain for a tick. The new word has the generation of next.
func (c cell) stageAt(w, next arena.Word, deadline, tick int64) bool {
	s := c.shard
	flags, bits := s.encode(deadline, tick)
	staged := next.With(arena.Staged).WithBits(bits)&^arena.Far | flags | arena.Moved
	if !s.replace(c.page, c.index, w, staged) {
		return false
	}
	if s.Manual {
		s.order.stamp(c.index)
	}
	s.stage(c.index, tick)
	return true
}
