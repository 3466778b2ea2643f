package timingwheel

import "github.com/timingwheel-go/timingwheel/internal/arena"

// entry names a due timer by its slot and by the word that the slot had when the timer left its
// bucket. The goroutine whose compare-and-swap replaces exactly this word claims the timer. So an
// entry needs no lock: an earlier Stop, Reschedule or claim has changed the word.
//
// An entry holds the page and not only its index. The page may have been given back, and its
// successor may use the same index and generations, so a stale entry could find an equal word
// there.
type entry struct {
	page  *arena.Page
	word  arena.Word
	index uint32
}

// entryOf returns the entry of a slot that has left its bucket. It returns false if the timer was
// stopped or moved.
func entryOf(pages *arena.Table[arena.Page], i uint32) (entry, bool) {
	pg := pages.At(i >> arena.PageShift)
	if pg == nil {
		return entry{}, false
	}
	w := pg.Load(i)
	return entry{pg, w, i}, w.Kind() == arena.Placed
}

// load returns the word of the entry's slot, and false if another timer uses the slot now.
func (e *entry) load() (arena.Word, bool) {
	w := e.page.Load(e.index)
	return w, w.SameGen(e.word)
}

// placed is like load, but also returns false if the timer is not pending or is in the inbox. The
// deadline of the timer may have changed.
func (e *entry) placed() (arena.Word, bool) {
	w, ok := e.load()
	return w, ok && w.Kind() == arena.Placed
}

// dueList holds the expired timers that wait to be claimed: entries, which go first, and buckets.
// It is a plain data structure.
type dueList struct {
	store       *bucketStore
	entries     []entry // from a worker that ended early or from a Flush; entries[:taken] are taken
	taken       int
	buckets     bucketList
	openBucket  *bucket    // in buckets (Manual: nextAdvance): put adds to it; may be nil
	nextAdvance bucketList // Manual mode: due in the next Advance
	ready       int        // timers in entries and buckets, stopped and moved ones included
	manual      bool       // Manual mode: put adds to nextAdvance
}

// add appends a bucket that has left its slot. Timers that put adds later are claimed after it.
func (d *dueList) add(b *bucket) {
	b.state = bucketDue
	d.buckets.push(b)
	d.openBucket = nil
	d.ready += b.live
}

// put makes a single timer due. tick is the current tick. The timer goes to openBucket, which is
// closed once its first timer is taken or another bucket is added. So a callback that arms itself
// with zero delay is claimed after everything else that is due.
func (d *dueList) put(i uint32, tick int64) {
	b := d.openBucket
	if b == nil {
		b = d.store.newBucket()
		b.at = tick
		if d.manual {
			b.state = bucketNextAdvance
			d.nextAdvance.push(b)
		} else {
			b.state = bucketDue
			d.buckets.push(b)
		}
		d.openBucket = b
	}
	d.store.append(b, i)
	if !d.manual {
		d.ready++
	}
}

// putBack returns entries that were taken and not claimed. They are claimed first.
func (d *dueList) putBack(entries []entry) {
	d.ready += len(entries)
	if n := d.taken - len(entries); n >= 0 && d.taken > 0 { // there is room before the first entry
		copy(d.entries[n:], entries)
		d.taken = n
		return
	}
	d.entries = append(entries[:len(entries):len(entries)], d.entries[d.taken:]...)
	d.taken = 0
}

// takeEntries removes and returns all entries.
func (d *dueList) takeEntries() []entry {
	entries := d.entries[d.taken:]
	d.entries, d.taken = nil, 0
	d.ready -= len(entries)
	return entries
}

// takeEntry removes and returns the first entry. It returns false if there is none.
func (d *dueList) takeEntry() (entry, bool) {
	if d.taken == len(d.entries) {
		return entry{}, false
	}
	e := d.entries[d.taken]
	d.taken++
	d.ready--
	if d.taken == len(d.entries) {
		d.entries, d.taken = nil, 0
	}
	return e, true
}

// takeSlots removes up to max slots from the first bucket with timers and returns their number.
func (d *dueList) takeSlots(to *[chunkSize]uint32, max int) int {
	b := d.first()
	if b == nil {
		return 0
	}
	if b == d.openBucket {
		d.openBucket = nil
	}
	n := d.store.takeChunk(b, to, max)
	d.ready -= n
	return n
}

// first returns the first bucket with timers and frees the empty ones before it.
func (d *dueList) first() *bucket {
	for {
		b := d.buckets.head
		if b == nil || b.live > 0 {
			return b
		}
		d.buckets.pop()
		if b == d.openBucket {
			d.openBucket = nil
		}
		d.store.freeBucket(b)
	}
}

// popBucket removes and returns the first bucket, with or without timers, or nil.
func (d *dueList) popBucket() *bucket {
	b := d.buckets.head
	if b != nil {
		d.buckets.pop()
		d.ready -= b.live
	}
	return b
}

// prune removes the leading entries whose timers were stopped or moved.
func (d *dueList) prune() {
	for d.taken < len(d.entries) && stale(d.entries[d.taken]) {
		d.takeEntry()
	}
}

// pending returns the number of pending timers in the list, including nextAdvance. All removals
// must have been carried out, and the inbox must be empty. O(entries + buckets).
func (d *dueList) pending() (n int) {
	n = d.pendingEntries()
	for b := range d.all {
		n += b.live
	}
	return n
}

// pendingEntries returns the number of pending timers among the entries.
func (d *dueList) pendingEntries() (n int) {
	for _, e := range d.entries[d.taken:] {
		if !stale(e) {
			n++
		}
	}
	return n
}

// waiting reports whether pending would not return 0. O(buckets), and amortised O(1) for the
// entries.
func (d *dueList) waiting() bool {
	if d.prune(); d.taken < len(d.entries) || d.first() != nil {
		return true
	}
	for b := range d.nextAdvance.all {
		if b.live > 0 {
			return true
		}
	}
	return false
}

// stale reports whether an entry can be dropped because its timer was stopped or moved. A moved
// timer is in the inbox or in a bucket again.
func stale(e entry) bool {
	_, placed := e.placed()
	return !placed || e.page.Pos[e.index&arena.PageMask] != 0
}

// all iterates over the buckets.
func (d *dueList) all(yield func(*bucket) bool) {
	for b := range d.buckets.all {
		if !yield(b) {
			return
		}
	}
	d.nextAdvance.all(yield)
}
