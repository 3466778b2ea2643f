package timingwheel

import (
	"cmp"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/sampling"
)

const (
	// inboxSize is the number of timers that are armed before the inbox is swept. It is so small
	// that the slots of a loop of arm and stop stay in the first-level cache.
	inboxSize = 64

	// freeSlots is the number of slots that an inbox takes from the pager at once.
	freeSlots = 32
)

// inbox holds the timers that callers have armed, or moved to an earlier deadline, and that the
// owner of the wheel has not placed yet. Most timeouts are stopped soon after they were armed. A
// timer that is stopped here has never seen the wheel: no bucket, no queue, no cache miss. The
// inbox is pure data; the arm lock of the shard guards it.
//
//	B1  A slot of kind Staged or Ending, and an Ended one that is not free again, is in staged, or
//	    in the arrivals that the owner has taken out, exactly once.
//	B2  No timer of staged is due before first.
//	B3  free holds no slot that anything else names.
//	B4  Whenever the arm lock is free, staged is shorter than sampleAt. So a caller that finds that
//	    it is not has just added the last timer.
type inbox struct {
	staged []uint32 // in the order of arming
	free   []uint32 // for the next timers; the last goes first
	first  int64    // no staged timer is due before this tick
	now    int64    // ns: the latest reading of the clock that an arming caller has passed

	// A caller that adds to staged compares its length with checkAt alone, the lesser of the two.
	checkAt  int
	sweepAt  int             // length of staged at which it is swept
	sampleAt int64           // length of staged at which its last timer is sampled; about never without samples
	samples  *sampling.Table // with ProfileRate; else nil
	distance func() int64    // with ProfileRate: draws the number of turns to the next sample

	armed       uint64 // timers
	stopped     uint64 // timers that were stopped while staged and whose slots are back
	rescheduled uint64 // Reschedules that took armMu, and FuncTimers that were found touched
	rejected    uint64
}

func (ib *inbox) init() {
	ib.first, ib.sampleAt = never, never
	ib.setStaged(nil, inboxSize)
}

// sampleEvery makes the inbox sample one of rate timers.
func (ib *inbox) sampleEvery(rate int) {
	ib.samples = sampling.New(rate)
	ib.distance = ib.samples.Distance
	ib.sampleAt = 0
	ib.skipSamples()
}

// skipSamples lets the timers of staged take their turns, unsampled. It is called after each that is added
// and that the calling goroutine has not armed.
func (ib *inbox) skipSamples() {
	for n := int64(len(ib.staged)); ib.sampleAt <= n; {
		ib.sampleAt += ib.distance()
	}
	ib.setCheckAt()
}

// setStaged replaces staged by a slice that lacks some of its timers.
func (ib *inbox) setStaged(staged []uint32, sweepAt int) {
	ib.sampleAt -= int64(len(ib.staged) - len(staged))
	ib.staged, ib.sweepAt = staged, sweepAt
	ib.setCheckAt()
}

func (ib *inbox) setCheckAt() { ib.checkAt = int(min(int64(ib.sweepAt), ib.sampleAt)) }

// takeFree takes a free slot. There must be one.
func (ib *inbox) takeFree() uint32 {
	last := len(ib.free) - 1
	i := ib.free[last]
	ib.free = ib.free[:last]
	return i
}

// add notes a timer that is due at tick and reports whether it is the first one.
func (ib *inbox) add(i uint32, tick int64) (first bool) {
	ib.staged = append(ib.staged, i)
	return ib.lowerFirst(tick)
}

// lowerFirst notes that a staged timer is due at tick and reports whether it is the first one.
func (ib *inbox) lowerFirst(tick int64) (first bool) {
	if tick >= ib.first {
		return false
	}
	ib.first = tick
	return true
}

// sweep takes the stopped timers out of staged, so that their slots are used again. It reports
// whether so many timers are left that the owner should place them. O(len(staged)), amortised O(1)
// for each arm: if many are left, the next sweep comes when staged is twice as long.
func (ib *inbox) sweep(slots *arena.Slots) (crowded bool) {
	kept := ib.staged[:0]
	for _, i := range ib.staged {
		w := loadWord(&slots.Pages, i)
		if w.Kind() != arena.Ended || w.Has(arena.Moved) { // Moved: the owner looks for it in a bucket first
			kept = append(kept, i)
			continue
		}
		ib.stopped++
		if w.Exhausted() || len(ib.free) >= inboxSize {
			slots.Put(i)
			continue
		}
		ib.free = append(ib.free, i)
	}
	sweepAt := inboxSize
	if crowded = len(kept) > inboxSize/2; crowded {
		sweepAt = max(inboxSize, 2*len(kept))
	}
	ib.setStaged(kept, sweepAt)
	return crowded
}

// ended returns the number of stopped timers that are still in staged, and so not in stopped yet.
func (ib *inbox) ended(slots *arena.Slots) (n uint64) {
	for _, i := range ib.staged {
		if w := loadWord(&slots.Pages, i); w.Kind() == arena.Ended {
			n++
		}
	}
	return n
}

// sweepIfFull sweeps a full inbox. It reports whether the owner should place what is left.
func (ib *inbox) sweepIfFull(slots *arena.Slots) bool {
	return len(ib.staged) >= ib.sweepAt && ib.sweep(slots)
}

// take hands the staged timers over and takes an empty slice in their place.
func (ib *inbox) take(empty []uint32) (staged []uint32, first int64) {
	staged, first = ib.staged, ib.first
	ib.first = never
	ib.setStaged(empty[:0], inboxSize)
	return staged, first
}

// sample returns the last slot of staged if it is the turn of this slot to be sampled, and if its
// timer was armed just now. Timers that were moved or come back take their turn and are not
// sampled.
func (ib *inbox) sample(slots *arena.Slots) (i uint32, w arena.Word, ok bool) {
	if ib.sampleAt > int64(len(ib.staged)) {
		return 0, 0, false
	}
	ib.skipSamples()
	i = ib.staged[len(ib.staged)-1]
	w = loadWord(&slots.Pages, i)
	return i, w, w.Kind() == arena.Staged && !w.Has(arena.Moved)
}

// arrivals holds the timers that the owner has taken out of the inbox and not placed yet.
type arrivals struct {
	slots []uint32
	done  int // the first done of slots are placed
	// first is a tick before which no timer of the rest was due when it was taken out, or never. A
	// later move to an earlier tick lowers inbox.first.
	first int64
}

func (a *arrivals) empty() bool { return a.done == len(a.slots) }

// removals is a lock-free stack of the slots whose timers were stopped while they were Placed or
// Running. The owner takes it as a whole, so no slot comes back while another goroutine looks at
// it. The upper half of head is the number of slots, and the lower half is the index of the first
// slot plus 1. The links are in the words.
type removals struct {
	_         [64]byte
	head      atomic.Uint64
	threshold atomic.Int32 // number of removals at which a Stop offers to carry them out
}

// removalsMax is the number of removals at which a caller of Stop offers to carry them out. The
// owner handles that many together, so that their cache misses overlap.
const removalsMax = 32

const linkMask = 1<<32 - 1

// link returns the link for the word of the next slot to push.
func (r *removals) link() uint64 { return r.head.Load() & linkMask }

// push adds slot i. Its word w is Dead; push writes the link if w does not hold it. push returns
// the number of slots. O(1) without contention.
func (r *removals) push(pg *arena.Page, i uint32, w arena.Word) int {
	for {
		head := r.head.Load()
		if head&linkMask != w.Bits() {
			w = w.WithBits(head & linkMask)
			pg.Store(i, w)
		}
		n := head>>32 + 1
		if r.head.CompareAndSwap(head, n<<32|uint64(i+1)) {
			return int(n)
		}
	}
}

// take empties the stack and returns the link to its first slot, 0 if there is none.
func (r *removals) take() uint64 {
	if r.head.Load() == 0 {
		return 0
	}
	return r.head.Swap(0) & linkMask
}

// setThreshold sets threshold for a wheel with the given number of entries.
func (r *removals) setThreshold(live int) {
	if n := int32(min(removalsMax, max(1, live))); n != r.threshold.Load() {
		r.threshold.Store(n)
	}
}

// len returns the number of slots.
func (r *removals) len() int { return int(r.head.Load() >> 32) }

// armOrder records the order in which the timers of a Manual shard were armed. Timers of one tick
// run in that order. armMu guards arming, and the stamps are read without it.
type armOrder struct {
	stamps arena.Table[[arena.PageSize]atomic.Uint64]
	last   uint64
	// claiming says that timers wait to be claimed, or are about to. A Reschedule then
	// puts its timer into the inbox, so that the timer runs in a later Advance.
	claiming bool
}

// stamp notes that slot i is armed now.
func (a *armOrder) stamp(i uint32) {
	p := i >> arena.PageShift
	page := a.stamps.At(p)
	if page == nil {
		page = new([arena.PageSize]atomic.Uint64)
		a.stamps.Set(int(p), page)
	}
	a.last++
	page[i&arena.PageMask].Store(a.last)
}

// compare orders two slots by arming.
func (a *armOrder) compare(i, j uint32) int { return cmp.Compare(a.read(i), a.read(j)) }

func (a *armOrder) read(i uint32) uint64 {
	page := a.stamps.At(i >> arena.PageShift)
	if page == nil { // never; see arena.Page.Load
		return 0
	}
	return page[i&arena.PageMask].Load()
}
