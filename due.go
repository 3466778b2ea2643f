package timingwheel

import "github.com/timingwheel-go/timingwheel/internal/arena"

// entry names a timer that is due, as its word was when it left its bucket. The goroutine that
// swaps exactly this word for another one has the timer. So an entry needs no lock: a Stop, a
// Reschedule or another worker that came first has changed the word.
//
// An entry names the page and not only its index. The page may have been given back, and
// generations begin anew in its successor, so a stale entry could meet an equal word there.
type entry struct {
	page  *arena.Page
	word  arena.Word
	index uint32
}

// entryOf returns the entry of a slot that has left its bucket, or false if its timer was stopped
// or moved.
func entryOf(pages *arena.Table[arena.Page], i uint32) (entry, bool) {
	pg := pages.At(i >> arena.PageShift)
	if pg == nil {
		return entry{}, false
	}
	w := pg.Load(i)
	return entry{pg, w, i}, w.Kind() == arena.Placed
}

// load returns the word of the entry's slot. It returns false if the slot belongs to another timer
// by now.
func (e *entry) load() (arena.Word, bool) {
	w := e.page.Load(e.index)
	return w, w.SameGen(e.word)
}

// placed is like load, but also returns false if the timer is not pending or is in the inbox. Its
// deadline may have changed.
func (e *entry) placed() (arena.Word, bool) {
	w, ok := e.load()
	return w, ok && w.Kind() == arena.Placed
}

// dueList holds the timers that have expired and wait to be claimed: single entries, which go
// first, and buckets. It is pure data.
type dueList struct {
	store       *bucketStore
	entries     []entry // from a worker that ended early or a flush; the first taken of them are gone
	taken       int
	buckets     bucketList
	openBucket  *bucket    // the one of buckets (Manual: of nextAdvance) that takes single timers, or nil
	nextAdvance bucketList // Manual mode: due in the next Advance
	ready       int        // timers in entries and buckets, also those stopped or moved meanwhile
	manual      bool       // Manual mode: single timers go to nextAdvance
}

// add makes a bucket due that has left its slot. Single timers that become due later do not go
// before it.
func (d *dueList) add(b *bucket) {
	b.state = bucketDue
	d.buckets.push(b)
	d.openBucket = nil
	d.ready += b.live
}

// put makes a single timer due. tick is the current tick. The bucket that takes the timer is closed
// once its first timer is taken or another bucket is due behind it, so a chain of zero delays
// queues up behind everything else that is due.
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

// putBack makes entries due that were taken and not claimed. They go first.
func (d *dueList) putBack(entries []entry) {
	d.ready += len(entries)
	if n := d.taken - len(entries); n >= 0 && d.taken > 0 { // there is room where they were taken
		copy(d.entries[n:], entries)
		d.taken = n
		return
	}
	d.entries = append(entries[:len(entries):len(entries)], d.entries[d.taken:]...)
	d.taken = 0
}

// takeEntries takes all entries.
func (d *dueList) takeEntries() []entry {
	entries := d.entries[d.taken:]
	d.entries, d.taken = nil, 0
	d.ready -= len(entries)
	return entries
}

// takeEntry takes the first entry.
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

// takeSlots takes up to max slots off the first bucket with timers.
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

// popBucket takes the first bucket, with or without timers, out of the list.
func (d *dueList) popBucket() *bucket {
	b := d.buckets.head
	if b != nil {
		d.buckets.pop()
		d.ready -= b.live
	}
	return b
}

// prune drops the leading entries whose timers were stopped or moved.
func (d *dueList) prune() {
	for d.taken < len(d.entries) && stale(d.entries[d.taken]) {
		d.takeEntry()
	}
}

// pending returns how many timers are in the list, those of nextAdvance included. The removals are
// carried out and the inbox is empty. O(entries + buckets).
func (d *dueList) pending() (n int) {
	for _, e := range d.entries[d.taken:] {
		if !stale(e) {
			n++
		}
	}
	for b := range d.all {
		n += b.live
	}
	return n
}

// waiting reports whether pending is not 0. O(buckets), and amortised O(1) for the entries.
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

// stale reports whether an entry of the list can be forgotten: its timer was stopped, or moved to
// the inbox and perhaps back to a bucket.
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
