package timingwheel

import (
	"sync"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
	"github.com/timingwheel-go/timingwheel/internal/sampling"
)

const (
	// inboxSize is the number of timers that are armed before the inbox is swept. It is small
	// enough that the records of a loop of arm and stop stay in the first-level cache.
	inboxSize = 64

	// freeRecords is the number of free records that refill takes from the pager in one call.
	freeRecords = 32
)

// inbox holds the timers that callers have armed, or moved to an earlier deadline, and that the
// owner has not placed yet, and the free records. mu guards it. Most timeouts are stopped soon
// after they are armed. A timer that is stopped in the inbox causes no cache miss of a bucket or of
// the queue.
//
//	B1  A record of kind Staged or Ending, and a record of kind Ended until it is free, is exactly
//	    once in staged or in the arrivals that the owner has taken out.
//	B2  No timer of staged is due before first.
//	B3  free holds no record that a bucket, a list or a handle of a pending timer names.
type inbox struct {
	shard   *shard
	mu      sync.Mutex
	records arena.Slab[arena.Page] // the pages are read without mu
	stamp   uint64                 // Manual mode: the last stamp
	staged  []uint32               // in order of arming
	free    []uint32               // for the next timers; the last one is used first
	first   int64                  // no staged timer is due before this tick
	now     int64                  // ns: the latest reading of the clock that an arming caller has passed
	sweepAt int                    // length of staged at which it is swept
	counts  inboxCounts

	samples     sampling.Table[Timer] // with ProfileRate, until the wheel is stopped; else empty
	untilSample int64                 // timers up to the next one that is sampled; <= 0: none is
}

type inboxCounts struct {
	armed       uint64 // timers
	stopped     uint64 // timers that were stopped while staged and whose records are free again
	rescheduled uint64 // Reschedules that took mu
	rejected    uint64 // arms on a stopped wheel
}

func (ib *inbox) init(s *shard) {
	ib.shard, ib.first, ib.sweepAt, ib.now = s, never, inboxSize, s.config.Origin
	ib.records.Shift = arena.PageShift
	if rate := s.engine.opts.ProfileRate; rate > 0 {
		ib.samples = sampling.New(rate, Timer.isOver)
		ib.untilSample = ib.samples.Distance()
	}
}

// noteReading returns the clock reading for a caller that arms a timer, and stores it in the inbox.
// now is the caller's reading, or clock.Unread. For clock.Unread the latest reading of the shard
// suffices, unless the shard is idle.
func (ib *inbox) noteReading(now int64) int64 {
	s := ib.shard
	switch {
	case now == clock.Unread && s.alarm.at.Load() != never:
		return max(ib.now, s.now.Load())
	case now == clock.Unread: // the shard is idle, so its latest reading may be old
		now = s.config.Read()
	}
	ib.now = max(ib.now, now)
	return max(now, s.now.Load()) // the caller may have been preempted since it read the clock
}

// stage adds a timer that is due at tick, and moves the alarm if the timer is due first.
func (ib *inbox) stage(i uint32, tick int64) {
	ib.staged = append(ib.staged, i)
	ib.lowerFirst(tick)
}

// stagePostponed stages a timer that was postponed while it was due. A bucket may contain it again,
// hence Listed. It reports whether it did: not if the word has changed or the wheel is stopped.
func (ib *inbox) stagePostponed(pg *arena.Page, i uint32, w arena.Word) bool {
	ib.mu.Lock()
	defer ib.mu.Unlock()
	if ib.shard.closed.Load() || !pg.Swap(i, w, w.With(arena.Staged)|arena.Listed) {
		return false
	}
	ib.stage(i, w.Tick())
	return true
}

// lowerFirst is called for a staged timer that is due at tick.
func (ib *inbox) lowerFirst(tick int64) {
	if tick < ib.first {
		ib.first = tick
		ib.shard.alarm.setEarlier(tick)
	}
}

// unlock unlocks mu after a timer was added. It sweeps a full inbox first.
func (ib *inbox) unlock() {
	if len(ib.staged) < ib.sweepAt {
		ib.mu.Unlock()
		return
	}
	ib.sweepAndUnlock()
}

// sweepAndUnlock is the part of unlock for a full inbox.
func (ib *inbox) sweepAndUnlock() {
	shouldPlace := ib.sweep()
	ib.mu.Unlock()
	if shouldPlace {
		ib.shard.tryDrain()
	}
}

// sweep removes the stopped timers from staged, so that their records are reused. It reports
// whether so many timers are left that the owner should place them. Then staged is swept next at
// twice its length, so a sweep is O(1) amortised for each arm.
func (ib *inbox) sweep() (shouldPlace bool) {
	kept := ib.staged[:0]
	for _, i := range ib.staged {
		w := loadWord(&ib.records.Pages, i)
		// The owner may have to remove a timer that has the Listed flag from a bucket first.
		if w.Kind() != arena.Ended || w.Has(arena.Listed) {
			kept = append(kept, i)
			continue
		}
		ib.counts.stopped++
		if w.Exhausted() || len(ib.free) >= inboxSize {
			ib.putRecord(i)
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

// count returns the counts. Timers of staged that were stopped count as stopped.
func (ib *inbox) count() inboxCounts {
	c := ib.counts
	for _, i := range ib.staged {
		if w := loadWord(&ib.records.Pages, i); w.Kind() == arena.Ended {
			c.stopped++
		}
	}
	return c
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

// removalStack is a lock-free stack of records that the owner has to free: of timers that were
// stopped outside the inbox, or of claimed timers. The words of the records hold the links.
// docs/internals/locking.md says why there is no ABA problem.
type removalStack struct {
	_    [64]byte
	head atomic.Uint64 // upper half: the number of records; lower half: the first record plus 1
}

// removalGroup is the number of removals at which Timer.Stop or the end of a batch calls tryDrain,
// and the number of records that the owner frees at a time.
const removalGroup = 32

const linkMask = 1<<32 - 1

func (s *removalStack) link() uint64 { return s.head.Load() & linkMask }

// chain is a list of records that their words link, from last to first. Every word is final except
// the link of first, which push sets.
type chain struct {
	page  *arena.Page // of first
	first uint32
	last  uint32 // a link, from which the links lead to first; 0: the chain is empty
	n     int
}

// push adds a chain and returns the number of records on the stack.
func (s *removalStack) push(c chain) int {
	w := c.page.Load(c.first)
	for {
		head := s.head.Load()
		if head&linkMask != w.Bits() {
			w = w.WithBits(head & linkMask)
			c.page.Store(c.first, w)
		}
		n := head>>32 + uint64(c.n)
		if s.head.CompareAndSwap(head, n<<32|uint64(c.last)) {
			return int(n)
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
