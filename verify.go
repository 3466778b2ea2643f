package timingwheel

import (
	"fmt"
	"iter"
	"slices"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// verify walks the shard and checks its invariants. Tests call it after every step. Under the build
// tag invariants the shard calls it itself. wheelMu is held. Calls of Stop and Reschedule may be
// under way, so verify checks only what holds between any two of their steps. O(slots).
//
//	S1  The pagers' counts and sets agree with their bitmaps, and each pager has at most one empty
//	    page.
//	S2  An entry of a bucket names a slot whose position is that entry, and each position is such an
//	    entry.
//	S3  A bucket's list is well linked, is owned by the bucket and has as many live entries as the
//	    bucket says.
//	S4  due.ready is the number of timers in due.entries and due.buckets. No count of workers is
//	    negative.
//	S5  The alarm goes off no later than the first bucket with timers and the first timer of the
//	    inbox and of the arrivals, unless a driver is on its way.
//	S6  The owner's clock is less than arena.Near ticks ahead of the last aging of due timers.
//
// It also checks the invariants of the wheel (W) and of the inbox (B).
func (s *shard) verify() error {
	if s.closed.Load() {
		return nil
	}
	s.armMu.Lock()
	defer s.armMu.Unlock()
	if err := s.owner.wheel.verify(); err != nil {
		return err
	}
	for _, check := range []func(*shard) error{verifyPages, verifyBuckets, verifyInbox, verifyDue, verifyAlarm, verifyAge} {
		if err := check(s); err != nil {
			return err
		}
	}
	return nil
}

func verifyPages(s *shard) error {
	if err := s.slots.Pager.Verify(); err != nil {
		return fmt.Errorf("S1, slots: %w", err)
	}
	if err := s.owner.store.chunks.pager.Verify(); err != nil {
		return fmt.Errorf("S1, chunks: %w", err)
	}
	return nil
}

// allBuckets iterates over the buckets, wherever they stand.
func allBuckets(o *owner) iter.Seq[*bucket] {
	return func(yield func(*bucket) bool) {
		for _, list := range []iter.Seq[*bucket]{o.wheel.buckets, o.due.all, o.wheel.cascade.all} {
			for b := range list {
				if !yield(b) {
					return
				}
			}
		}
	}
}

func verifyBuckets(s *shard) (err error) {
	o := &s.owner
	entries := 0
	for b := range allBuckets(o) {
		live, last := 0, uint32(0)
		for c := b.head; c != 0; c = o.store.chunks.meta(c).next {
			m := o.store.chunks.meta(c)
			if m.prev != last || m.bucket != b.id || o.store.all[b.id] != b {
				return fmt.Errorf("S3: bucket %d: chunk %d has previous %d and owner %d", b.id, c, m.prev, m.bucket)
			}
			live += m.count()
			last = c
		}
		if last != b.tail || live != b.live {
			return fmt.Errorf("S3: bucket %d ends in %d with %d live entries, not in %d with %d", b.id, last, live, b.tail, b.live)
		}
		entries += live
		o.store.each(b, func(pos, i uint32) {
			w := o.store.word(i)
			if *o.store.pos(i) != pos {
				err = fmt.Errorf("S2: entry %d of bucket %d names slot %d, whose position is %d", pos, b.id, i, *o.store.pos(i))
			}
			if b.state != bucketQueued || w.Kind() != arena.Placed {
				return
			}
			if tick, ok := s.decode(w, o.tick); ok && tick < b.at {
				err = fmt.Errorf("W3: timer of tick %d in a bucket of tick %d", tick, b.at)
			}
		})
		if err != nil {
			return err
		}
	}
	listed := 0
	for p := range s.slots.Pager.Len() {
		if pg := s.slots.Pages.At(uint32(p)); pg != nil {
			for _, pos := range pg.Pos {
				if pos != 0 {
					listed++
				}
			}
		}
	}
	if listed != entries {
		return fmt.Errorf("S2: %d slots have a position, the buckets have %d entries", listed, entries)
	}
	return nil
}

func verifyInbox(s *shard) error {
	seen := make(map[uint32]bool)
	first := s.inbox.first
	for list, slots := range [][]uint32{s.inbox.staged, s.owner.arrivals.slots[s.owner.arrivals.done:]} {
		if list == 1 {
			first = min(s.inbox.first, s.owner.arrivals.first) // one may have been moved to an earlier tick
		}
		for _, i := range slots {
			w := loadWord(&s.slots.Pages, i)
			if k := w.Kind(); seen[i] || k != arena.Staged && k != arena.Ending && k != arena.Ended {
				return fmt.Errorf("B1: slot %d of the inbox has kind %d, or stands there twice", i, k)
			}
			seen[i] = true
			if w.Kind() != arena.Staged {
				continue
			}
			if tick, ok := s.decode(w, s.owner.tick); ok && tick < first {
				return fmt.Errorf("B2: timer of tick %d in the inbox, whose first tick is %d", tick, first)
			}
		}
	}
	if n := int64(len(s.inbox.staged)); s.inbox.sampleAt <= n {
		return fmt.Errorf("B4: %d timers in the inbox, the next sample is at %d", n, s.inbox.sampleAt)
	}
	for p := range s.slots.Pager.Len() {
		pg := s.slots.Pages.At(uint32(p))
		for k := range uint32(arena.PageSize) {
			if pg == nil {
				break
			}
			i := uint32(p)<<arena.PageShift | k
			if kind := pg.Load(i).Kind(); !seen[i] && (kind == arena.Staged || kind == arena.Ending) && !slices.Contains(s.owner.ending, i) {
				return fmt.Errorf("B1: slot %d of kind %d is not in the inbox", i, kind)
			}
		}
	}
	for _, i := range s.inbox.free {
		w := loadWord(&s.slots.Pages, i)
		k := w.Kind()
		pending := k == arena.Staged || k == arena.Placed || k == arena.Running || k == arena.Ending
		if seen[i] || pending || *s.owner.store.pos(i) != 0 || s.slots.Pager.IsFree(int(i>>arena.PageShift), i&arena.PageMask) {
			return fmt.Errorf("B3: free slot %d has kind %d and position %d", i, k, *s.owner.store.pos(i))
		}
		seen[i] = true
	}
	return nil
}

func verifyDue(s *shard) error {
	o := &s.owner
	ready := len(o.due.entries) - o.due.taken
	for b := range o.due.buckets.all {
		ready += b.live
	}
	if ready != o.due.ready {
		return fmt.Errorf("S4: %d timers are due, counted %d", ready, o.due.ready)
	}
	if c := &o.crew; c.coming < 0 || c.running < 0 || c.owed < 0 || c.stuck < 0 || c.serving < c.stuck {
		return fmt.Errorf("S4: counts of workers: %d, %d, %d, %d, %d", c.coming, c.running, c.owed, c.stuck, c.serving)
	}
	return nil
}

func verifyAge(s *shard) error {
	if o := &s.owner; o.tick-o.aged >= arena.Near {
		return fmt.Errorf("S6: the clock is at tick %d, the last aging was at %d", o.tick, o.aged)
	}
	return nil
}

func verifyAlarm(s *shard) error {
	if s.Manual {
		return nil
	}
	at := s.alarm.at.Load()
	for b := range s.owner.wheel.buckets {
		if b.live > 0 && b.key < at {
			return fmt.Errorf("S5: bucket of tick %d, alarm at %d", b.key, at)
		}
	}
	if first := min(s.inbox.first, s.owner.arrivals.first); first < at {
		return fmt.Errorf("S5: a timer of tick %d is not placed, alarm at %d", first, at)
	}
	return nil
}
