package timingwheel

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"slices"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/heap"
)

// verify walks the shard and returns an error if an invariant of the shard (S), of the wheel (W) or
// of the inbox (B) does not hold. owner.mu is held. Stop and Reschedule may run concurrently, so
// verify checks only what holds between any two of their steps. O(records).
func (s *shard) verify() error {
	if s.closed.Load() {
		return nil
	}
	s.inbox.mu.Lock()
	defer s.inbox.mu.Unlock()
	o := &s.owner
	records := verifySlab(&s.inbox.records, "records", func(pg *arena.Page, k uint32) bool { return pg.Load(k).Exhausted() })
	chunks := verifySlab(&o.store.chunks, "chunks", func(*chunkPage, uint32) bool { return false })
	if err := cmp.Or(o.wheel.verify(), records, chunks); err != nil {
		return err
	}
	for _, check := range []func(*shard) error{verifyBuckets, verifyInbox, verifyDue, verifyAlarm} {
		if err := check(s); err != nil {
			return err
		}
	}
	return nil
}

// verifySlab checks S1: each item of an open page is used or free, except those that may be
// retired, and at most one open page is empty.
func verifySlab[P any](s *arena.Slab[P], what string, mayBeRetired func(pg *P, item uint32) bool) error {
	size, empty := 1<<s.Shift, 0
	for page, pg := range s.Pages.All {
		used, free, retired := s.Used(int(page)), 0, 0
		for k := range uint32(size) {
			switch {
			case s.IsFree(int(page), k):
				free++
			case mayBeRetired(pg, k):
				retired++
			}
		}
		if used < 0 || used+free > size || used+free+retired < size {
			return fmt.Errorf("S1, %s: page %d of %d: %d used, %d free, %d retired", what, page, size, used, free, retired)
		}
		if used == 0 {
			empty++
		}
	}
	if empty > 1 {
		return fmt.Errorf("S1, %s: %d pages are empty", what, empty)
	}
	return nil
}

// allBuckets iterates over the buckets of the wheel and of the cascade.
func allBuckets(o *owner) iter.Seq[*bucket] {
	return func(yield func(*bucket) bool) {
		for _, list := range []iter.Seq[*bucket]{o.wheel.buckets, slices.Values(o.wheel.cascade.all())} {
			for b := range list {
				if !yield(b) {
					return
				}
			}
		}
	}
}

// buckets iterates over the queued buckets in no particular order.
func (w *wheel) buckets(yield func(*bucket) bool) {
	for i := range w.queue.Len() {
		if !yield(w.queue.At(i)) {
			return
		}
	}
}

// each calls yield for every entry of b, in order.
func (bs *bucketStore) each(b *bucket, yield func(pos, i uint32)) {
	for c := b.head; c != 0; c = bs.meta(c).next {
		m, entries := bs.chunk(c)
		for alive := m.alive; alive != 0; alive &= alive - 1 {
			off := uint32(bits.TrailingZeros32(alive))
			yield(c<<chunkShift|off, entries[off])
		}
	}
}

func verifyBuckets(s *shard) (err error) {
	o := &s.owner
	entries := 0
	for b := range allBuckets(o) {
		live, last := 0, uint32(0)
		for c := b.head; c != 0; c = o.store.meta(c).next {
			m := o.store.meta(c)
			if m.prev != last || m.bucket != b.id || o.store.all[b.id] != b {
				return fmt.Errorf("S3: bucket %d: chunk %d has previous %d and owner %d", b.id, c, m.prev, m.bucket)
			}
			live += bits.OnesCount32(m.alive)
			last = c
		}
		if last != b.tail || live != b.live {
			return fmt.Errorf("S3: bucket %d ends in %d with %d live entries, not in %d with %d", b.id, last, live, b.tail, b.live)
		}
		entries += live
		o.store.each(b, func(pos, i uint32) {
			w := loadWord(o.store.records, i)
			if *o.store.pos(i) != pos {
				err = fmt.Errorf("S2: entry %d of bucket %d names record %d, whose position is %d", pos, b.id, i, *o.store.pos(i))
			}
			if b.state != bucketQueued || w.Kind() != arena.Placed {
				return
			}
			if w.Tick() < b.at {
				err = fmt.Errorf("W3: timer of tick %d in a bucket of tick %d", w.Tick(), b.at)
			}
		})
		if err != nil {
			return err
		}
	}
	listed := 0
	for _, pg := range s.inbox.records.Pages.All {
		for _, pos := range pg.Pos {
			if pos != 0 {
				listed++
			}
		}
	}
	if listed != entries {
		return fmt.Errorf("S2: %d records have a position, the buckets have %d entries", listed, entries)
	}
	return nil
}

func verifyInbox(s *shard) error {
	seen := make([]bool, s.inbox.records.Len()<<arena.PageShift)
	first := s.inbox.first
	for list, records := range [][]uint32{s.inbox.staged, s.owner.arrivals.records[s.owner.arrivals.done:]} {
		if list == 1 {
			// An arrival may have been moved to an earlier tick.
			first = min(s.inbox.first, s.owner.arrivals.first)
		}
		for _, i := range records {
			w := loadWord(&s.inbox.records.Pages, i)
			if k := w.Kind(); seen[i] || k != arena.Staged && k != arena.Ending && k != arena.Ended {
				return fmt.Errorf("B1: record %d of the inbox has kind %d or is there twice", i, k)
			}
			seen[i] = true
			if w.Kind() != arena.Staged {
				continue
			}
			if w.Tick() < first {
				return fmt.Errorf("B2: timer of tick %d in the inbox, whose first tick is %d", w.Tick(), first)
			}
		}
	}
	for p, pg := range s.inbox.records.Pages.All {
		if own := s.pages.At(p); own == nil || own.ref.page.Load() != pg || own.ref.shard != s {
			return fmt.Errorf("S1: page %d has no payloads or another reference", p)
		}
		for k := range uint32(arena.PageSize) {
			i := p<<arena.PageShift | k
			if kind := pg.Load(i).Kind(); (kind == arena.Staged || kind == arena.Ending) && !seen[i] {
				return fmt.Errorf("B1: record %d of kind %d is not in the inbox", i, kind)
			}
		}
	}
	for _, i := range s.inbox.free {
		w := loadWord(&s.inbox.records.Pages, i)
		k := w.Kind()
		pending := k == arena.Staged || k == arena.Placed || k == arena.Ending || k == arena.Flushed
		if seen[i] || pending || *s.owner.store.pos(i) != 0 || s.inbox.records.IsFree(int(i>>arena.PageShift), i&arena.PageMask) {
			return fmt.Errorf("B3: free record %d has kind %d and position %d", i, k, *s.owner.store.pos(i))
		}
		seen[i] = true
	}
	return nil
}

// verifyDue checks S4 and the number of flushed timers.
func verifyDue(s *shard) error {
	o := &s.owner
	if begun := s.claimed.flushBegun.Load(); begun > o.counters.flushed {
		return fmt.Errorf("flushed: %d timers, and %d have begun", o.counters.flushed, begun)
	}
	if len(o.expired) > 0 && s.alarm.at.Load() > o.tick {
		return fmt.Errorf("S4: %d timers are due at tick %d and not queued, alarm at %d", len(o.expired), o.tick, s.alarm.at.Load())
	}
	return nil
}

func verifyAlarm(s *shard) error {
	at := s.alarm.at.Load()
	for b := range s.owner.wheel.buckets {
		if b.key < at {
			return fmt.Errorf("S5: bucket of tick %d, alarm at %d", b.key, at)
		}
	}
	if first := min(s.inbox.first, s.owner.arrivals.first); first < at {
		return fmt.Errorf("S5: a timer of tick %d is not placed, alarm at %d", first, at)
	}
	return nil
}

// verify checks W1, W2, W4 and W5. W3 depends on the words of the timers, so the shard checks it.
func (w *wheel) verify() error {
	if err := verifyHeap(&w.queue, func(b *bucket) int { return int(b.heapIndex) }); err != nil {
		return fmt.Errorf("W1: %w", err)
	}
	slots, live := 0, 0
	for l, lv := range w.levels {
		for k, b := range lv {
			if b == nil {
				continue
			}
			slots++
			live += b.live
			v := b.at >> (uint(l) * w.bits)
			if int(b.level) != l || int(b.slot) != k || v&(w.size-1) != int64(k) || v<<(uint(l)*w.bits) != b.at {
				return fmt.Errorf("W1: bucket of tick %d, level %d, slot %d is in level %d, slot %d", b.at, b.level, b.slot, l, k)
			}
			if b.live == 0 {
				return fmt.Errorf("W4: bucket of tick %d is empty", b.at)
			}
			if b.state != bucketQueued || b.key > b.at || b.key < w.cur {
				return fmt.Errorf("W2: bucket of tick %d (key %d) in state %d at clock %d", b.at, b.key, b.state, w.cur)
			}
		}
	}
	if slots != w.queue.Len() {
		return fmt.Errorf("W1: %d buckets in slots, %d queued", slots, w.queue.Len())
	}
	if live != w.live {
		return fmt.Errorf("W4: %d entries, counted %d", live, w.live)
	}
	return w.cascade.verify()
}

func (c *cascade) verify() error {
	for k, b := range c.all() {
		switch fine := k < len(c.fine); {
		case b.state != bucketCascading:
			return fmt.Errorf("W5: a bucket of the cascade is in state %d", b.state)
		case fine != (b.level == 0):
			return fmt.Errorf("W5: a bucket of level %d is in the list of others", b.level)
		}
	}
	if !slices.IsSortedFunc(c.coarse, func(a, b *bucket) int { return int(a.level - b.level) }) {
		return errors.New("W5: the coarse buckets are not in the order of their levels")
	}
	return nil
}

// verifyHeap checks the order of a heap, and that indexOf returns the index of each element.
func verifyHeap[E heap.Item[E]](h *heap.Heap[E], indexOf func(E) int) error {
	for i := range h.Len() {
		e := h.At(i)
		if parent := (i - 1) / 2; i > 0 && e.Before(h.At(parent)) {
			return fmt.Errorf("H1: item %d is before its parent %d", i, parent)
		}
		if got := indexOf(e); got != i {
			return fmt.Errorf("H2: item %d has the index %d", i, got)
		}
	}
	return nil
}
