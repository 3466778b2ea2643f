package timingwheel

import (
	"slices"

	"github.com/timingwheel-go/timingwheel/internal/heap"
)

// wheel is the levels and the queue of their buckets. Its clock moves when a bucket is taken.
//
// Invariants, whenever no method is running:
//
//	W1  A bucket in a slot is queued and expires at the start of an interval of that slot.
//	W2  No queued bucket has a key before the clock.
//	W3  No timer has a tick before its bucket's expiration, except a timer that was moved to an
//	    earlier deadline. Such a timer is in the inbox as well.
//	W4  A queued bucket has entries, and live is the number of entries of all queued buckets.
//	W5  cascade.fine has buckets of level 0, and cascade.coarse buckets of other levels, in the order of
//	    their levels.
type wheel struct {
	geometry
	store   *bucketStore
	levels  [][]*bucket // the slots of each level, made when it is first needed
	queue   heap.Heap[*bucket]
	live    int
	cascade cascade
	cur     int64 // the clock in ticks: every bucket with an earlier key has been taken
}

const maxLevels = 16

// geometry is the shape of a wheel.
type geometry struct {
	size int64 // slots of each level, a power of two
	bits uint  // log2(size)
	last int   // index of the last level

	// Cascading cascadeTimers timers takes at most cascadeTicks ticks. 0: no bucket begins early.
	cascadeTicks, cascadeTimers int64
}

func (w *wheel) init(g geometry, store *bucketStore, tick int64) {
	w.geometry, w.store, w.cur = g, store, tick
	w.levels = make([][]*bucket, g.last+1)
}

// place adds a timer to the bucket that the clock reaches at the timer's tick or, on a coarser
// level, at the start of the interval that contains the tick. A tick before the clock is treated as
// the clock's tick.
//
// Level l divides time into intervals of size^l ticks. It has slots for size intervals, beginning
// with the current one. The timer goes to the first level that has a slot for its interval. The
// last level takes all other timers, so a slot there holds timers of several rounds.
func (w *wheel) place(i uint32, tick int64) {
	tick = max(tick, w.cur)
	l, shift, width := 0, uint(0), w.bits&63 // &63: the compiler needs no check of the shift
	for l < w.last && tick>>(shift&63)-w.cur>>(shift&63) >= w.size {
		l++
		shift += width
	}
	shift &= 63
	if w.levels[l] == nil {
		w.levels[l] = make([]*bucket, w.size)
	}
	v := tick >> shift
	slot := v & (w.size - 1)
	b := w.levels[l][slot]
	switch at := v << shift; {
	case b == nil:
		b = w.open(l, uint32(slot), at)
	case at < b.at: // on the last level, for a timer of an earlier round
		b.at, b.key = at, at
		w.queue.Fix(int(b.heapIndex))
	}
	w.store.append(b, i)
	w.live++
	if l > 0 && b.live >= earlyMin && (b.key == b.at || b.live&(b.live-1) == 0) {
		w.beginEarly(b)
	}
}

// belongs reports whether a timer with the given tick belongs in bucket b, which has left its slot.
// It returns false if the timer was postponed.
func (w *wheel) belongs(b *bucket, tick int64) bool {
	shift := uint(b.level) * w.bits & 63
	ahead := tick>>shift - b.at>>shift
	return ahead == 0 || int(b.level) == w.last && ahead&(w.size-1) == 0
}

// earlyMin is the number of timers from which on a bucket begins to cascade early. The time for
// fewer timers is negligible.
const earlyMin = 1024

// beginEarly makes the driver begin to cascade a large coarse bucket before it expires, so that the
// first timers of its interval do not wait for the others. A timer for which the finer level has no
// slot yet goes back to its slot. It is due in the last part of the interval. So that it does not
// cascade early repeatedly, beginEarly does nothing in the last quarter before the expiration.
func (w *wheel) beginEarly(b *bucket) {
	quarter := int64(1) << (uint(b.level) * w.bits & 63) / 4
	if w.cascadeTicks == 0 || w.cur >= b.at-quarter {
		return
	}
	if key := b.at - min(int64(b.live)*w.cascadeTicks/w.cascadeTimers, quarter); key < b.key {
		b.key = key
		w.queue.Fix(int(b.heapIndex))
	}
}

func (w *wheel) open(l int, slot uint32, at int64) *bucket {
	b := w.store.newBucket()
	b.at, b.key, b.level, b.slot = at, at, int32(l), slot
	w.levels[l][slot] = b
	w.queue.Push(b)
	return b
}

// catchUp advances the clock of an idle wheel to a tick, but never past a bucket with timers. With
// a clock that lags behind, place would choose a coarse bucket for a short timer.
func (w *wheel) catchUp(tick int64) {
	if tick <= w.cur {
		return
	}
	w.cur = max(w.cur, min(tick, w.first()))
}

// first returns the key of the first bucket, or never.
func (w *wheel) first() int64 {
	if b, ok := w.queue.Min(); ok {
		return b.key
	}
	return never
}

// pop moves the next bucket with a key up to the tick to the cascade and advances the clock to it.
// If there is none, it advances the clock to the tick and returns nil.
func (w *wheel) pop(tick int64) *bucket {
	if w.first() > tick {
		w.cur = max(w.cur, tick)
		return nil
	}
	b := w.queue.Remove(0)
	w.cur = max(w.cur, b.key)
	w.levels[b.level][b.slot] = nil
	w.live -= b.live
	b.state = bucketCascading
	c := &w.cascade
	if b.level == 0 {
		c.fine = append(c.fine, b)
		return b
	}
	k, _ := slices.BinarySearchFunc(c.coarse, b.level+1, func(b *bucket, level int32) int { return int(b.level - level) })
	c.coarse = slices.Insert(c.coarse, k, b)
	return b
}

// timerRemoved counts a timer that was removed from queued bucket b, and frees an empty bucket.
func (w *wheel) timerRemoved(b *bucket) {
	w.live--
	if b.live == 0 {
		w.queue.Remove(int(b.heapIndex))
		w.levels[b.level][b.slot] = nil
		w.store.freeBucket(b)
	}
}

// cascade holds the expired buckets whose timers have to be moved. Buckets of the finest level have
// their own list, so that a large coarse bucket, which may take seconds, delays none of them. The
// finer ones of the others come first.
type cascade struct{ fine, coarse []*bucket }

func (c *cascade) any() bool { return len(c.fine)+len(c.coarse) > 0 }

func (c *cascade) all() []*bucket { return slices.Concat(c.fine, c.coarse) }

func (c *cascade) live() (n int) {
	for _, b := range c.all() {
		n += b.live
	}
	return n
}
