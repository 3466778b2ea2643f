package timingwheel

import (
	"runtime"
	"sync"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"unsafe"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// rearmable is a timer that can be armed again and again, by its own callback too. It is the part
// that [FuncTimer], plans, [ChannelTimer] and [Ticker] have in common: the handle of an ordinary
// timer, whose callback is f. The word of that timer decides, as for a [Timer]:
//
//	state    the handle's timer      changes to
//	unarmed  none, or it has ended   armed: resetTo makes a new timer, in rearm
//	armed    it is pending           armed: resetTo and plan.reschedule move it, or rearm replaces it;
//	                                 unarmed: stop, the claim of a worker, or the wheel's Stop
//
//	F1  While changes is even, no timer of f but the handle's may be pending.
//
// rearm has a timer ready before it makes changes odd, replaces the handle, and makes changes even.
// It holds the inbox.mu of the new timer's shard, so no worker claims the timer before that. A
// reader that has read the same even number before and after the handle has a handle of one timer.
// If that timer is not pending, and changes still is the same, the rearmable is unarmed.
type rearmable struct {
	f       func()
	ref     atomic.Pointer[pageRef] // nil before init
	record  atomic.Uint64           // index<<32 | generation
	changes atomic.Uint32           // 2 for each timer that was made

	// The timers that were made and are not over are pending, or their calls are under way. If the
	// wheel is stopped, some may have been discarded instead. Then those that have begun and are
	// not over count: all claimed calls begin before the wheel's Stop returns. For class Counted
	// only.
	over  atomic.Uint32 // timers that a call has stopped or replaced, and those whose call has ended
	begun atomic.Uint32 // the same, and those whose call has begun
}

// payload returns the payload of a timer of class Counted: r in the shape of a func(), which is a
// pointer like r. The claim needs r, and so two payloads of different types fit into one page.
func (r *rearmable) payload() (p func()) {
	*(**rearmable)(unsafe.Pointer(&p)) = r
	return p
}

// rearmableOf returns the rearmable of a payload.
func rearmableOf(p func()) *rearmable { return *(**rearmable)(unsafe.Pointer(&p)) }

// isCalled reports whether a call is under way, which includes claimed calls that have not begun. n
// is the value of changes at a time when the timer was not armed. The numbers may wrap.
func (r *rearmable) isCalled(n uint32, wheelStopped bool) bool {
	if wheelStopped {
		over := r.over.Load() // first: begun is never less
		return r.begun.Load() != over
	}
	return n != 2*r.over.Load()
}

// end counts a timer that was stopped or whose call has ended.
func (r *rearmable) end(waits *callWaits) {
	r.over.Add(1)
	waits.wake(r)
}

func (r *rearmable) init(e *engine, f func()) {
	r.f = f
	r.ref.Store(&e.shards[0].noPage)
}

func (r *rearmable) engine() *engine {
	return r.ref.Load().shard.engine
}

// resetTo arms the timer for a reading of the clock and reports whether it was armed before. now is
// an earlier reading. class is the timer's class.
func (r *rearmable) resetTo(deadline, now int64, class arena.Word) bool {
	for {
		h, n := r.handle()
		if h.move(deadline, now, false) {
			return true
		}
		if was, ok := r.rearm(h, n, deadline, now, class); ok {
			return was
		}
	}
}

// stop stops the timer and reports whether it was armed. n is the value of changes.
func (r *rearmable) stop() (stopped bool, n uint32) {
	if stopped, n = r.try(Timer.Stop); stopped {
		r.begun.Add(1)
		r.end(&r.engine().funcTimers.waits)
	}
	return stopped, n
}

// try calls do with the handle, and again if do returns false because the handle was replaced
// since. n is the value of changes as of the last handle.
func (r *rearmable) try(do func(h Timer) bool) (ok bool, n uint32) {
	for {
		h, n := r.handle()
		if do(h) {
			return true, n
		}
		if r.changes.Load() == n {
			return false, n
		}
	}
}

// handle returns the handle and the value of changes as of the handle. While rearm is between two
// stores of the handle, handle yields to it. The handle is zero before init.
func (r *rearmable) handle() (h Timer, n uint32) {
	for {
		n = r.changes.Load()
		h.ref = r.ref.Load()
		record := r.record.Load()
		h.index, h.gen = uint32(record>>32), uint32(record)
		if n&1 == 0 && r.changes.Load() == n {
			return h, n
		}
		if n&1 == 1 {
			runtime.Gosched()
		}
	}
}

// rearm makes a new timer. If the timer of the handle is still pending, because move does not wait
// for the inbox.mu of its shard, the new timer replaces it, and was is true. h and n are from
// handle. ok is false if the handle was replaced since then.
func (r *rearmable) rearm(h Timer, n uint32, deadline, now int64, class arena.Word) (was, ok bool) {
	e := r.engine()
	s := e.pickAndLock()
	if !s.inbox.ensureRecord() {
		s.inbox.mu.Unlock()
		return false, true
	}
	if !r.changes.CompareAndSwap(n, n+1) {
		s.inbox.mu.Unlock()
		return false, false
	}
	pg, to := h.end()
	if was = pg != nil; was {
		r.begun.Add(1)
		r.over.Add(1)
	}
	next := s.inbox.armFree(deadline, now, class)
	payload := r.f
	if class == arena.Counted {
		payload = r.payload()
	}
	*payloadOf[func()](s, next.index) = payload
	if r.ref.Load() != next.ref {
		r.ref.Store(next.ref)
	}
	r.record.Store(uint64(next.index)<<32 | uint64(next.gen))
	r.changes.Store(n + 2)
	s.inbox.unlock()
	if was {
		h.finishStop(pg, to) // without inbox.mu, which a drain takes
		e.funcTimers.replaced.Add(1)
	}
	return was, true
}

// callWaits has the channels on which calls to StopWait wait.
type callWaits struct {
	waiting atomic.Int32 // len(channels)

	mu       sync.Mutex
	channels map[*rearmable]chan struct{}
}

// channel returns a channel that the next wake of t closes.
func (c *callWaits) channel(t *rearmable) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.channels == nil {
		c.channels = make(map[*rearmable]chan struct{})
	}
	if c.channels[t] == nil {
		c.channels[t] = make(chan struct{})
		c.waiting.Add(1)
	}
	return c.channels[t]
}

// wake wakes the goroutines that wait for t.
func (c *callWaits) wake(t *rearmable) {
	if c.waiting.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ended := c.channels[t]; ended != nil {
		close(ended)
		c.waiting.Add(-1)
		if delete(c.channels, t); len(c.channels) == 0 {
			c.channels = nil // a map does not shrink
		}
	}
}

// funcTimerState is the state that an engine keeps for its re-armable timers.
type funcTimerState struct {
	replaced  atomic.Uint64 // timers that rearm has stopped to arm another one
	planWaits atomic.Uint64 // timers of plans that have fired and were armed again without a run
	flushes   atomic.Uint32 // Flushes that have begun
	waits     callWaits
}
