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

// shard is one independent wheel with its driver. It has the locks and connects the
// parts. The parts take none of these locks and have no reference to the shard, except for the
// alarm.
//
// The state of a timer is the word of its slot. Each step is one compare-and-swap of that word, so
// callers need a lock only to arm a timer and to move it to an earlier deadline:
//
//	armMu    guards the inbox, the free slots and the alarm. It is held for tens of nanoseconds.
//	         A caller that arms a timer and finds it locked tries the next shard.
//	wheelMu  guards the wheel and the timers that have expired. Drivers and workers hold it for a
//	         quantum at a time. Calls that arm, stop or move a timer only try to lock it, so they
//	         do not wait for drivers and workers.
//
// The goroutine that holds wheelMu is the owner. Lock order: wheelMu, then armMu or the lock of
// due. No goroutine holds the locks of two shards.
//
// Invariants, whenever wheelMu and armMu are free:
//
//	S1  A slot of an open page is used, free or retired, and a chunk is used or free. At most one
//	    open page of slots and one of chunks is empty.
//	S2  An entry of a bucket names a slot whose position is that entry, and each position is such
//	    an entry.
//	S3  The chunks of a bucket form a doubly linked list and name the bucket as their owner. They
//	    have as many live entries as the bucket counts.
//	S4  If owner.expired has timers, the alarm's tick has begun, or a driver is starting or running.
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

	claims   claimed
	removals removals // stopped timers

	_ [64]byte

	armMu sync.Mutex
	inbox inbox
	slots arena.Slots // the pages are read without armMu
	refs  arena.Table[pageRef]

	_ [64]byte

	wheelMu wheelMutex
	owner   owner
}

// wheelMutex has a name so that tests with the build tag invariants can redefine Unlock.
type wheelMutex struct{ sync.Mutex }

// host is the typed part of a shard. It holds the payloads.
type host interface {
	// drop clears the payload of slot i.
	drop(i uint32)
	// closePage drops the payloads of a page that was given back.
	closePage(p int)
	// clear drops all payloads and all pages.
	clear()
	// survive hands a timer that survives the wheel's Stop to the runtime. w was its word.
	survive(t Timer, w arena.Word)
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
	o.store.slots, o.refs = &s.slots.Pages, &s.refs
	o.wheel.init(c.geometry, &o.store, o.tick)
	if c.Manual {
		s.inbox.order = new(armOrder)
	}
}

// claimed is what workers write without a lock.
type claimed struct {
	_          [64]byte
	fired      atomic.Uint64 // claims of timers that were not flushed
	flushBegun atomic.Uint64 // claims of timers that were flushed
	spent      removals      // slots of claimed timers
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
	s.freeSpent(max)
	if !o.arrivals.empty() || o.takenRemovals != 0 || s.removals.len() != 0 || o.takenSpent != 0 {
		return false
	}
	s.alarm.offIfEmpty()
	return true
}

// freeSpent frees up to max slots of claimed timers. wheelMu is held.
func (s *shard) freeSpent(max int) {
	o := &s.owner
	for n := 0; n < max; n += removalsMax {
		if o.takenSpent == 0 {
			o.takenSpent = s.claims.spent.take()
		}
		if o.takenSpent == 0 {
			return
		}
		o.removeSpent()
		s.reclaim()
	}
}

// freeClaimed frees the slots of claimed timers, if no other goroutine holds wheelMu. Otherwise the
// holder of the lock does this work.
func (s *shard) freeClaimed() {
	for range 2 {
		if s.wheelMu.TryLock() {
			if !s.closed.Load() {
				s.freeSpent(callerQuantum)
			}
			s.unlockAndDrain()
			return
		}
		s.drainRequested.Store(true) // the holder may have looked before, so try again
	}
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
	return s.owner.counters.pendingOf(armed, stopped, s.claims.fired.Load())
}

// pendingOf returns the number of pending timers: the armed ones less those that were stopped,
// claimed or flushed.
func (c *counters) pendingOf(armed, stopped, fired uint64) int {
	return int(armed - stopped - c.stopped - fired - c.flushed)
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

// halt discards all pending timers, and those that Flush has claimed and that have not begun. Arms,
// Stops, Reschedules and claims that begin later read closed and fail. For a call that read closed
// before it was set, the word of its timer decides, so that exactly one thing happens to each timer
// and is counted:
//
//   - halt makes the words of all these timers Dead. A claim that is earlier counts, and its
//     callback has begun: only a few instructions lie between the claim and the call, and nothing
//     drops the call. halt waits until it is counted, and engine.stop for the claims of a batch of
//     Timeouts.
//   - A Stop of a timer in the inbox ends the timer within a few instructions. halt waits for it.
//   - A Stop of any other timer pushes its slot. halt waits for that too, and addStats counts it.
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
	s.discardAll()
	s.armMu.Lock()
	s.alarm.close()
	s.inbox.stopped += s.inbox.ended(&s.slots)
	for s.inbox.armed > s.inbox.stopped+o.counters.stopped+uint64(s.removals.len())+s.claims.fired.Load()+s.claims.flushBegun.Load()+o.counters.discarded {
		runtime.Gosched()
	}
	s.slots.Clear()
	s.inbox.staged, s.inbox.free = nil, nil
	if s.inbox.order != nil {
		s.inbox.order.stamps.Clear()
	}
	s.host.clear()
	for p := range uint32(s.refs.Cap()) {
		if ref := s.refs.At(p); ref != nil {
			ref.page.Store(nil)
		}
	}
	s.refs.Clear()
	s.armMu.Unlock()
	o.arrivals = arrivals{first: never}
	o.takenRemovals, o.takenSpent, o.freed, o.ending, o.expired = 0, 0, nil, nil, nil
	o.store = bucketStore{slots: o.store.slots}
	o.wheel = wheel{geometry: o.wheel.geometry, store: o.wheel.store, cur: o.wheel.cur}
}

// discardAll makes the words of all timers Dead whose callbacks have not begun. It hands those to
// the runtime that survive the wheel's Stop. O(slots).
func (s *shard) discardAll() {
	for t, pg := range s.all {
		for {
			w := pg.Load(t.index)
			k := w.Kind()
			if k != arena.Placed && k != arena.Flushed {
				break
			}
			if !pg.Swap(t.index, w, w.With(arena.Dead)) {
				continue
			}
			s.owner.counters.discarded++
			if k == arena.Flushed && w.Is(arena.Counted) {
				s.countedFuncs.waits.callEnded(s.countedFuncs.at(t.index))
			}
			if w.Is(arena.Lasting) {
				t.gen = w.Gen()
				s.host.survive(t, w)
			}
			break
		}
	}
}

// all iterates over the slots of all pages, as handles without a generation.
func (s *shard) all(yield func(t Timer, pg *arena.Page) bool) {
	for p := range uint32(s.refs.Cap()) {
		ref := s.refs.At(p)
		if ref == nil {
			continue
		}
		pg := ref.page.Load()
		for k := range uint32(arena.PageSize) {
			if pg == nil || !yield(Timer{ref: ref, index: p<<arena.PageShift | k}, pg) {
				break
			}
		}
	}
}

// countCall returns the function of a slot whose calls are counted, or nil. It counts the call
// unless Flush has counted it.
func (s *shard) countCall(i uint32, w arena.Word) *countedFunc {
	if !w.Is(arena.Counted) {
		return nil
	}
	f := s.countedFuncs.at(i) // nil, or another timer's, if the claim is about to fail
	if f != nil && w.Kind() == arena.Placed {
		f.calls.Add(1)
	}
	return f
}

// returnMoved stages a timer that was postponed while it was due. The Moved flag makes the owner
// remove the timer from a bucket that may contain it again. returnMoved returns false if the word
// has changed or the wheel is stopped.
func (s *shard) returnMoved(pg *arena.Page, i uint32, w arena.Word) bool {
	s.armMu.Lock()
	defer s.armMu.Unlock()
	if s.closed.Load() || !pg.Swap(i, w, w.With(arena.Staged)|arena.Moved) {
		return false
	}
	s.stage(i, w.Tick())
	return true
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
	if s.pending() <= o.live() && o.wheel.cascade.live() == 0 {
		if first, ok := o.wheel.first(); ok {
			tick = first
		}
	}
	return s.ticks.Begin(tick), true
}

// flush claims all pending timers and returns their number and those that have to be queued,
// because the others are due already. wheelMu is held.
func (s *shard) flush() (timers []Timer, n int) {
	o := &s.owner
	for range 2 { // meanwhile a Reschedule may have moved a timer to the inbox
		if s.closed.Load() {
			return nil, 0
		}
		s.drainAll()
		for t, pg := range s.all {
			w, ok := s.flushOne(pg, t.index)
			if !ok {
				continue
			}
			n++
			o.counters.flushed++
			if s.Manual || *o.store.pos(t.index) != 0 {
				t.gen = w.Gen()
				timers = append(timers, t)
			}
			o.leaveBucket(t.index)
		}
	}
	return timers, n
}

// flushOne claims a timer, and returns its word. It returns false if the timer is not Placed.
func (s *shard) flushOne(pg *arena.Page, i uint32) (w arena.Word, ok bool) {
	for {
		w := pg.Load(i)
		if w.Kind() != arena.Placed {
			return w, false
		}
		counted := s.countCall(i, w)
		if pg.Swap(i, w, w.With(arena.Flushed)) {
			return w, true
		}
		if counted != nil {
			s.countedFuncs.waits.callEnded(counted)
		}
	}
}
