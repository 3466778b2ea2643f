package timingwheel

import (
	"cmp"
	"slices"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// quantum is the number of timers that a driver or worker handles before it releases wheelMu. At 20
// to 60 ns each it holds the lock for about 10 µs.
const quantum = 256

// owner is the state that belongs to the goroutine that holds wheelMu. Its methods place the timers
// that have arrived, remove stopped ones, and move expired ones to finer levels or make them due.
// They take no lock of the shard and run no callback.
type owner struct {
	*config
	arrivals arrivals
	store    bucketStore
	wheel    wheel
	due      dueList
	pool     workerPool
	counters counters
	order    *armOrder // Manual mode; else nil

	tick   int64 // the owner's clock, ahead of shard.now during an Advance
	behind bool  // the last advance left arrivals, removals or expired buckets for later

	takenRemovals uint64   // link to the removals that are off the stack and not carried out yet
	freed         []uint32 // slots without references; reclaim frees them
	ending        []uint32 // arrivals whose Stop is about to end them; reclaim stages them again

	// scratch is memory for one quantum. On the stack of a worker it would make the stack grow.
	scratch struct {
		slots [chunkSize]uint32
		words [chunkSize]arena.Word
		due   []uint32 // Manual mode
	}

	_ [64]byte // separates these cache lines from the next object
}

// counters are the counters of a shard.
type counters struct {
	fired, stopped, postponed, cascaded uint64
	taken                               uint64 // timers that workers have taken to claim them
	mostDue                             int
	discarded, flushed                  uint64
	lateness                            Histogram
	unsampled                           int // claims since the last one with measured lateness
}

// sampleEvery is the number of claims for each claim whose lateness is measured. Reading the clock
// costs as much as the rest of a claim.
const sampleEvery = 16

// sample reports whether the lateness of one of the next n claims is to be measured.
func (c *counters) sample(n int) bool {
	first := c.unsampled == 0
	c.unsampled += n
	if !first && c.unsampled <= sampleEvery {
		return false
	}
	c.unsampled = n
	return true
}

// pending returns the number of pending timers: the armed ones less those that were stopped or have
// run. The claims of all batches must be counted.
func (c *counters) pending(armed, stopped uint64) int {
	return int(armed - stopped - c.stopped - c.fired)
}

// placeArrivals places the next n arrivals.
func (o *owner) placeArrivals(n int) {
	a := &o.arrivals
	n = min(n, len(a.slots)-a.done)
	part := a.slots[a.done : a.done+n]
	words := o.loadWords(part)
	freed := len(o.freed)
	for k, i := range part {
		w := words[k]
		if w.Kind() == arena.Staged && o.placeArrival(i, w) {
			continue
		}
		switch o.placeChanged(i).Kind() {
		case arena.Ending:
			o.ending = append(o.ending, i)
		case arena.Ended:
			o.freed = append(o.freed, i)
		}
	}
	o.counters.stopped += uint64(len(o.freed) - freed)
	a.done += n
	if a.empty() {
		a.first = never
		if cap(a.slots) > 4*quantum {
			a.slots, a.done = nil, 0
		}
	}
}

// loadWords returns the words of up to chunkSize slots. The result is valid until the next call.
// The loop does nothing else, so that the cache misses overlap.
func (o *owner) loadWords(slots []uint32) []arena.Word {
	words := o.scratch.words[:len(slots)]
	for k, i := range slots {
		words[k] = loadWord(o.store.slots, i)
	}
	return words
}

// placeChanged places an arrival whose word has changed since the owner read it, unless the timer
// was stopped. It returns the word that it found at last.
func (o *owner) placeChanged(i uint32) arena.Word {
	for {
		w := loadWord(o.store.slots, i)
		if w.Kind() == arena.Ended && w.Has(arena.Moved) {
			o.leaveBucket(i)
		}
		if w.Kind() != arena.Staged || o.placeArrival(i, w) {
			return w
		}
	}
}

// placeArrival places the timer of slot i, whose word is w. It returns false if the word has
// changed.
func (o *owner) placeArrival(i uint32, w arena.Word) bool {
	pg := o.store.slots.At(i >> arena.PageShift)
	if pg == nil || !pg.Swap(i, w, w.With(arena.Placed)&^arena.Moved) {
		return false
	}
	if w.Has(arena.Moved) {
		o.leaveBucket(i)
	}
	o.put(i, w.Tick())
	return true
}

// put adds a placed timer to the due list if its tick has come, and to the wheel otherwise.
func (o *owner) put(i uint32, tick int64) {
	if tick <= o.tick {
		o.due.put(i, o.tick)
		return
	}
	o.wheel.place(i, tick)
}

// leaveBucket removes a slot from its bucket, if it is in one.
func (o *owner) leaveBucket(i uint32) {
	pos := o.store.pos(i)
	if *pos == 0 {
		return
	}
	b := o.store.remove(*pos)
	*pos = 0
	o.timerRemoved(b)
}

// timerRemoved counts a timer that was removed from bucket b before its bucket was emptied.
func (o *owner) timerRemoved(b *bucket) {
	switch b.state {
	case bucketDue:
		o.due.ready--
	case bucketQueued:
		o.wheel.timerRemoved(b)
	}
}

// remove carries out up to removalsMax of takenRemovals. It reads all positions before the first
// chunk, so that the cache misses overlap.
func (o *owner) remove() {
	listed := o.scratch.slots[:0]
	for n := 0; o.takenRemovals != 0 && n < removalsMax; n++ {
		i := uint32(o.takenRemovals - 1)
		w := loadWord(o.store.slots, i)
		o.takenRemovals = w.Bits()
		o.freed = append(o.freed, i)
		o.counters.stopped++
		if pos := o.store.pos(i); *pos != 0 {
			listed = append(listed, *pos)
			*pos = 0
		}
	}
	for _, pos := range listed {
		o.timerRemoved(o.store.remove(pos))
	}
}

// expire takes up to a quantum of expired buckets off the wheel. It reports whether no expired
// bucket is left. With the default executor, a bucket of the finest level is due as a whole, and
// workers take timers from it. All other buckets cascade.
func (o *owner) expire() bool {
	for range quantum {
		b := o.wheel.pop(o.tick)
		switch {
		case b == nil:
			return true
		case b.level == 0 && o.pooled:
			o.due.add(b)
		default:
			o.wheel.cascade.push(b)
		}
	}
	return false
}

// cascadeQuantum moves a quantum of the timers of cascading buckets to finer levels or makes them
// due.
func (o *owner) cascadeQuantum() {
	for steps := 0; steps < quantum; {
		b := o.wheel.cascade.next()
		if b == nil {
			return
		}
		if b.live == 0 {
			o.wheel.cascade.remove(b)
			o.store.freeBucket(b)
			steps++
			continue
		}
		n := o.store.takeChunk(b, &o.scratch.slots, chunkSize)
		o.relocate(o.scratch.slots[:n], b)
		steps += n
	}
}

// relocate places timers that have left bucket b, or makes them due. It skips timers that were
// stopped or moved to an earlier deadline, which are in the removals or in the inbox.
func (o *owner) relocate(slots []uint32, b *bucket) {
	words := o.loadWords(slots)
	for k, i := range slots {
		if words[k].Kind() != arena.Placed {
			continue
		}
		tick := words[k].Tick()
		if b.level > 0 {
			o.counters.cascaded++
		}
		if !o.wheel.belongs(b, tick) {
			o.counters.postponed++
		}
		o.put(i, tick)
	}
}

// makeDueNow sets the deadline of a flushed timer to the current tick, unless the deadline has
// passed, and returns the timer's entry. The claim of the entry then fails after a Reschedule, even
// after one to the old deadline. makeDueNow returns false if the timer was stopped or moved. It
// also flushes a timer that was postponed after a worker had taken it.
func (o *owner) makeDueNow(i uint32) (entry, bool) {
	now := o.tick
	for {
		e, ok := entryOf(o.store.slots, i)
		if !ok || e.word.Tick() <= now {
			return e, ok
		}
		to := e.word.WithBits(uint64(now))
		if e.page.Swap(i, e.word, to) {
			e.word = to
			return e, true
		}
	}
}

// takeEach removes all timers that no worker has taken, and calls yield with their slots. Some of
// the timers may have been stopped or moved. The order is: due entries, due buckets, cascading
// buckets, and queued buckets by expiration.
func (o *owner) takeEach(yield func(i uint32)) {
	for _, e := range o.due.takeEntries() {
		if !stale(e) {
			yield(e.index)
		}
	}
	next := func() *bucket {
		if b := o.due.popBucket(); b != nil {
			return b
		}
		if o.due.nextAdvance.head != nil {
			return o.due.nextAdvance.pop()
		}
		if b := o.wheel.cascade.next(); b != nil {
			o.wheel.cascade.remove(b)
			return b
		}
		return o.wheel.popAny()
	}
	for b := next(); b != nil; b = next() {
		for b.live > 0 {
			for _, i := range o.scratch.slots[:o.store.takeChunk(b, &o.scratch.slots, chunkSize)] {
				yield(i)
			}
		}
		o.store.freeBucket(b)
	}
	o.due.openBucket = nil
}

// dueTick returns the tick of the first due timers, or never.
func (o *owner) dueTick() int64 {
	d := &o.due
	if d.taken < len(d.entries) {
		return d.entries[d.taken].word.Tick()
	}
	if b := d.first(); b != nil {
		return b.at
	}
	return never
}

// dueBefore reports whether a timer is due and, in Manual mode, was due before the tick.
func (o *owner) dueBefore(tick int64) bool {
	if !o.Manual {
		return o.due.ready > 0
	}
	return o.dueTick() < tick
}

// sort sorts entries by tick, and those of one tick by the order of arming.
func (o *owner) sort(entries []entry) {
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.word.Tick(), b.word.Tick()), o.order.compare(a.index, b.index))
	})
}

// gather makes those timers of bucket b due whose tick has come, in the order of arming. It places
// the others on the wheel again.
func (o *owner) gather(b *bucket, tick int64) {
	due := o.scratch.due[:0]
	for b.live > 0 {
		for _, i := range o.scratch.slots[:o.store.takeChunk(b, &o.scratch.slots, chunkSize)] {
			w := loadWord(o.store.slots, i)
			at := w.Tick()
			switch {
			case w.Kind() != arena.Placed: // stopped, or moved to the inbox
			case at <= tick && b.level == 0:
				due = append(due, i)
			default:
				o.wheel.place(i, at)
				if b.level > 0 {
					o.counters.cascaded++
				}
			}
		}
	}
	if cap(due) <= quantum {
		o.scratch.due = due
	}
	if len(due) == 0 {
		o.store.freeBucket(b)
		return
	}
	if !slices.IsSortedFunc(due, o.order.compare) {
		slices.SortFunc(due, o.order.compare)
	}
	for _, i := range due {
		o.store.append(b, i)
	}
	o.due.add(b)
}

// fill appends due timers to b until len(b) is most or fill has examined a quantum of timers. It
// also returns the number of examined timers. A postponed timer goes back to the wheel. For limit
// see dueBefore.
func (o *owner) fill(b []entry, most int, limit int64) (filled []entry, examined int) {
	for ; len(b) < most && examined < quantum && o.dueBefore(limit); examined++ {
		e, ok := o.due.takeEntry()
		if !ok {
			break
		}
		if !stale(e) {
			b = append(b, e)
		}
	}
	for len(b) < most && examined < quantum && o.dueBefore(limit) {
		n := o.due.takeSlots(&o.scratch.slots, min(most-len(b), chunkSize))
		if n == 0 {
			break
		}
		examined += n
		slots := o.scratch.slots[:n]
		words := o.loadWords(slots)
		for k, i := range slots {
			tick := words[k].Tick()
			switch {
			case words[k].Kind() != arena.Placed: // stopped, or moved to the inbox
			case tick > o.tick && !o.Manual: // in Manual mode the timer would be in the inbox
				o.counters.postponed++
				o.wheel.place(i, tick)
			default:
				b = append(b, entry{o.store.slots.At(i >> arena.PageShift), words[k], i})
			}
		}
	}
	return b, examined
}

// noteClaim counts a claim under the lock. now is a reading of the clock, or negative if the
// lateness is not measured.
func (o *owner) noteClaim(e *entry, tick, now int64) {
	if now >= 0 {
		o.counters.lateness.Record(time.Duration(now - o.ticks.Begin(tick)))
	}
	o.counters.fired++
	o.freed = append(o.freed, e.index)
}

// countBatch counts those claims of a batch that are not counted yet.
func (o *owner) countBatch(b *batch) {
	for k := range b.entries {
		if b.counted>>k&1 == 1 {
			continue
		}
		if w, ok := b.entries[k].load(); ok && w.Kind() == arena.Spent && w.Bits() == b.id {
			b.counted |= 1 << k
			o.counters.fired++
		}
	}
}

// backlog reports whether work is left that may make timers due: cascading buckets, or work that
// the last advance left for later.
func (o *owner) backlog() bool { return o.behind || o.wheel.cascade.any() }

// batchesDue returns the number of due batches for which the executor has no queued call.
func (o *owner) batchesDue() int {
	return (o.due.ready+o.perCall-1)/o.perCall - o.pool.queuedCalls
}

// uncovered returns the number of due timers for which the executor has no queued call.
func (o *owner) uncovered() int { return max(0, o.due.ready-o.pool.queuedCalls*o.perCall) }

// workersToStart returns the number of workers to start in addition to a spare, so that each
// processor has an active worker and each worker finds a batch. Spares alone would form one chain
// and keep only one processor busy.
func (o *owner) workersToStart() int {
	pool := &o.pool
	batches := o.batchesDue()
	if o.perCall == 1 {
		batches = (batches + pool.size - 1) / pool.size
	}
	return max(0, min(batches-1, o.procs-pool.active()-pool.starting))
}
