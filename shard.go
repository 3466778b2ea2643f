package timingwheel

import (
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
	"github.com/timingwheel-go/timingwheel/internal/sampling"
)

// shard is one independent wheel with its driver and its workers. The locks are the shard's, and it
// connects the parts. These take no lock of the shard and do not know the shard. The alarm, which
// does, belongs to it.
//
// A timer's state is the word of its slot. Every step is one compare-and-swap of that word, so
// callers need a lock only to arm a timer or to move it to an earlier deadline, and for the slot of
// a FuncTimer:
//
//	armMu    guards the inbox, the free slots and the alarm. It is held for tens of nanoseconds.
//	         An arming caller that finds it taken goes on to the next shard.
//	wheelMu  guards what is placed: wheel, due timers, workers. Drivers and workers hold it for
//	         a quantum at a time. Calls that arm, stop or move a timer only try to lock it, so
//	         they do not wait for drivers and workers.
//
// The goroutine that holds wheelMu is the owner. Order of locks: wheelMu, then armMu.
type shard struct {
	_ [64]byte // keeps the neighbour in memory off the lines that are written here

	config         // never changes
	host           host
	funcs          *arena.Table[[arena.PageSize]func()] // the payloads, if callbacks: saves a call of host
	closed         atomic.Bool                          // no arm, Stop, Reschedule or claim succeeds any more
	epoch          atomic.Uint32                        // Flushes, and the Stop of the wheel; see FuncTimer.marks
	drainRequested atomic.Bool                          // a caller asks the owner to drain the inbox and the removals
	alarm          alarm
	words

	claims   claims
	removals removals

	_          [64]byte
	armMu      sync.Mutex
	inbox      inbox
	slots      arena.Slots    // its pages are read without the lock
	order      *armOrder      // Manual mode; else nil
	funcTimers funcTimerState // of FuncTimers

	_       [64]byte
	wheelMu sync.Mutex
	owner   owner
}

// host is the typed part of a shard. It holds the payloads and runs them.
type host interface {
	drop(i uint32)                               // clears the payload of slot i
	pageOf(i uint32) *atomic.Pointer[arena.Page] // what handles of slot i refer to; armMu is held
	closePage(p int)                             // drops the payloads of a page that was given back
	clear()                                      // drops all payloads and all pages
	moveSurvivors()                              // hands the timers that survive the wheel's Stop to the runtime
	drive()                                      // runs a driver; called with wheelMu held, returns without it
}

// init prepares a shard that was allocated as part of its typed form.
func (s *shard) init(c config, h host) {
	s.config, s.host = c, h
	s.slots.Closed = h.closePage
	s.pages, s.near = &s.slots.Pages, c.ticks.Begin(arena.Near)
	s.now.Store(c.Origin)
	s.inbox.init()
	s.inbox.now = c.Origin
	if c.profileRate > 0 {
		s.inbox.sampleEvery(c.profileRate)
	}
	s.alarm.shard = s
	s.alarm.at.Store(never)
	o := &s.owner
	o.config, o.words = &s.config, &s.words
	o.tick = c.ticks.Floor(c.Origin)
	o.aged = o.tick
	o.arrivals.first = never
	o.store.slots = &s.slots.Pages
	o.due.store = &o.store
	o.due.manual = c.Manual
	o.wheel.init(c.geometry, &o.store, o.tick)
	o.pool.init(firstBatch)
	if c.Manual {
		s.order = new(armOrder)
		o.order = s.order
	}
}

// claims are the counters that workers and callers of Stop write without a lock.
type claims struct {
	_        [64]byte
	planEnds atomic.Uint64 // Stops of plans during a run
	runs     atomic.Uint64 // runs of plans and calls of FuncTimers that have begun
	updating atomic.Int64  // calls of doUnlessClosed under way
	launched atomic.Uint64 // of workerPool.launches, those whose callbacks have begun or were dropped
	dropped  atomic.Uint64 // timers that were claimed and not run, because the wheel was stopped

	returning atomic.Int32 // workers that have run callbacks and wait for wheelMu
}

// doUnlessClosed calls f if the wheel is not stopped, and reports whether it has. f changes counters
// without a lock, so halt waits for calls that are under way.
func (c *claims) doUnlessClosed(closed *atomic.Bool, f func()) bool {
	c.updating.Add(1)
	defer c.updating.Add(-1)
	if closed.Load() {
		return false
	}
	f()
	return true
}

// countRun counts a run of a plan that begins, unless the wheel is stopped.
func (c *claims) countRun(closed *atomic.Bool) { c.doUnlessClosed(closed, func() { c.runs.Add(1) }) }

// funcTimerState is the state that a shard keeps for its FuncTimers.
type funcTimerState struct {
	// inFlight has the FuncTimers that are listed, by FuncTimer.marks. armMu guards it.
	inFlight map[*atomic.Uint32]*inFlightCalls

	// requests is a stack. Callers that found armMu taken have pushed them, and a later holder of
	// armMu serves them.
	requests       atomic.Pointer[request]
	taken          *request      // armMu: requests that were taken off the stack and are not served
	serverStarting atomic.Bool   // a goroutine is about to serve the requests
	armed          atomic.Uint64 // timers that were armed without armMu
	stopped        atomic.Uint64 // timers that were stopped without armMu
}

// request is a function to be called under armMu, perhaps twice, unless the wheel is stopped by
// then.
type request struct {
	do   func()
	next *request
}

// push adds a request. It reports whether the caller has to start a goroutine that serves it.
func (a *funcTimerState) push(do func()) bool {
	r := &request{do: do}
	for {
		r.next = a.requests.Load()
		if a.requests.CompareAndSwap(r.next, r) {
			return a.serverStarting.CompareAndSwap(false, true)
		}
	}
}

// serve serves all requests. armMu is held, and released while memory is allocated. Another server
// may come meanwhile. It must not miss a request, so one that is under way stays in taken.
func (a *funcTimerState) serve(closed *atomic.Bool) {
	for {
		if a.taken == nil {
			if a.requests.Load() == nil {
				return
			}
			a.taken = a.requests.Swap(nil)
		}
		r := a.taken
		if !closed.Load() {
			r.do()
		}
		if a.taken == r {
			a.taken = r.next
		}
	}
}

// counts returns how many timers were armed and stopped, with and without armMu, as of one moment.
// A timer whose arming is under way may count as armed. Stopped timers that are still in the inbox
// count as well: the count of a Stop without armMu moves there when its request is served. armMu is
// held.
func (a *funcTimerState) counts(ib *inbox, slots *arena.Slots) (armed, stopped uint64) {
	for {
		stopped = a.stopped.Load()
		armed = a.armed.Load()
		if a.stopped.Load() == stopped {
			return armed + ib.armed, stopped + ib.stopped + ib.ended(slots)
		}
	}
}

// inFlightCalls describes the calls of one FuncTimer that are under way.
type inFlightCalls struct {
	more  int           // calls under way besides the first
	ended chan struct{} // for StopWait: closed when no call is under way any more
}

// tickOf returns the tick of a deadline: the current one if the deadline has passed.
func (c *config) tickOf(deadline, now int64) int64 {
	if deadline <= now {
		return c.ticks.Floor(now)
	}
	return c.ticks.Ceil(deadline)
}

// noteReading returns the clock reading for an arming caller and notes it. now is the caller's
// reading, or clock.Unread. In that case the latest reading of the shard will do, unless it is
// idle.
func (s *shard) noteReading(now int64) int64 {
	ib := &s.inbox
	switch {
	case now == clock.Unread && (s.Manual || s.alarm.at.Load() != never):
		return max(ib.now, s.now.Load()) // not before the clock: no old deadline is encoded
	case now == clock.Unread: // the shard is idle, and its readings are old
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

// wallNow returns the present for plans, contexts and channels. Outside Manual mode it reads both
// clocks anew, because a plan may be one of dates and the wall clock may have been set since New.
func (s *shard) wallNow() time.Time {
	if s.Manual {
		return s.TimeAt(s.now.Load())
	}
	return s.Date()
}

// release clears the payload of slot i, whose timer the caller has stopped.
func (s *shard) release(i uint32) {
	if s.funcs == nil {
		if s.scanned {
			s.host.drop(i)
		}
		return
	}
	if pg := s.funcs.At(i >> arena.PageShift); pg != nil { // else the wheel is stopped
		pg[i&arena.PageMask] = nil
	}
}

// unlockArm unlocks armMu after a timer was put into the inbox. If the inbox is full, the caller
// offers to place its timers.
func (s *shard) unlockArm() {
	if len(s.inbox.staged) < s.inbox.checkAt {
		s.armMu.Unlock()
		return
	}
	s.checkAndUnlock()
}

// checkAndUnlock is unlockArm if the inbox has to be swept or its last timer to be sampled.
func (s *shard) checkAndUnlock() {
	var sampled sampling.Timer
	if table := s.inbox.samples; table != nil {
		if i, w, ok := s.inbox.sample(&s.slots); ok {
			sampled = sampling.Timer{Page: s.host.pageOf(i), Index: i, Gen: w.Gen()}
		}
	}
	crowded := s.inbox.sweepIfFull(&s.slots)
	s.armMu.Unlock()
	if sampled.Page != nil {
		origin := sampling.Here(s.reading())
		s.armMu.Lock()
		if !s.closed.Load() {
			s.inbox.samples.Set(sampled, origin)
		}
		s.armMu.Unlock()
	}
	if crowded {
		s.tryDrain()
	}
}

// stage puts a timer into the inbox and sets the alarm if the timer is the first. armMu is held.
func (s *shard) stage(i uint32, tick int64) {
	if s.inbox.add(i, tick) {
		s.alarm.setEarlier(tick)
	}
}

// callerQuantum is the largest number of timers that a caller places, and removes, in one call. It
// is more than a caller adds before it offers help, so a backlog shrinks.
const callerQuantum = 4 * inboxSize

// tryDrain places the arrivals and carries out the removals for a caller that has found many, if the
// wheel is free. If it is not, its owner does the work when it unlocks, or the next caller does.
func (s *shard) tryDrain() {
	s.drainRequested.Store(true)
	for range 2 {
		if !s.wheelMu.TryLock() {
			return
		}
		s.drainRequested.Store(false)
		if !s.closed.Load() {
			s.drain(callerQuantum)
			if s.owner.wheel.live == 0 {
				s.alarm.correct()
			}
		}
		s.unlock()
		if !s.drainRequested.Load() {
			return
		}
	}
}

// correctAlarm corrects the alarm after a Stop of the timer for which it is set, if the wheel is free.
func (s *shard) correctAlarm() {
	if s.Manual {
		return
	}
	if !s.wheelMu.TryLock() {
		s.drainRequested.Store(true) // the owner, or a later one, will drain
		if !s.wheelMu.TryLock() {
			return
		}
	}
	s.alarm.correct()
	s.unlockAndDrain()
}

// unlock unlocks wheelMu. Before that, it sets the alarm to an earlier tick if a bucket has to be
// taken before the alarm goes off. It also sets the number of removals at which a Stop offers to
// carry them out. That number is low for a small wheel, because the removals may be all that the
// wheel holds. Otherwise the alarm would stay set for a wheel without pending timers.
func (s *shard) unlock() {
	if first, ok := s.owner.wheel.first(); ok && first < s.alarm.at.Load() {
		s.alarm.reset()
	}
	s.removals.setThreshold(s.owner.wheel.live)
	if len(s.owner.freed) >= removalsMax { // by claims under the lock
		s.reclaim()
	}
	checkInvariants(s)
	s.wheelMu.Unlock()
}

// unlockAndDrain calls unlock and then does the work that callers have asked for meanwhile.
func (s *shard) unlockAndDrain() {
	s.unlock()
	if s.drainRequested.Load() {
		s.tryDrain()
	}
}

// yield releases the lock for a moment, so that other goroutines get it.
func (s *shard) yield() {
	s.unlock()
	s.wheelMu.Lock()
}

// drainAll is drain without a bound: nothing that was armed or stopped before the call is left.
func (s *shard) drainAll() {
	s.drain(math.MaxInt) // places what was taken out of the inbox before the call
	s.drain(math.MaxInt)
}

// drain takes up to max timers out of the inbox and carries out up to max removals. It reports
// whether nothing is left.
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
	return o.arrivals.empty() && o.takenRemovals == 0 && s.removals.len() == 0
}

// reclaim gives back the slots that nothing names any more, and returns to the inbox those whose
// Stop is about to end them.
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
	s.inbox.skipSamples()
	o.freed, o.ending = o.freed[:0], o.ending[:0]
}

// takeArrivals takes over what is in the inbox, if all earlier arrivals are placed.
func (s *shard) takeArrivals() {
	a := &s.owner.arrivals
	if !a.empty() {
		return
	}
	s.armMu.Lock()
	s.funcTimers.serve(&s.closed)
	a.slots, a.first = s.inbox.take(a.slots[:0])
	now := s.inbox.now
	s.armMu.Unlock()
	a.done = 0
	if !s.Manual {
		s.owner.noteReading(now) // or the driver leaps
	}
}

// pending returns the number of pending timers. wheelMu is held and everything is drained.
func (s *shard) pending() int {
	s.armMu.Lock()
	runs := s.claims.runs.Load()
	armed, stopped := s.funcTimers.counts(&s.inbox, &s.slots)
	s.armMu.Unlock()
	o := &s.owner
	for _, b := range o.pool.batches { // the claims of workers that have not come back for the lock
		o.countBatch(b)
	}
	return o.counters.pending(armed, stopped, runs)
}

// len is Len of one shard.
func (s *shard) len() int {
	s.wheelMu.Lock()
	defer s.unlockAndDrain()
	if s.closed.Load() {
		return 0
	}
	s.drainAll()
	return s.pending()
}

// halt discards everything that is pending. Arms, Stops, Reschedules and claims see closed. A call
// that read closed before it was set is decided by the word of its timer. So exactly one thing
// happens to each timer, and it is counted:
//
//   - A claim without the lock swaps the word of a batch's entry. halt makes these words Dead. A
//     claim that comes before halt counts, and its callback has begun: only a few instructions lie
//     between the claim and the call, and nothing drops the call.
//   - A claim under the lock is followed by the start of spares. The worker therefore reads closed
//     once more before the call, and then counts the launch. halt waits for this count, for a few
//     instructions, or until a worker that was preempted there gets a processor.
//   - A Stop of a timer in the inbox ends the timer within a few instructions. halt waits for it.
//   - A Stop of any other timer pushes its slot. addStats counts the slots that were pushed since.
func (s *shard) halt() {
	s.closed.Store(true)
	s.armMu.Lock() // FuncTimer.set reads closed before epoch
	s.epoch.Add(1)
	s.armMu.Unlock()
	s.wheelMu.Lock()
	defer s.wheelMu.Unlock()
	o := &s.owner
	if o.wheel.levels == nil {
		return // stopped before
	}
	for {
		s.drainAll()
		s.armMu.Lock()
		ending := len(s.inbox.staged) // timers that a Stop is about to end
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
	for s.claims.updating.Load() != 0 || s.claims.launched.Load() != o.pool.launches {
		runtime.Gosched()
	}
	o.counters.fired -= s.claims.dropped.Load()
	o.counters.discarded += uint64(s.pending())
	s.armMu.Lock()
	s.alarm.off()
	s.inbox.stopped += s.inbox.ended(&s.slots)
	s.slots.Clear()
	s.inbox.staged, s.inbox.free = nil, nil
	s.order, o.order = nil, nil
	s.inbox.samples, s.inbox.distance, s.inbox.sampleAt = nil, nil, never
	s.host.clear()
	s.armMu.Unlock()
	o.arrivals = arrivals{first: never}
	o.takenRemovals, o.freed, o.ending = 0, nil, nil
	o.store = bucketStore{slots: o.store.slots}
	o.wheel = wheel{geometry: o.wheel.geometry, store: o.wheel.store, cur: o.wheel.cur}
	o.due = dueList{store: o.due.store, manual: o.due.manual}
	o.pool.batches = nil
	s.far.clear()
}

// nextDue returns the clock reading, in ns, at which the shard has work to do. It returns false if
// no timer is pending.
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
	tick := o.wheel.cur // something has expired and waits to be moved or claimed
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

// flush makes all pending timers due and returns their number. Timers that a worker
// has taken are due already.
func (s *shard) flush() (n int) {
	s.wheelMu.Lock()
	defer s.unlockAndDrain()
	if s.closed.Load() {
		return 0
	}
	if s.Manual {
		s.setClaiming(true)
	}
	s.epoch.Add(1)
	s.drainAll()
	n = s.pending()
	o := &s.owner
	for _, b := range o.pool.batches {
		for _, e := range b.entries {
			if !stale(e) {
				o.makeDueNow(e.index) // if it was postponed, the worker returns it to the inbox
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

// verify walks the shard and checks its invariants. Tests call it after every step. Under the build
// tag invariants the shard calls it itself. wheelMu is held. Calls of Stop and Reschedule may be
// under way, so verify checks only what holds between any two of their steps. O(slots).
//
//	S1  The pagers' counts and sets agree with their bitmaps, and each pager has at most one empty
//	    page.
//	S2  An entry of a bucket names a slot whose position is that entry, and each position is such an
//	    entry.
//	S3  A bucket's list is well linked, is owned by the bucket and has as many live entries as the
//	    bucket says.
//	S4  due.ready is the number of timers in due.entries and due.buckets. No count of workers is
//	    negative.
//	S5  The alarm goes off no later than the first bucket with timers and the first timer of the
//	    inbox and of the arrivals, unless a driver is on its way.
//	S6  The owner's clock is less than arena.Near ticks ahead of the last aging of due timers.
//
// It also checks the invariants of the wheel (W) and of the inbox (B).
func (s *shard) verify() error {
	if s.closed.Load() {
		return nil
	}
	s.armMu.Lock()
	defer s.armMu.Unlock()
	if err := s.owner.wheel.verify(); err != nil {
		return err
	}
	for _, check := range []func(*shard) error{verifyPages, verifyBuckets, verifyInbox, verifyDue, verifyAlarm, verifyAge} {
		if err := check(s); err != nil {
			return err
		}
	}
	return nil
}

func verifyPages(s *shard) error {
	if err := s.slots.Pager.Verify(); err != nil {
		return fmt.Errorf("S1, slots: %w", err)
	}
	if err := s.owner.store.chunks.pager.Verify(); err != nil {
		return fmt.Errorf("S1, chunks: %w", err)
	}
	return nil
}

// allBuckets iterates over the buckets of the wheel, of the due list and of the cascade.
func allBuckets(o *owner) iter.Seq[*bucket] {
	return func(yield func(*bucket) bool) {
		for _, list := range []iter.Seq[*bucket]{o.wheel.buckets, o.due.all, o.wheel.cascade.all} {
			for b := range list {
				if !yield(b) {
					return
				}
			}
		}
	}
}

func verifyBuckets(s *shard) (err error) {
	o := &s.owner
	entries := 0
	for b := range allBuckets(o) {
		live, last := 0, uint32(0)
		for c := b.head; c != 0; c = o.store.chunks.meta(c).next {
			m := o.store.chunks.meta(c)
			if m.prev != last || m.bucket != b.id || o.store.all[b.id] != b {
				return fmt.Errorf("S3: bucket %d: chunk %d has previous %d and owner %d", b.id, c, m.prev, m.bucket)
			}
			live += m.count()
			last = c
		}
		if last != b.tail || live != b.live {
			return fmt.Errorf("S3: bucket %d ends in %d with %d live entries, not in %d with %d", b.id, last, live, b.tail, b.live)
		}
		entries += live
		o.store.each(b, func(pos, i uint32) {
			w := o.store.word(i)
			if *o.store.pos(i) != pos {
				err = fmt.Errorf("S2: entry %d of bucket %d names slot %d, whose position is %d", pos, b.id, i, *o.store.pos(i))
			}
			if b.state != bucketQueued || w.Kind() != arena.Placed {
				return
			}
			if tick, ok := s.decode(w, o.tick); ok && tick < b.at {
				err = fmt.Errorf("W3: timer of tick %d in a bucket of tick %d", tick, b.at)
			}
		})
		if err != nil {
			return err
		}
	}
	listed := 0
	for p := range s.slots.Pager.Len() {
		if pg := s.slots.Pages.At(uint32(p)); pg != nil {
			for _, pos := range pg.Pos {
				if pos != 0 {
					listed++
				}
			}
		}
	}
	if listed != entries {
		return fmt.Errorf("S2: %d slots have a position, the buckets have %d entries", listed, entries)
	}
	return nil
}

func verifyInbox(s *shard) error {
	seen := make(map[uint32]bool)
	first := s.inbox.first
	for list, slots := range [][]uint32{s.inbox.staged, s.owner.arrivals.slots[s.owner.arrivals.done:]} {
		if list == 1 {
			first = min(s.inbox.first, s.owner.arrivals.first) // one may have been moved to an earlier tick
		}
		for _, i := range slots {
			w := loadWord(&s.slots.Pages, i)
			if k := w.Kind(); seen[i] || k != arena.Staged && k != arena.Ending && k != arena.Ended {
				return fmt.Errorf("B1: slot %d of the inbox has kind %d, or stands there twice", i, k)
			}
			seen[i] = true
			if w.Kind() != arena.Staged {
				continue
			}
			if tick, ok := s.decode(w, s.owner.tick); ok && tick < first {
				return fmt.Errorf("B2: timer of tick %d in the inbox, whose first tick is %d", tick, first)
			}
		}
	}
	if n := int64(len(s.inbox.staged)); s.inbox.sampleAt <= n {
		return fmt.Errorf("B4: %d timers in the inbox, the next sample is at %d", n, s.inbox.sampleAt)
	}
	for p := range s.slots.Pager.Len() {
		pg := s.slots.Pages.At(uint32(p))
		for k := range uint32(arena.PageSize) {
			if pg == nil {
				break
			}
			i := uint32(p)<<arena.PageShift | k
			if kind := pg.Load(i).Kind(); !seen[i] && (kind == arena.Staged || kind == arena.Ending) && !slices.Contains(s.owner.ending, i) {
				return fmt.Errorf("B1: slot %d of kind %d is not in the inbox", i, kind)
			}
		}
	}
	for _, i := range s.inbox.free {
		w := loadWord(&s.slots.Pages, i)
		k := w.Kind()
		pending := k == arena.Staged || k == arena.Placed || k == arena.Running || k == arena.Ending
		if seen[i] || pending || *s.owner.store.pos(i) != 0 || s.slots.Pager.IsFree(int(i>>arena.PageShift), i&arena.PageMask) {
			return fmt.Errorf("B3: free slot %d has kind %d and position %d", i, k, *s.owner.store.pos(i))
		}
		seen[i] = true
	}
	return nil
}

func verifyDue(s *shard) error {
	o := &s.owner
	ready := len(o.due.entries) - o.due.taken
	for b := range o.due.buckets.all {
		ready += b.live
	}
	if ready != o.due.ready {
		return fmt.Errorf("S4: %d timers are due, counted %d", ready, o.due.ready)
	}
	if pool := &o.pool; pool.starting < 0 || pool.running < 0 || pool.queuedCalls < 0 || pool.stuck < 0 || pool.serving < pool.stuck {
		return fmt.Errorf("S4: counts of workers: %d, %d, %d, %d, %d", pool.starting, pool.running, pool.queuedCalls, pool.stuck, pool.serving)
	}
	return nil
}

func verifyAge(s *shard) error {
	if o := &s.owner; o.tick-o.aged >= arena.Near {
		return fmt.Errorf("S6: the clock is at tick %d, the last aging was at %d", o.tick, o.aged)
	}
	return nil
}

func verifyAlarm(s *shard) error {
	if s.Manual {
		return nil
	}
	at := s.alarm.at.Load()
	for b := range s.owner.wheel.buckets {
		if b.live > 0 && b.key < at {
			return fmt.Errorf("S5: bucket of tick %d, alarm at %d", b.key, at)
		}
	}
	if first := min(s.inbox.first, s.owner.arrivals.first); first < at {
		return fmt.Errorf("S5: a timer of tick %d is not placed, alarm at %d", first, at)
	}
	return nil
}
