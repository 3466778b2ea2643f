package timingwheel

import (
	"slices"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// entry names a timer that is due, as its word was when it left its bucket. The goroutine that
// swaps exactly this word for another one has the timer. So an entry needs no lock: a Stop, a
// Reschedule or another worker that came first has changed the word.
//
// An entry names the page and not only its index. A stale entry must not meet the page's successor,
// whose generations have another base.
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

// batch is the due timers that a worker claims one after the other, each right before its callback.
// Until then they are pending. If the callback blocks, the worker's spare goes on with the same
// batch.
//
// The entries are not written while a worker reads them without a lock, nor is id, which changes
// when the batch is filled again. All other fields belong to the owner.
type batch struct {
	entries  []entry
	id       uint64 // of this filling, never 0: a Spent word says by which batch its timer was claimed
	counted  uint32 // bit k: the claim of entry k is counted
	users    int    // workers that may read entries
	listed   bool   // it is in crew.batches
	returned bool   // a callback has called Goexit, and the unclaimed entries are due again
}

// unclaimed returns how many timers of the batch are pending and stand nowhere else. One that was
// postponed counts until a worker has tried to claim it.
func (b *batch) unclaimed() (n int) {
	if b.returned {
		return 0
	}
	for k := range b.entries {
		if !stale(b.entries[k]) {
			n++
		}
	}
	return n
}

// open reports whether a timer of the batch may still be claimed with it. A timer that was moved to
// the inbox, or a plan during a run, may get the same word again that its entry has.
func (b *batch) open() bool {
	for k := range b.entries {
		if w, ok := b.entries[k].load(); ok {
			switch w.Kind() {
			case arena.Placed, arena.Staged, arena.Running:
				return true
			}
		}
	}
	return false
}

// revoke makes every further claim of the batch fail.
func (b *batch) revoke() {
	for k := range b.entries {
		e := &b.entries[k]
		for {
			if w, placed := e.placed(); !placed || e.page.Swap(e.index, w, w.With(arena.Dead)) {
				break
			}
		}
	}
}

// dueList holds the timers that have expired and wait to be claimed: single entries, which go
// first, and buckets. It is pure data.
type dueList struct {
	store    *bucketStore
	entries  []entry // from a worker that ended early or a flush; the first taken of them are gone
	taken    int
	buckets  bucketList
	prompt   *bucket    // the one of buckets (Manual: of fresh) that takes single timers, or nil
	fresh    bucketList // Manual mode: due in the next Advance
	ready    int        // timers in entries and buckets, also those stopped or moved meanwhile
	deferred bool       // Manual mode: single timers go to fresh
}

// add makes a bucket due that has left its slot.
func (d *dueList) add(b *bucket) {
	b.state = bucketDue
	d.buckets.push(b)
	d.ready += b.live
}

// put makes a single timer due. tick is the current tick. The bucket that takes the timer is closed
// once its first timer is taken, so a chain of zero delays queues up behind everything else that is
// due.
func (d *dueList) put(i uint32, tick int64) {
	b := d.prompt
	if b == nil {
		b = d.store.newBucket()
		b.at = tick
		if d.deferred {
			b.state = bucketFresh
			d.fresh.push(b)
		} else {
			b.state = bucketDue
			d.buckets.push(b)
		}
		d.prompt = b
	}
	d.store.append(b, i)
	if !d.deferred {
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
	if b == d.prompt {
		d.prompt = nil
	}
	n := d.store.drain(b, to, max)
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
		if b == d.prompt {
			d.prompt = nil
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

// pending returns how many timers are in the list, those of fresh included. The removals are
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
	for b := range d.fresh.all {
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
	d.fresh.all(yield)
}

const (
	batchSize = 32 // callbacks of one batch

	// crowdMin workers are started together when a spare comes late. Each further late spare starts
	// crowdGrowth times as many, up to crowdMax.
	crowdMin    = 64
	crowdGrowth = 8
	crowdMax    = 4096
)

// crew is the workers of a shard and what they are doing. It is pure data; the owner uses it.
//
// Whenever a worker runs a callback although more is due, a spare of its own is about to begin,
// unless its spare has begun before and goes on in its place, or enough other workers are on their
// way. The worker starts the spare last
// before the callback, so the scheduler runs the spare as soon as the callback blocks. The spare
// goes on with the worker's batch, and has a spare of its own. So no callback waits for another one
// that blocks, and only callbacks that do block cost a goroutine.
type crew struct {
	coming  int  // workers that were started and have not begun
	begun   uint // workers that have begun so far
	serving int  // workers of the default executor that have begun
	stuck   int  // of serving: in a callback while others, mostly spares, go on in their place
	running int  // callbacks, or batches of payloads, that have started and not returned
	handing int  // calls of the executor under way
	owed    int  // calls handed to the executor that have not begun
	driving bool // a driver with an executor is at work; it sets the alarm at its end

	size  int // timers that the next batch takes: 1 if callbacks have blocked
	crowd int // workers that the next late spare starts

	launches uint64 // claims under the lock of one callback or one batch of payloads, to be run

	filled     uint64        // batches so far
	batches    []*batch      // with entries that may not be claimed yet
	spareBatch *batch        // for the next worker
	idle       chan struct{} // closed once nothing runs; made by Shutdown
}

func (c *crew) init(size int) { c.size, c.crowd = size, crowdMin }

// crowded reports whether there are more workers on the move than processors.
func (c *crew) crowded(procs int) bool { return c.serving-c.stuck > procs }

// busy reports whether something runs that Shutdown waits for.
func (c *crew) busy() bool { return c.running > 0 || c.handing > 0 }

// hasUnclaimed reports whether a worker has timers that it may not have claimed yet.
func (c *crew) hasUnclaimed() bool {
	for _, b := range c.batches {
		if b.unclaimed() > 0 {
			return true
		}
	}
	return false
}

// ran notes that callbacks have run. begun is c.begun from before them. Batches grow while
// callbacks are so quick that no worker begins meanwhile.
func (c *crew) ran(begun uint) {
	if c.begun == begun {
		c.size = min(2*c.size, batchSize)
	}
}

// list notes a batch that is about to be claimed.
func (c *crew) list(b *batch) {
	c.filled++
	b.id, b.listed, b.returned, b.counted = c.filled, true, false, 0
	c.batches = append(c.batches, b)
}

// unlist takes out a batch whose entries have all been tried.
func (c *crew) unlist(b *batch) {
	if k := slices.Index(c.batches, b); k >= 0 {
		c.batches = slices.Delete(c.batches, k, k+1)
	}
	b.listed = false
}

// newBatch returns an empty batch.
func (c *crew) newBatch() *batch {
	b := c.spareBatch
	if c.spareBatch = nil; b == nil {
		b = &batch{entries: make([]entry, 0, batchSize)}
	}
	b.users = 1
	return b
}

// drop notes that a worker does not read b any more.
func (c *crew) drop(b *batch) {
	if b.users--; b.users == 0 {
		clear(b.entries)
		b.entries = b.entries[:0]
		c.spareBatch = b
	}
}

// idleChan returns a channel that is closed once nothing is running, or nil if nothing is running
// now.
func (c *crew) idleChan() <-chan struct{} {
	if !c.busy() {
		return nil
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	return c.idle
}

// closeIdle closes the channel of Shutdown if nothing is running any more.
func (c *crew) closeIdle() {
	if c.idle != nil && !c.busy() {
		close(c.idle)
		c.idle = nil
	}
}
