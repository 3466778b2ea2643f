package timingwheel

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// shard is one independent wheel with its driver and its workers. It has the locks and connects the
// parts. The parts take none of these locks and have no reference to the shard, except for the
// alarm.
//
// The state of a timer is the word of its slot. Each step is one compare-and-swap of that word, so
// callers need a lock only to arm a timer and to move it to an earlier deadline:
//
//	armMu    guards the inbox, the free slots and the alarm. It is held for tens of nanoseconds.
//	         A caller that arms a timer and finds it locked tries the next shard.
//	wheelMu  guards the wheel, the due timers and the worker pool. Drivers and workers hold it for
//	         a quantum at a time. Calls that arm, stop or move a timer only try to lock it, so
//	         they do not wait for drivers and workers.
//
// The goroutine that holds wheelMu is the owner. Lock order: wheelMu, then armMu. Flush holds the
// wheelMu of all shards, in their order.
//
// Invariants, whenever wheelMu and armMu are free:
//
//	S1  A slot of an open page is used, free or retired, and a chunk is used or free. At most one
//	    open page of slots and one of chunks is empty.
//	S2  An entry of a bucket names a slot whose position is that entry, and each position is such
//	    an entry.
//	S3  The chunks of a bucket form a doubly linked list and name the bucket as their owner. They
//	    have as many live entries as the bucket counts.
//	S4  due.ready is the number of timers in due.entries and due.buckets. No count of the worker
//	    pool is negative.
//	S5  The alarm goes off no later than the first bucket with timers and the first timer of the
//	    inbox and of the arrivals, unless a driver is starting or running.
type shard struct {
	_ [64]byte // separates the cache lines that are written here from the object before

	config // immutable
	host   host
	funcs  *arena.Table[[arena.PageSize]func()] // the payloads, if they are callbacks; else nil

	countedFuncs   countedFuncs // the payloads of FuncTimers
	closed         atomic.Bool  // no arm, Stop, Reschedule or claim succeeds any more
	drainRequested atomic.Bool  // a caller asks the owner to drain the inbox and the removals
	alarm          driverAlarm
	now            atomic.Int64 // ns: a time that has passed, stored by the owner; Manual: the clock

	claims   claims
	removals removals

	_ [64]byte

	armMu sync.Mutex
	inbox inbox
	slots arena.Slots // the pages are read without armMu
	order *armOrder   // Manual mode; else nil

	_ [64]byte

	wheelMu wheelMutex
	owner   owner
}

// wheelMutex has a name so that tests with the build tag invariants can redefine Unlock.
type wheelMutex struct{ sync.Mutex }

// host is the typed part of a shard. It holds the payloads and runs them.
type host interface {
	// drop clears the payload of slot i.
	drop(i uint32)
	// closePage drops the payloads of a page that was given back.
	closePage(p int)
	// clear drops all payloads and all pages.
	clear()
	// moveSurvivors hands the timers that survive the wheel's Stop to the runtime.
	moveSurvivors()
	// drive runs a driver. It is called with wheelMu held and returns without it.
	drive()
}

// init initializes a shard that is part of host h.
func (s *shard) init(c config, h host) {
	s.config, s.host = c, h
	s.slots.Closed = h.closePage
	s.now.Store(c.Origin)
	s.inbox.init()
	s.inbox.now = c.Origin
	o := &s.owner
	o.config = &s.config
	o.tick = c.ticks.Floor(c.Origin)
	o.arrivals.first = never
	o.store.slots = &s.slots.Pages
	o.due.store = &o.store
	o.due.manual = c.Manual
	o.wheel.init(c.geometry, &o.store, o.tick)
	o.pool.init()
	if c.Manual {
		s.order = new(armOrder)
		o.order = s.order
	}
}

// claims are counters that workers and callers of Stop write without a lock.
type claims struct {
	_        [64]byte
	launched atomic.Uint64 // those of workerPool.launches that have begun or were dropped
	dropped  atomic.Uint64 // timers that were claimed and not run because the wheel was stopped

	returning atomic.Int32 // workers that have run callbacks and wait for wheelMu
}

// tickOf returns the tick of a deadline, rounded up, or the current tick if the deadline has
// passed.
func (c *config) tickOf(deadline, now int64) int64 {
	if deadline <= now {
		return c.ticks.Floor(now)
	}
	return c.ticks.Ceil(deadline)
}

// noteReading returns the clock reading for a caller that arms a timer, and stores it in the inbox.
// now is the caller's reading, or clock.Unread. For clock.Unread the latest reading of the shard
// suffices, unless the shard is idle.
func (s *shard) noteReading(now int64) int64 {
	ib := &s.inbox
	switch {
	case now == clock.Unread && (s.Manual || s.alarm.at.Load() != never):
		return max(ib.now, s.now.Load())
	case now == clock.Unread: // the shard is idle, so its latest reading may be old
		now = s.Read()
	}
	ib.now = max(ib.now, now)
	return max(now, s.now.Load()) // the caller may have been preempted since it read the clock
}

// reading reads the wheel's clock.
func (s *shard) reading() int64 {
	if s.Manual {
		return s.now.Load()
	}
	return s.Read()
}

// wallNow returns the current time for plans, contexts and channels. Outside Manual mode it reads
// the wall clock as well as the monotonic one, because a plan may follow dates and the wall clock
// may have been set since New.
func (s *shard) wallNow() time.Time {
	if s.Manual {
		return s.TimeAt(s.now.Load())
	}
	return clock.Now()
}

// release clears the payload of slot i, whose word is w. The caller has stopped its timer.
func (s *shard) release(i uint32, w arena.Word) {
	if w.Is(arena.Counted) {
		s.countedFuncs.clear(i)
		return
	}
	if s.funcs == nil {
		if s.scanned {
			s.host.drop(i)
		}
		return
	}
	if pg := s.funcs.At(i >> arena.PageShift); pg != nil { // nil if the wheel is stopped
		pg[i&arena.PageMask] = nil
	}
}

// unlockArm unlocks armMu after a timer was added to the inbox. If the inbox is full, it sweeps the
// inbox first, and then tries to place the remaining timers.
func (s *shard) unlockArm() {
	if len(s.inbox.staged) < s.inbox.sweepAt {
		s.armMu.Unlock()
		return
	}
	s.sweepAndUnlock()
}

// sweepAndUnlock is the part of unlockArm for a full inbox.
func (s *shard) sweepAndUnlock() {
	shouldPlace := s.inbox.sweep(&s.slots)
	s.armMu.Unlock()
	if shouldPlace {
		s.tryDrain()
	}
}

// stage adds a timer to the inbox and moves the alarm if the timer is due first. armMu is held.
func (s *shard) stage(i uint32, tick int64) {
	if s.inbox.add(i, tick) {
		s.alarm.setEarlier(tick)
	}
}

// callerQuantum is the largest number of timers that a caller places, and the largest number that
// it removes, in one call. Callers add fewer than that between two calls, so a backlog shrinks.
const callerQuantum = 4 * inboxSize

// tryDrain places arrivals and carries out removals, up to callerQuantum of each, if no other
// goroutine holds wheelMu. Otherwise the holder of the lock, or the next caller, does this work.
func (s *shard) tryDrain() {
	s.drainRequested.Store(true)
	for range 2 {
		if !s.wheelMu.TryLock() {
			return
		}
		s.drainRequested.Store(false)
		if !s.closed.Load() {
			s.drain(callerQuantum)
		}
		s.unlock()
		if !s.drainRequested.Load() {
			return
		}
	}
}

// unlock unlocks wheelMu. Before that, it moves the alarm to an earlier tick if a bucket has to be
// taken earlier.
func (s *shard) unlock() {
	if first, ok := s.owner.wheel.first(); ok && first < s.alarm.at.Load() {
		s.alarm.reset()
	}
	if len(s.owner.freed) >= removalsMax { // they come from claims under the lock
		s.reclaim()
	}
	s.wheelMu.Unlock()
}

// unlockAndDrain calls unlock, and then tryDrain if a caller has requested it meanwhile.
func (s *shard) unlockAndDrain() {
	s.unlock()
	if s.drainRequested.Load() {
		s.tryDrain()
	}
}

// yield unlocks wheelMu and locks it again, so that other goroutines can lock it.
func (s *shard) yield() {
	s.unlock()
	s.wheelMu.Lock()
}

// drainAll is drain without a limit. It places and removes all timers that were armed and stopped
// before the call.
func (s *shard) drainAll() {
	s.drain(math.MaxInt) // places what was taken out of the inbox before the call
	s.drain(math.MaxInt)
}

// drain places up to max timers from the inbox and carries out up to max removals. It reports
// whether none are left. If it finds the shard empty, it turns the alarm off.
func (s *shard) drain(max int) bool {
	o := &s.owner
	s.reclaim()
	s.takeArrivals()
	o.wheel.catchUp(o.tick)
	for n := 0; n < max && !o.arrivals.empty(); n += chunkSize {
		o.placeArrivals(min(chunkSize, max-n))
		s.reclaim()
	}
	for n := 0; n < max; n += removalsMax {
		if o.takenRemovals == 0 {
			o.takenRemovals = s.removals.take()
		}
		if o.takenRemovals == 0 {
			break
		}
		o.remove()
		s.reclaim()
	}
	if !o.arrivals.empty() || o.takenRemovals != 0 || s.removals.len() != 0 {
		return false
	}
	s.alarm.offIfEmpty()
	return true
}

// reclaim frees the slots of freed, and returns the slots of ending to the inbox.
func (s *shard) reclaim() {
	o := &s.owner
	if len(o.freed)+len(o.ending) == 0 {
		return
	}
	s.armMu.Lock()
	defer s.armMu.Unlock()
	for _, i := range o.freed {
		s.slots.Put(i)
	}
	for _, i := range o.ending {
		s.inbox.add(i, never)
	}
	o.freed, o.ending = o.freed[:0], o.ending[:0]
}

// takeArrivals takes the timers of the inbox, if all earlier arrivals are placed.
func (s *shard) takeArrivals() {
	a := &s.owner.arrivals
	if !a.empty() {
		return
	}
	s.armMu.Lock()
	a.slots, a.first = s.inbox.take(a.slots[:0])
	now := s.inbox.now
	s.armMu.Unlock()
	a.done = 0
	if !s.Manual {
		s.advanceClock(now)
	}
}

// pending returns the number of pending timers. wheelMu is held, and drainAll was called.
func (s *shard) pending() int {
	s.armMu.Lock()
	armed, stopped := s.inbox.armed, s.inbox.stopped+s.inbox.ended(&s.slots)
	s.armMu.Unlock()
	o := &s.owner
	for _, b := range o.pool.batches { // some claims of running workers are not counted yet
		o.countBatch(b)
	}
	return o.counters.pending(armed, stopped)
}

// len returns the number of pending timers.
func (s *shard) len() int {
	s.wheelMu.Lock()
	defer s.unlockAndDrain()
	if s.closed.Load() {
		return 0
	}
	s.drainAll()
	return s.pending()
}

// halt discards all pending timers. Arms, Stops, Reschedules and claims that begin later read
// closed and fail. For a call that read closed before it was set, the word of its timer decides, so
// that exactly one thing happens to each timer and is counted:
//
//   - A claim without the lock swaps the word of a batch's entry. halt makes these words Dead. A
//     claim that is earlier than halt counts, and its callback has begun: only a few instructions
//     lie between the claim and the call, and nothing drops the call.
//   - After a claim under the lock, the worker starts spares before the call. It therefore reads
//     closed once more before the call, and then counts the launch. halt waits for this count: a
//     few instructions, or until a worker that was preempted there gets a processor.
//   - A Stop of a timer in the inbox ends the timer within a few instructions. halt waits for it.
//   - A Stop of any other timer pushes its slot. addStats counts the slots that were pushed since.
func (s *shard) halt() {
	s.closed.Store(true)
	s.wheelMu.Lock()
	defer s.wheelMu.Unlock()
	o := &s.owner
	if o.wheel.levels == nil {
		return // stopped before
	}
	for {
		s.drainAll()
		s.armMu.Lock()
		ending := len(s.inbox.staged) // timers whose Stop is about to end them
		s.armMu.Unlock()
		if ending == 0 {
			break
		}
		runtime.Gosched()
	}
	s.armMu.Lock()
	s.host.moveSurvivors()
	s.armMu.Unlock()
	for _, b := range o.pool.batches {
		b.revoke()
	}
	for s.claims.launched.Load() != o.pool.launches {
		runtime.Gosched()
	}
	o.counters.fired -= s.claims.dropped.Load()
	o.counters.discarded += uint64(s.pending())
	s.armMu.Lock()
	s.alarm.close()
	s.inbox.stopped += s.inbox.ended(&s.slots)
	s.slots.Clear()
	s.inbox.staged, s.inbox.free = nil, nil
	s.order, o.order = nil, nil
	s.host.clear()
	s.armMu.Unlock()
	o.arrivals = arrivals{first: never}
	o.takenRemovals, o.freed, o.ending = 0, nil, nil
	o.store = bucketStore{slots: o.store.slots}
	o.wheel = wheel{geometry: o.wheel.geometry, store: o.wheel.store, cur: o.wheel.cur}
	o.due = dueList{store: o.due.store, manual: o.due.manual}
	o.pool.batches = nil
}

// nextDue returns the clock reading, in ns, at which the shard has work to do next, and false if no
// timer is pending.
func (s *shard) nextDue() (int64, bool) {
	s.wheelMu.Lock()
	defer s.unlockAndDrain()
	if s.closed.Load() {
		return 0, false
	}
	s.drainAll()
	if s.pending() == 0 {
		return 0, false
	}
	o := &s.owner
	tick := o.wheel.cur // for timers that have expired and are not moved or claimed yet
	if !o.due.waiting() && !o.wheel.cascade.waiting() && !o.pool.hasUnclaimed() {
		if first, ok := o.wheel.first(); ok {
			tick = first
		}
	}
	return s.ticks.Begin(tick), true
}

// setClaiming sets claiming of a Manual shard. wheelMu is held.
func (s *shard) setClaiming(claiming bool) {
	s.armMu.Lock()
	defer s.armMu.Unlock()
	if s.order != nil { // else the shard is stopped
		s.order.claiming = claiming
	}
}

// flush makes all pending timers due and returns their number. The timers in the batches of workers
// are due already. wheelMu is held.
func (s *shard) flush() (n int) {
	if s.closed.Load() {
		return 0
	}
	if s.Manual {
		s.setClaiming(true)
	}
	s.drainAll()
	n = s.pending()
	o := &s.owner
	for _, b := range o.pool.batches {
		for _, e := range b.entries {
			if !stale(e) {
				o.makeDueNow(e.index) // the worker returns a timer that was postponed to the inbox
			}
		}
	}
	var entries []entry
	o.takeEach(func(i uint32) {
		if e, ok := o.makeDueNow(i); ok {
			entries = append(entries, e)
		}
	})
	if s.Manual {
		o.sort(entries)
	}
	o.due.putBack(entries)
	o.counters.flushed += uint64(n)
	s.alarm.requestDriver()
	return n
}
