package timingwheel

import (
	"math"
	"sync"
	sync64 "sync/atomic" // aligned on 32 bits, too
	"time"

	"go.uber.org/atomic"
)

// never is a tick that no clock reaches.
const never = math.MaxInt64

// host is the typed part of a shard: it holds the payloads and runs them.
type host interface {
	openPage(p int) *[pageSize]node // makes page p of the slab and of the payloads
	closePage(p int)                // page p of the slab was given back
	drop(i uint32)                  // release the payload of slot i
	clear()                         // release everything
	spawn()                         // start a worker, which s.spares already counts
	hand()                          // give the executor one call, which s.owed already counts; mu is not held
	serve()                         // be a worker, with mu held, and return without it
}

// shard is one independent wheel: slab, levels, queue of buckets, driver. Everything below mu is
// guarded by it unless its comment says otherwise. A handle names its shard by a pointer, so the shard
// does not depend on the payload's type; what does is behind host.
type shard struct {
	_ [64]byte // keeps the neighbour in memory off the lines that are written here

	config  // never changes
	host    host
	waiting atomic.Int32 // callers of lock that have to wait
	kin     *families    // of its wheel's contexts; nil with Timeouts

	// What adds, stops and reschedules touch comes first, side by side: fewer lines to fetch from
	// another processor.

	mu      sync.Mutex
	crowded int    // callers of lock that had to wait, since an arming goroutine last left for that reason
	now     int64  // ns: the latest clock reading; Manual: the clock
	quiet   int64  // ns: the alarm goes off no later; MaxInt64 where it is not set; Manual: 0
	pending int    // timers
	lots    []*lot // what workers have taken of due

	funcs []*[pageSize]func() // the payloads, where they are callbacks: saves release a call of host
	young nursery
	tombs tombstones
	bucketStore

	cur      int64 // ticks: every earlier bucket has been taken
	curEnds  int64 // ns: when that tick ends; MaxInt64 where no clock reaches it
	levels   []level
	queue    minHeap[*bucket]
	hollow   int        // buckets of queue that all their timers have left
	cascade  cascade    // expired buckets, being moved
	due      bucketList // expired buckets whose timers may be claimed
	fresh    bucketList // Manual: what became due since the last Advance began
	prompt   *bucket    // the bucket of due (Manual: fresh) that takes timers due at once; nil: none is open
	ready    int        // pending timers in due
	lotSize  int        // timers that the next lot takes
	spareLot *lot       // of the worker that ended last, for the next one
	flushed  int        // due buckets with flush set

	alarm         alarm
	wakeAt        int64 // ticks: when the alarm will go off; never if it will not
	driving       bool  // a driver is at work and will set the alarm when it is done
	stopped       bool
	disturbed     sync64.Uint64       // how often a plan was stopped in a run, or the shard; written under mu
	spares        int                 // workers that are counted, and started or about to be, and have not begun
	together      int                 // spares that were started at once the last time
	begun         uint                // workers that were started and have begun
	owed          int                 // calls handed to the executor that have not begun
	running       int                 // callbacks or batches being run
	firedBefore   uint64              // counters.fired then
	runningBefore int                 // running then
	handing       int                 // calls of the executor under way
	serving       int                 // workers of the default executor
	idle          chan struct{}       // closed once nothing runs; made by Shutdown
	halting       chan struct{}       // closed by halt; made by whoever first waits for it
	relaxAt       int64               // value of armed from which an early alarm is worth correcting
	seqs          []*[pageSize]uint64 // Manual: order of arming, for ties
	seq           uint64
	scratch       []uint32 // Manual: of gather
	counters      counters
	labels        *labels // of profiles; never changes; nil: none
	sinceCheck    int     // build tag invariants: changes since the last verify

	_ [64]byte
}

// init prepares a shard that was allocated as part of its typed form.
func (s *shard) init(c config, h host) {
	s.config = c
	s.host = h
	s.nodes.low, s.chunks.low = -1, -1
	s.levels = make([]level, c.last+1)
	s.now = c.origin
	s.moveTo(c.ticks.floor(c.origin))
	s.lotSize = firstLot
	s.young.alive = nurseryEmpty
	s.tombs.from = tombstonesFrom
	s.noAlarm()
	s.relaxAt = -relaxCredit
}

// observe notes a reading of the clock. Readings may arrive out of order.
func (s *shard) observe(now int64) {
	if now > s.now {
		s.now = now
	}
}

// add takes a slot for a timer due at the deadline and places it. The caller stores the payload.
func (s *shard) add(deadline int64) (uint32, *node) {
	i := s.nodes.aside - 1
	if s.nodes.aside == 0 {
		i = s.takeSlot()
	}
	s.nodes.aside = 0
	n := s.nodes.must(i)
	n.deadline = deadline
	s.pending++
	s.counters.armed++
	if s.manual {
		s.stamp(i)
	}
	s.enter(i, n, deadline)
	return i, n
}

// takeSlot takes a slot from the pages.
func (s *shard) takeSlot() uint32 {
	page, slot, ok := s.nodes.take()
	if !ok {
		s.openPage()
		page, slot, _ = s.nodes.take()
	}
	return uint32(page)<<pageShift | slot
}

func (s *shard) openPage() {
	p := s.nodes.next()
	if p >= maxPages {
		s.mu.Unlock()
		panic("timingwheel: a shard is full: more than 2^29 timers; use more shards")
	}
	s.nodes.open(p, s.host.openPage(p))
	if !s.manual {
		return
	}
	if p == len(s.seqs) {
		s.seqs = append(s.seqs, nil)
	}
	s.seqs[p] = new([pageSize]uint64)
}

// stamp notes the order of arming.
func (s *shard) stamp(i uint32) {
	s.seq++
	*s.order(i) = s.seq
}

// order is, in Manual mode, when slot i was armed.
func (s *shard) order(i uint32) *uint64 {
	pg := s.seqs[i>>pageShift]
	if pg == nil { // never, see slab.must
		return nil
	}
	return &pg[i&pageMask]
}

// release ends the handle of slot i and takes the slot back.
func (s *shard) release(i uint32, n *node) {
	switch {
	case s.funcs != nil:
		// Looking first starts the cache miss while that of the node is still under way; a bare store
		// would begin it only when the lock is let go.
		if f := s.callback(i); *f != nil {
			*f = nil
		}
	case s.scanned:
		s.host.drop(i)
	}
	reuse := n.retire()
	if reuse && s.nodes.aside == 0 {
		s.nodes.aside = i + 1
		return
	}
	s.freeSlot(i, reuse)
}

// callback is the payload of slot i, where payloads are callbacks.
func (s *shard) callback(i uint32) *func() {
	pg := s.funcs[i>>pageShift]
	if pg == nil { // never, see slab.must
		return nil
	}
	return &pg[i&pageMask]
}

func (s *shard) freeSlot(i uint32, reuse bool) {
	p := int(i >> pageShift)
	if s.nodes.put(p, i&pageMask, reuse) {
		s.nodes.close(p)
		s.host.closePage(p)
		if s.manual {
			s.seqs[p] = nil
		}
	}
}

// route puts a timer where its deadline belongs.
func (s *shard) route(i uint32, n *node) { s.put(i, n, n.due()) }

// put puts a timer into the bucket for its deadline: due at once, or on the wheel.
func (s *shard) put(i uint32, n *node, deadline int64) {
	if deadline > s.now {
		s.place(i, n, s.ticks.ceil(deadline))
		return
	}
	s.append(s.promptBucket(), i, n)
	if !s.manual {
		s.ready++
		s.kick()
	}
}

// promptBucket returns the bucket for timers that are due now and that no level's bucket brings. In
// Manual mode it waits for the next Advance. Otherwise it is closed once its first timer is claimed,
// so that a chain of zero delays queues up behind everything else that is due.
func (s *shard) promptBucket() *bucket {
	b := s.prompt
	if b == nil {
		b = s.newBucket()
		b.at = s.cur
		if s.manual {
			b.state = bucketFresh
			s.fresh.push(b)
		} else {
			b.state = bucketDue
			s.due.push(b)
		}
		s.prompt = b
	}
	b.horizon = s.now
	return b
}

// detach takes a timer's entry out of its bucket.
func (s *shard) detach(n *node) {
	s.settleTombs()
	b := s.remove(n.pos)
	if b.state == bucketDue {
		s.ready--
		s.lastGone()
	} else if b.live == 0 && b.state == bucketQueued {
		s.emptied(b)
	}
}

// stop is Timer.Stop.
func (s *shard) stop(i, gen uint32) bool {
	s.lock()
	n := s.nodes.at(i)
	if n == nil || n.gen != gen {
		s.mu.Unlock()
		return false
	}
	switch held, late := s.takeBack(n); {
	case late:
		s.mu.Unlock()
		return false
	case held:
		s.pending--
		s.lastGone()
	case n.pos >= posInvalid:
		s.pending--
		if s.defers() {
			s.entomb(n.pos)
		} else {
			s.detach(n)
		}
	case n.pos >= posNursery:
		s.pending--
		s.leave(n)
		s.lastGone()
	default:
		s.disturbed.Add(1)
	}
	s.release(i, n)
	s.counters.stopped++
	s.checkLocked()
	s.mu.Unlock()
	return true
}

// reschedule moves a pending timer to the deadline. now is a reading of the clock that is not later
// than the call. In Manual mode now is not used, and the deadline is relative if rel is set.
func (s *shard) reschedule(i, gen uint32, deadline, now int64, rel bool) bool {
	s.lock()
	n := s.nodes.at(i)
	if n == nil || n.gen != gen {
		s.mu.Unlock()
		return false
	}
	held, late := s.takeBack(n)
	if late {
		s.mu.Unlock()
		return false
	}
	if s.manual {
		if rel {
			deadline = later(s.now, deadline)
		}
		s.stamp(i)
	} else {
		s.observe(now)
	}
	old := n.due()
	n.deadline = deadline | n.deadline&planBit
	s.counters.postponed++
	switch {
	case held:
		s.route(i, n)
	case n.pos < posNursery:
		n.pos = posRerun
	case deadline < old || s.flushed > 0 || s.manual:
		s.hasten(i, n)
	}
	s.checkLocked()
	s.mu.Unlock()
	return true
}

// hasten moves a timer whose bucket the driver would look at too late, or that a flush has marked.
// In Manual mode it also moves a timer that waits to be claimed: Reschedule arms that timer anew,
// and a timer that a callback arms runs in a later Advance.
func (s *shard) hasten(i uint32, n *node) {
	if n.pos < posInvalid {
		s.leave(n)
		s.enter(i, n, n.due())
		return
	}
	b := s.all[s.chunks.meta(n.pos>>chunkShift).owner]
	due := n.due()
	late := b.state == bucketCascading || b.state == bucketQueued && (due <= s.now || s.ticks.ceil(due) < b.at)
	if !late && !b.flush && !(s.manual && b.state >= bucketDue) {
		return
	}
	s.detach(n)
	s.route(i, n)
}

func (s *shard) deadline(i, gen uint32) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLots()
	n := s.nodes.at(i)
	if n == nil || n.gen != gen || n.pos < posNursery {
		return time.Time{}, false
	}
	return s.timeAt(n.due()), true
}

// halt discards everything. Claims, arms and the driver see stopped.
func (s *shard) halt() {
	s.mu.Lock()
	s.recallLots()
	first := !s.stopped
	s.counters.discarded += uint64(s.pending)
	s.stopped = true
	s.disturbed.Add(1)
	s.pending, s.ready, s.flushed, s.hollow = 0, 0, 0, 0
	s.bucketStore = bucketStore{}
	s.levels, s.seqs, s.funcs = nil, nil, nil
	s.young.alive = nurseryEmpty
	s.tombs.n = 0
	s.queue = minHeap[*bucket]{}
	s.cascade, s.due, s.fresh, s.prompt = cascade{}, bucketList{}, bucketList{}, nil
	s.disarm()
	s.host.clear()
	halting := s.halting
	s.mu.Unlock()
	if first && halting != nil {
		close(halting) // wakes everybody who sleeps, and they want the lock
	}
}
