package timingwheel

import (
	"math"
	"runtime"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"time"

	"github.com/timingwheel-go/timingwheel/internal/alarm"
	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
	"github.com/timingwheel-go/timingwheel/internal/pool"
)

// engine is what [TimingWheel] and [Timeouts] have in common. It does not know the type of the
// payloads.
type engine struct {
	opts       Options // with the defaults
	config     config
	shards     []*shard
	routes     *routes // nil if there is one shard
	job        payloadJob
	perCall    int // largest number of payloads of one call
	lasting    lastingTimers
	stopped    chan struct{} // closed when the wheel is stopped
	funcTimers funcTimerState
	dues       []due   // one for each shard, or one for all
	advance    advance // Manual mode
	lateness   latenessCount
	panics     atomic.Uint64 // calls to OnPanic
	claiming   atomic.Int32  // claims whose call has not begun: of batches and of FuncTimers
}

// payloadJob is the part of an engine that knows the type of the payloads: a [job].
type payloadJob interface {
	serve(timers []Timer) int // claims and runs due timers, and returns the number of claims
	newPayloads() payloads    // for a new page
	payloadSize() uintptr
}

// newEngine returns an engine for calls with up to perCall payloads. origin is the first reading of
// the clock, which is 0 except in tests.
func newEngine(opts Options, origin int64, job payloadJob, perCall int) (*engine, error) {
	opts, err := opts.validate()
	if err != nil {
		return nil, err
	}
	limited, _ := opts.Executor.(*limit)
	if limited != nil && limited.used.Swap(true) {
		return nil, badOption("Executor", "a Limit that another wheel has", "a Limit of its own")
	}
	e := &engine{opts: opts, config: opts.config(), job: job, perCall: perCall, stopped: make(chan struct{})}
	e.config.Timeline = clock.Timeline{Base: opts.Start, Origin: origin}
	e.config.Start()
	if opts.Manual {
		e.config.Timeline.Manual = new(atomic.Int64)
		e.config.Timeline.Manual.Store(origin)
		limited = nil
	}
	e.shards = make([]*shard, opts.Shards)
	if opts.Shards > 1 {
		e.routes = newRoutes(opts.Shards)
	}
	alarms := alarm.NewGroup(e.config.Read)
	for i := range e.shards {
		s := &shard{engine: e, config: e.config}
		if i == 0 || limited == nil && !opts.Manual {
			e.dues = append(e.dues, e.newDue(opts.Executor, limited))
		}
		s.alarm.workersDrive = opts.Executor == nil
		s.alarm.due = e.dues[len(e.dues)-1]
		s.noPage.shard = s
		s.now.Store(origin)
		s.inbox.init(s)
		s.owner.init(s)
		s.alarm.init(s, alarms)
		e.shards[i] = s
	}
	return e, nil
}

// newDue returns the room for what is due: a pool, or calls for an executor and in Manual mode.
func (e *engine) newDue(executor Executor, limited *limit) due {
	if executor != nil && limited == nil {
		return &dueCalls{engine: e, executor: executor}
	}
	c := pool.Config{Active: runtime.GOMAXPROCS(0), PerCall: e.perCall}
	if limited != nil {
		c.Limit = limited.n
	}
	h := &poolHost{engine: e}
	h.due = pool.New[Timer](h, c)
	return h.due
}

func (e *engine) pending() int {
	n := 0
	for _, s := range e.shards {
		n += s.len()
	}
	return n
}

// next returns the earliest time at which a shard has work to do, and false if no timer is pending.
func (e *engine) next() (at time.Time, ok bool) {
	first := int64(math.MaxInt64)
	for _, s := range e.shards {
		if t, some := s.nextDue(); some {
			first, ok = min(first, t), true
		}
	}
	if !ok {
		return time.Time{}, false
	}
	return e.config.TimeAt(first), true
}

// shard is one independent wheel with its driver. It connects the parts, two of which have a lock:
//
//	inbox.mu  also guards the alarm. It is held for tens of nanoseconds.
//	owner.mu  is held by drivers and workers for a quantum at a time. Calls that arm, stop or move a
//	          timer only try to lock it.
//
// docs/internals/locking.md has the order of the locks and the proofs. No goroutine holds the locks
// of two shards.
//
// Invariants, whenever owner.mu and inbox.mu are free:
//
//	S1  A record of an open page is used, free or retired, and a chunk is used or free. At most one
//	    open page of records and one of chunks is empty.
//	S2  An entry of a bucket names a record whose position is that entry, and each position is such
//	    an entry.
//	S3  The chunks of a bucket form a doubly linked list and name the bucket as their owner. They
//	    have as many live entries as the bucket counts.
//	S4  If owner.expired has timers, the alarm's tick has begun, or a driver is starting or running.
//	S5  The alarm goes off no later than the first bucket with timers and the first timer of the
//	    inbox and of the arrivals, unless a driver is starting or running.
//	S6  A Placed timer that is in no bucket has an entry in owner.expired, in the queue of due, or in
//	    a batch that has been taken from the queue; during an Advance perhaps in advance.all.
type shard struct {
	_ [64]byte // separates the cache lines that are written here from the object before

	engine *engine
	config config            // immutable
	pages  arena.Table[page] // one per page of inbox.records; inbox.mu guards writes

	closed         atomic.Bool // no arm, Stop, Reschedule or claim succeeds any more
	drainRequested atomic.Bool // a caller asks the owner to drain the inbox and the removals
	alarm          driverAlarm
	now            atomic.Int64 // ns: a time that has passed, stored by the owner

	claimed  claimed
	removals removalStack // records of stopped and of claimed timers
	noPage   pageRef      // the ref of a handle without a timer

	_ [64]byte

	inbox inbox

	_ [64]byte

	owner owner
}

// claimed counts the claims of a shard. Workers write it without a lock.
type claimed struct {
	_          [64]byte
	fired      atomic.Uint64 // claims of timers that were not flushed
	flushBegun atomic.Uint64 // claims of timers that were flushed
}

// callerQuantum is the largest number of timers that a caller places, and the largest number that
// it removes, in one call. Callers add fewer than that between two calls, so a backlog shrinks.
const callerQuantum = 4 * inboxSize

// tryDrain places arrivals and carries out removals, up to callerQuantum of each, unless another
// goroutine holds owner.mu. That goroutine, or the next caller, then does this work.
func (s *shard) tryDrain() {
	s.drainRequested.Store(true)
	for range 2 {
		if !s.owner.mu.TryLock() {
			return
		}
		s.drainRequested.Store(false)
		if !s.closed.Load() {
			s.owner.drain(callerQuantum)
		}
		s.unlock()
		if !s.drainRequested.Load() {
			return
		}
	}
}

// unlock unlocks owner.mu, after it has moved the alarm if a bucket has to be taken earlier.
func (s *shard) unlock() {
	if s.owner.wheel.first() < s.alarm.at.Load() {
		s.alarm.reset()
	}
	s.owner.mu.Unlock()
}

func (s *shard) unlockAndDrain() {
	s.unlock()
	if s.drainRequested.Load() {
		s.tryDrain()
	}
}

// yield unlocks owner.mu and locks it again, so that other goroutines can lock it.
func (s *shard) yield() {
	s.unlock()
	s.owner.mu.Lock()
}

// pending is called with owner.mu held, after drainAll.
func (s *shard) pending() int {
	s.inbox.mu.Lock()
	counts := s.inbox.count()
	s.inbox.mu.Unlock()
	return s.owner.counters.pendingOf(counts.armed, counts.stopped, s.claimed.fired.Load())
}

func (s *shard) len() int {
	s.owner.mu.Lock()
	defer s.unlockAndDrain()
	if s.closed.Load() {
		return 0
	}
	s.owner.drainAll()
	return s.pending()
}

// all iterates over the records of all pages, as handles without a generation.
func (s *shard) all(yield func(t Timer, pg *arena.Page) bool) {
	for p, page := range s.pages.All {
		pg := page.ref.page.Load()
		for k := uint32(0); pg != nil && k < arena.PageSize; k++ {
			if !yield(Timer{ref: page.ref, index: p<<arena.PageShift | k}, pg) {
				return
			}
		}
	}
}

// nextDue returns the clock reading at which the shard has work to do, and false if no timer is
// pending.
func (s *shard) nextDue() (int64, bool) {
	s.owner.mu.Lock()
	defer s.unlockAndDrain()
	if s.closed.Load() {
		return 0, false
	}
	s.owner.drainAll()
	pending := s.pending() // once, because claims and Stops change it
	if pending == 0 {
		return 0, false
	}
	o := &s.owner
	tick := o.wheel.cur // for timers that have expired and are not moved or claimed yet
	if pending <= o.live() && o.wheel.cascade.live() == 0 {
		tick = o.wheel.first()
	}
	return s.config.ticks.Begin(tick), true
}
