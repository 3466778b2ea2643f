package timingwheel

import (
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

const (
	// inboxSize is the number of timers that are armed before the inbox is swept. It is small
	// enough that the records of a loop of arm and stop stay in the first-level cache.
	inboxSize = 64

	// freeRecords is the number of free records that refill takes from the pager in one call.
	freeRecords = 32
)

// inbox holds the timers that callers have armed, or moved to an earlier deadline, and that the
// owner has not placed yet. armMu guards it. Most timeouts are stopped soon after they are armed. A
// timer that is stopped in the inbox causes no cache miss of a bucket or of the queue.
//
//	B1  A record of kind Staged or Ending, and a record of kind Ended until it is free, is exactly
//	    once in staged or in the arrivals that the owner has taken out.
//	B2  No timer of staged is due before first.
//	B3  free holds no record that a bucket, a list or a handle of a pending timer names.
type inbox struct {
	order  *armOrder // Manual mode; else nil
	staged []uint32  // in the order of arming
	free   []uint32  // for the next timers; the last one is used first
	first  int64     // no staged timer is due before this tick
	now    int64     // ns: the latest reading of the clock that an arming caller has passed

	sweepAt     int   // length of staged at which it is swept
	untilSample int64 // timers up to the next one that is sampled; not positive without ProfileRate

	armed       uint64 // timers
	stopped     uint64 // timers that were stopped while staged and whose records are free again
	rescheduled uint64 // Reschedules that took armMu
	rejected    uint64 // arms on a stopped wheel
}

func (ib *inbox) init() { ib.first, ib.sweepAt = never, inboxSize }

// free must not be empty.
func (ib *inbox) takeFree() uint32 {
	last := len(ib.free) - 1
	i := ib.free[last]
	ib.free = ib.free[:last]
	return i
}

// add appends a timer that is due at tick and reports whether no other timer is due before it.
func (ib *inbox) add(i uint32, tick int64) (first bool) {
	ib.staged = append(ib.staged, i)
	return ib.lowerFirst(tick)
}

func (ib *inbox) lowerFirst(tick int64) (first bool) {
	if tick >= ib.first {
		return false
	}
	ib.first = tick
	return true
}

// sweep removes the stopped timers from staged, so that their records are reused. It reports
// whether so many timers are left that the owner should place them. Then staged is swept next at
// twice its length, so a sweep is O(1) amortised for each arm.
func (ib *inbox) sweep(records *arena.Records) (shouldPlace bool) {
	kept := ib.staged[:0]
	for _, i := range ib.staged {
		w := loadWord(&records.Pages, i)
		// The owner may have to remove a timer that has the Listed flag from a bucket first.
		if w.Kind() != arena.Ended || w.Has(arena.Listed) {
			kept = append(kept, i)
			continue
		}
		ib.stopped++
		if w.Exhausted() || len(ib.free) >= inboxSize {
			records.Put(i)
			continue
		}
		ib.free = append(ib.free, i)
	}
	ib.staged, ib.sweepAt = kept, inboxSize
	if shouldPlace = len(kept) > inboxSize/2; shouldPlace {
		ib.sweepAt = max(inboxSize, 2*len(kept))
	}
	return shouldPlace
}

// countEnded returns the number of stopped timers in staged, which are not counted in stopped yet.
func (ib *inbox) countEnded(records *arena.Records) (n uint64) {
	for _, i := range ib.staged {
		if w := loadWord(&records.Pages, i); w.Kind() == arena.Ended {
			n++
		}
	}
	return n
}

// take returns the staged timers and their first tick. The empty slice replaces staged.
func (ib *inbox) take(empty []uint32) (staged []uint32, first int64) {
	staged, first = ib.staged, ib.first
	ib.staged, ib.first, ib.sweepAt = empty[:0], never, inboxSize
	return staged, first
}

// arrivals are the timers that the owner has taken out of the inbox and not placed yet.
type arrivals struct {
	records []uint32
	done    int // records[:done] are placed
	// first is a tick before which no timer of records[done:] was due when the owner took it out,
	// or never. A later move to an earlier tick lowers inbox.first instead.
	first int64
}

func (a *arrivals) empty() bool { return a.done == len(a.records) }

// removalStack is a lock-free stack of records that the owner has to free: those of timers that
// were stopped outside the inbox, or of claimed timers. The words of the records hold the links.
// docs/internals/locking.md says why there is no ABA problem.
type removalStack struct {
	_    [64]byte
	head atomic.Uint64 // upper half: the number of records; lower half: the first record plus 1
}

// removalsMax is the number of removals from which on a Stop offers to carry them out. The owner
// carries out this many removals together, so that their cache misses overlap.
const removalsMax = 32

const linkMask = 1<<32 - 1

func (s *removalStack) link() uint64 { return s.head.Load() & linkMask }

// push adds record i, whose word w is Dead, and returns the number of records. It stores the link
// in the word unless w holds it already.
func (s *removalStack) push(pg *arena.Page, i uint32, w arena.Word) int {
	for {
		head := s.head.Load()
		if head&linkMask != w.Bits() {
			w = w.WithBits(head & linkMask)
			pg.Store(i, w)
		}
		n := head>>32 + 1
		if s.head.CompareAndSwap(head, n<<32|uint64(i+1)) {
			return int(n)
		}
	}
}

// pushChain adds n records whose words are final and hold links, from last, a link, to first. It
// returns the number of all records.
func (s *removalStack) pushChain(pg *arena.Page, first, last uint32, n int) int {
	w := pg.Load(first)
	for {
		head := s.head.Load()
		pg.Store(first, w.WithBits(head&linkMask))
		all := head>>32 + uint64(n)
		if s.head.CompareAndSwap(head, all<<32|uint64(last)) {
			return int(all)
		}
	}
}

// take empties the stack and returns the link to its first record, or 0.
func (s *removalStack) take() uint64 {
	if s.head.Load() == 0 {
		return 0
	}
	return s.head.Swap(0) & linkMask
}

func (s *removalStack) len() int { return int(s.head.Load() >> 32) }

// armOrder records the order in which the timers of a Manual shard were armed. Timers of one tick
// run in that order. armMu guards last, and is held while a timer gets its stamp.
type armOrder struct {
	stamps arena.Table[[arena.PageSize]atomic.Uint64]
	last   uint64
}

// isCollected is a flag of a stamp: an Advance has collected the timer, and a Reschedule has not
// moved it since.
const isCollected = 1 << 63

// collect marks record i and returns its stamp. It returns false if the record is marked already.
func (a *armOrder) collect(i uint32) (stamp uint64, ok bool) {
	page := a.stamps.At(i >> arena.PageShift)
	if page == nil { // the wheel was stopped
		return 0, false
	}
	stamp = page[i&arena.PageMask].Or(isCollected)
	return stamp, stamp&isCollected == 0
}

func (a *armOrder) uncollect(i uint32) {
	if page := a.stamps.At(i >> arena.PageShift); page != nil {
		page[i&arena.PageMask].And(^uint64(isCollected))
	}
}

func (a *armOrder) collected(i uint32) bool { return a.read(i)&isCollected != 0 }

// stamp gives record i the next number.
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

func (a *armOrder) read(i uint32) uint64 {
	page := a.stamps.At(i >> arena.PageShift)
	if page == nil { // never; see arena.Page.Load
		return 0
	}
	return page[i&arena.PageMask].Load()
}
