package timingwheel

import (
	"fmt"
	"math/bits"
	"slices"
)

// verify walks the shard and checks the invariants of docs/design.md by their numbers. Tests call it
// after every step; under the build tag invariants the shard calls it itself. mu is held. O(pending).
func (s *shard) verify() error {
	if s.stopped {
		return nil
	}
	for _, check := range []func() error{
		s.verifyPages, s.verifySlots, s.verifyBuckets, s.verifyNursery, s.verifyTombs, s.verifyQueue, s.verifyDeadlines, s.verifySums, s.verifyAlarm,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// I1: the pager's counts and sets agree with its bitmaps, and at most one page is empty.
func (s *shard) verifyPages() error {
	if err := s.nodes.pager.verify(); err != nil {
		return fmt.Errorf("I1, nodes: %w", err)
	}
	if err := s.chunks.pager.verify(); err != nil {
		return fmt.Errorf("I1, chunks: %w", err)
	}
	return nil
}

func (p *pager) verify() error {
	empties := 0
	for i := range p.state {
		st := &p.state[i]
		room := 0
		some := uint8(0)
		for k, w := range st.free {
			room += bits.OnesCount64(w)
			if w != 0 {
				some |= 1 << k
			}
		}
		switch {
		case st.some != some:
			return fmt.Errorf("page %d: words with free slots are %b, noted %b", i, some, st.some)
		case int(st.room) != room:
			return fmt.Errorf("page %d: room is %d, bitmap has %d", i, st.room, room)
		case p.roomy.has(i) != (room > 0):
			return fmt.Errorf("page %d: room %d, roomy %v", i, room, p.roomy.has(i))
		case p.absent.has(i) && st.here:
			return fmt.Errorf("page %d is here and absent", i)
		case !st.here && st.used != 0:
			return fmt.Errorf("page %d has %d slots in use and no memory", i, st.used)
		}
		if st.here && st.used == 0 {
			empties++
		}
	}
	if empties != p.empties || empties > 1 {
		return fmt.Errorf("%d empty pages, counted %d", empties, p.empties)
	}
	if p.low != p.roomy.min() {
		return fmt.Errorf("low is %d, lowest page with room is %d", p.low, p.roomy.min())
	}
	return nil
}

// I2: a slot in use is pending, or a plan whose run is under way, or the one kept aside.
func (s *shard) verifySlots() error {
	pending := 0
	for p := range s.nodes.state {
		st := &s.nodes.state[p]
		used := 0
		for k := 0; st.here && k < pageSize; k++ {
			n := &s.nodes.pages[p][k]
			i := uint32(p<<pageShift | k)
			if n.gen == maxGen {
				continue
			}
			if st.free[k>>6]>>(k&63)&1 == 1 {
				if n.pos != posNone {
					return fmt.Errorf("I2: free slot %d has position %d", i, n.pos)
				}
				continue
			}
			used++
			switch {
			case n.pos >= posNursery:
				pending++
			case s.nodes.aside != i+1 && n.deadline >= 0:
				return fmt.Errorf("I2: slot %d is in use and neither pending nor a plan", i)
			}
		}
		if st.here && used != int(st.used) {
			return fmt.Errorf("I2: page %d has %d slots in use, counted %d", p, used, st.used)
		}
	}
	if pending != s.pending {
		return fmt.Errorf("I2: %d slots are pending, counted %d", pending, s.pending)
	}
	return nil
}

// each calls f for every bucket, wherever it stands.
func (s *shard) each(f func(b *bucket) error) error {
	for _, b := range s.queue.items {
		if err := f(b); err != nil {
			return err
		}
	}
	for b := range s.expired {
		if err := f(b); err != nil {
			return err
		}
	}
	for _, l := range s.lots {
		if err := f(l.b); err != nil {
			return err
		}
	}
	return nil
}

// eachEntry calls f for every living entry of b, in order.
func (s *shard) eachEntry(b *bucket, f func(pos, i uint32) error) error {
	for c := b.head; c != 0; c = s.chunks.meta(c).next {
		for alive := s.chunks.meta(c).alive; alive != 0; alive &= alive - 1 {
			off := uint32(bits.TrailingZeros32(alive))
			if err := f(c<<chunkShift|off, s.chunks.entries(c)[off]); err != nil {
				return err
			}
		}
	}
	return nil
}

// I3: an entry is alive iff its node points back to it or it is a tombstone. I4: a bucket's list is well linked, owned by it
// and holds live entries; of two neighbours in a queued bucket at least one is more than mergeMax/2 full.
func (s *shard) verifyBuckets() error {
	return s.each(func(b *bucket) error {
		live, last := 0, uint32(0)
		for c := b.head; c != 0; c = s.chunks.meta(c).next {
			m := s.chunks.meta(c)
			if m.prev != last || m.owner != b.id || s.all[b.id] != b {
				return fmt.Errorf("I4: bucket %d: chunk %d has previous %d and owner %d", b.id, c, m.prev, m.owner)
			}
			if last != 0 && b.state == bucketQueued && max(m.count(), s.chunks.meta(last).count()) <= mergeMax/2 {
				return fmt.Errorf("I4: bucket %d: chunks %d and %d are sparse", b.id, last, c)
			}
			live += m.count()
			last = c
		}
		if last != b.tail || live != b.live {
			return fmt.Errorf("I4: bucket %d ends in %d with %d living, not in %d with %d", b.id, last, live, b.tail, b.live)
		}
		return s.eachEntry(b, func(pos, i uint32) error {
			if n := s.nodes.at(i); (n != nil && n.pos == pos) == s.entombed(pos) {
				return fmt.Errorf("I3: entry %d of bucket %d names slot %d, which is elsewhere, or is a tombstone whose timer is not", pos, b.id, i)
			}
			return nil
		})
	})
}

// I3 for the nursery, and I8: none of its timers is due before the alarm goes off.
func (s *shard) verifyNursery() error {
	if s.young.alive&nurseryEmpty != nurseryEmpty {
		return fmt.Errorf("I3: the nursery uses positions that mean something else: %b", s.young.alive)
	}
	for alive := s.young.alive &^ nurseryEmpty; alive != 0; alive &= alive - 1 {
		k := bits.TrailingZeros32(alive)
		i := s.young.entries[k]
		n := s.nodes.at(i)
		if n == nil || n.pos != uint32(k) {
			return fmt.Errorf("I3: entry %d of the nursery names slot %d, which is elsewhere", k, i)
		}
		if n.due() <= s.quiet && !s.driving {
			return fmt.Errorf("I8: timer of %d ns in the nursery, alarm at %d ns", n.due(), s.quiet)
		}
	}
	return nil
}

// I4 for tombstones: each is an entry of a queued bucket, and stands once.
func (s *shard) verifyTombs() error {
	for k, pos := range s.tombs.pos[:s.tombs.n] {
		m := s.chunks.meta(pos >> chunkShift)
		switch {
		case m == nil || m.owner == noBucket || m.alive>>(pos&chunkMask)&1 == 0:
			return fmt.Errorf("I4: tombstone %d is no entry", pos)
		case s.all[m.owner].state != bucketQueued:
			return fmt.Errorf("I4: tombstone %d is an entry of a bucket in state %d", pos, s.all[m.owner].state)
		case slices.Contains(s.tombs.pos[:k], pos):
			return fmt.Errorf("I4: tombstone %d stands twice", pos)
		}
	}
	return nil
}

func (s *shard) entombed(pos uint32) bool { return slices.Contains(s.tombs.pos[:s.tombs.n], pos) }

// I5: the queue is a heap of the buckets that stand in a slot, each in the slot of its expiration, none
// before the clock.
func (s *shard) verifyQueue() error {
	if err := s.queue.verify(func(b *bucket) int { return int(b.heapIndex) }); err != nil {
		return fmt.Errorf("I5: %w", err)
	}
	slots := 0
	for l, lv := range s.levels {
		for k, b := range lv.slots {
			if b == nil {
				continue
			}
			slots++
			v := b.at >> (uint(l) * s.bits)
			if int(b.level) != l || int(b.slot) != k || v&(s.size-1) != int64(k) || v<<(uint(l)*s.bits) != b.at {
				return fmt.Errorf("I5: bucket of tick %d, level %d, slot %d stands in level %d, slot %d", b.at, b.level, b.slot, l, k)
			}
			if b.state != bucketQueued || b.at < s.cur || b.key > b.at {
				return fmt.Errorf("I5: bucket of tick %d in state %d at clock %d", b.at, b.state, s.cur)
			}
		}
	}
	for l := range s.cascade.levels {
		if used := s.cascade.used>>l&1 == 1; used != (s.cascade.levels[l].head != nil) {
			return fmt.Errorf("I5: level %d of the cascade: used is %v", l, used)
		}
	}
	if ends := s.ticks.times(s.cur + 1); ends != s.curEnds {
		return fmt.Errorf("I5: the clock is at tick %d, which ends at %d ns, noted %d", s.cur, ends, s.curEnds)
	}
	if slots != s.queue.len() {
		return fmt.Errorf("I5: %d buckets in slots, %d queued", slots, s.queue.len())
	}
	return nil
}

// I6: the clock reaches a timer's bucket no later than the timer's tick.
func (s *shard) verifyDeadlines() error {
	for _, b := range s.queue.items {
		err := s.eachEntry(b, func(pos, i uint32) error {
			if s.entombed(pos) {
				return nil
			}
			n := s.nodes.must(i)
			if tick := s.ticks.ceil(n.due()); tick < b.at {
				return fmt.Errorf("I6: timer of tick %d in a bucket of tick %d", tick, b.at)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// I7: the counts of pending, ready, empty and flushed agree with the buckets.
func (s *shard) verifySums() error {
	pending, ready, hollow, flushed := bits.OnesCount32(s.young.alive&^nurseryEmpty)-s.tombs.n, 0, 0, 0
	_ = s.each(func(b *bucket) error {
		pending += b.live
		switch {
		case b.state == bucketDue:
			ready += b.live
		case b.state == bucketQueued && b.live == 0:
			hollow++
		}
		if b.flush && b.state == bucketDue {
			flushed++
		}
		return nil
	})
	if pending != s.pending || ready != s.ready || hollow != s.hollow || flushed != s.flushed {
		return fmt.Errorf("I7: pending %d, ready %d, empty %d, flushed %d; counted %d, %d, %d, %d",
			pending, ready, hollow, flushed, s.pending, s.ready, s.hollow, s.flushed)
	}
	return nil
}

// I8: unless a driver is at work, the alarm goes off no later than the first bucket with timers expires.
// I9: whenever the lock is free and timers are due, somebody is on the way to claim them.
func (s *shard) verifyAlarm() error {
	if b := s.prompt; b != nil && b.flush {
		return fmt.Errorf("I7: the prompt bucket %d is one of a Flush", b.id)
	}
	if quiet := s.quietOf(s.wakeAt); quiet != s.quiet {
		return fmt.Errorf("I8: the alarm is set for tick %d, and the nursery takes what is due after %d ns", s.wakeAt, s.quiet)
	}
	if s.manual || s.driving {
		return nil
	}
	for _, b := range s.queue.items {
		if b.live > 0 && b.key < s.wakeAt {
			return fmt.Errorf("I8: bucket of tick %d, alarm at %d", b.key, s.wakeAt)
		}
	}
	if s.pooled && s.spares == 0 && s.lotsReady() {
		return fmt.Errorf("I9: what is left of a lot waits and no spare comes")
	}
	if s.pooled && (s.ready > 0 || s.cascade.any()) && s.spares == 0 && s.serving == s.running {
		return fmt.Errorf("I9: %d timers are due and nobody comes", s.ready)
	}
	if !s.pooled && s.calls() > 0 {
		return fmt.Errorf("I9: the executor has not been given %d calls", s.calls())
	}
	return nil
}
