package timingwheel

import (
	"context"
	"runtime"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// FuncTimer is a timer that calls one function and can be armed again and again. It has the
// semantics of the [time.Timer] of [time.AfterFunc]: Reset arms a timer that has fired or was
// stopped as well, and the function may call it. Touch is the operation for heartbeats. For a
// single timeout a [Timer] suffices and is smaller.
//
// [TimingWheel.NewFuncTimer] makes a FuncTimer. [FuncTimer.Init] prepares one that is a field of
// another struct. Before that, Reset panics and the other methods do nothing. A FuncTimer must not
// be copied. Its methods may be called from any goroutine, its own function included.
type FuncTimer struct {
	// A FuncTimer is the handle of an ordinary timer, whose payload is f. The word of that timer
	// decides, as for a [Timer]:
	//
	//	state    the handle's timer      changes to
	//	unarmed  none, or it has ended   armed: Reset makes a new timer, in rearm
	//	armed    it is pending           armed: Touch and Reset move it, or Reset replaces it in rearm;
	//	                                 unarmed: Stop, the claim of a worker, or the wheel's Stop
	//
	//	F1  While changes is even, no timer of f but the handle's may be pending.
	//
	// A Reset that has a timer ready makes changes odd, replaces the handle, and makes changes
	// even. It holds the armMu of the new timer's shard, so no worker claims the timer before that.
	// A reader that has read the same even number before and after the handle has a handle of one
	// timer. If that timer is not pending, and changes still is the same, the FuncTimer is unarmed.
	countedFunc                         // first, because Touch reads changes and the fields below
	ref         atomic.Pointer[pageRef] // nil before Init
	record      atomic.Uint64           // index<<32 | generation
	timeout     atomic.Int64            // ns: of the last Reset or Init
}

// NewFuncTimer returns a timer that is armed to call f once, d from now or up to one tick later,
// and never earlier. A zero or negative d means at once. [Options.Executor] decides on which
// goroutine f runs. On a stopped wheel the timer is not armed and cannot be. NewFuncTimer panics if
// f is nil.
func (tw *TimingWheel) NewFuncTimer(d time.Duration, f func()) *FuncTimer {
	t := new(FuncTimer)
	t.Init(tw, d, f)
	return t
}

// Init prepares a timer that is a field of another struct and arms it, like
// [TimingWheel.NewFuncTimer]. It must return before any other method is called. Init panics if tw
// or f is nil, and if the timer was initialised before. To use a timer again, call Reset. The
// memory of a stopped timer must not be overwritten, because the wheel may still refer to it for a
// moment.
func (t *FuncTimer) Init(tw *TimingWheel, d time.Duration, f func()) {
	t.InitStopped(tw, f)
	t.Reset(d)
}

// InitStopped prepares a timer like [FuncTimer.Init] and does not arm it. A later [FuncTimer.Reset]
// does.
func (t *FuncTimer) InitStopped(tw *TimingWheel, f func()) {
	if tw == nil {
		panic("timingwheel: FuncTimer with a nil wheel")
	}
	if f == nil {
		panic("timingwheel: FuncTimer with a nil function")
	}
	if t.ref.Load() != nil {
		panic("timingwheel: Init of a FuncTimer that was initialised before")
	}
	t.f = f
	t.ref.Store(&engineOf(tw).shards[0].noPage)
}

// Reset arms the timer to call its function once, d from now or up to one tick later. A zero or
// negative d means at once. Reset returns true if the timer was armed; the function is then not
// called for the old deadline. It returns false if the timer had fired or was stopped. The function
// may then still be running, and the next call does not wait for it, so two calls may overlap.
//
// On a stopped wheel Reset arms nothing and returns false. It panics if the timer was not
// initialised, and if a shard already has 2^29 timers. Reset waits for no callback. Moving the
// deadline later is one atomic operation, except in Manual mode.
func (t *FuncTimer) Reset(d time.Duration) bool {
	ref := t.ref.Load()
	if ref == nil {
		panic("timingwheel: Reset of a FuncTimer that was not initialised")
	}
	now := shardAt(ref).reading()
	if t.timeout.Load() != int64(d) { // a load costs less than a store
		t.timeout.Store(int64(d))
	}
	return t.resetTo(clock.Later(now, int64(d)), now)
}

// resetTo is Reset with a reading of the clock as the deadline. now is an earlier reading.
func (t *FuncTimer) resetTo(deadline, now int64) bool {
	for {
		h, n := t.handle()
		if h.move(deadline, now, false) {
			return true
		}
		if was, ok := t.rearm(h, n, deadline, now); ok {
			return was
		}
	}
}

// moveTo is resetTo for an armed timer. If the timer is not armed, moveTo returns false and arms
// nothing.
func (t *FuncTimer) moveTo(deadline, now int64) bool {
	moved, _ := t.try(func(h Timer) bool { return h.move(deadline, now, true) })
	return moved
}

// Touch postpones an armed timer and returns true. The new deadline is d from now, where d is that
// of the last Reset or Init. The function is not called before the new deadline. A deadline that is
// already later stays. If the timer has fired or was stopped, or its wheel was stopped, Touch
// returns false and arms nothing. If Touch races with the expiry, either Touch returns true and the
// function is not called yet, or Touch returns false.
//
// Touch reads the clock once. Except in Manual mode it takes no lock.
func (t *FuncTimer) Touch() bool {
	ref := t.ref.Load()
	if ref == nil {
		return false
	}
	return t.touch(shardAt(ref).reading())
}

// TouchFrom is like [FuncTimer.Touch] with now instead of the current time, and reads no clock if
// now has a monotonic reading. The time now may have passed, such as the time at which a packet
// arrived.
func (t *FuncTimer) TouchFrom(now time.Time) bool {
	ref := t.ref.Load()
	if ref == nil {
		return false
	}
	reading, _ := shardAt(ref).config.Instant(now)
	return t.touch(reading)
}

func (t *FuncTimer) touch(now int64) bool {
	for {
		h, n := t.handle()
		c, w, ok := pendingRecord(h)
		if !ok {
			if t.changes.Load() == n {
				return false
			}
			continue
		}
		s := c.shard
		tick := s.config.ticks.Ceil(clock.Later(now, t.timeout.Load())) // read after w, which a Reset writes last
		switch {
		case tick <= w.Tick() || tick <= s.config.ticks.Floor(s.now.Load()):
			return true // further calls within the tick change nothing
		case s.config.Manual:
			if moved, _ := c.lockAndMove(w, tick, true); moved {
				return true
			}
		case c.page.Swap(c.index, w, w.WithBits(uint64(tick))):
			return true
		}
	}
}

// Stop stops the timer and returns true if it was armed: the function is then not called. It
// returns false if the timer has fired or was stopped, or its wheel was stopped. Stop does not wait
// for a call that is under way; see [FuncTimer.StopWait]. A later Reset arms the timer again.
func (t *FuncTimer) Stop() bool {
	stopped, _ := t.try(Timer.Stop)
	return stopped
}

// StopWait stops the timer and waits until no call of its function is under way. Once StopWait has
// returned nil, the function does not run until a later Reset. A Reset that comes while StopWait
// waits is stopped as well, or StopWait also waits for its call. If no call is under way, StopWait
// returns nil at once, even if ctx has ended.
//
// If ctx ends first, StopWait returns ctx.Err(). The function may then be running, and such a Reset
// may have armed the timer. If the function itself calls StopWait, it waits for itself until ctx
// ends. StopWait panics if ctx is nil.
func (t *FuncTimer) StopWait(ctx context.Context) error {
	if ctx == nil {
		panic("timingwheel: StopWait with a nil context")
	}
	ref := t.ref.Load()
	if ref == nil {
		return nil
	}
	e := engineAt(ref)
	for {
		_, n := t.try(Timer.Stop)      // if it finds the timer claimed, calls has counted the claim
		if e.shards[0].closed.Load() { // the first shard that the wheel's Stop closes
			<-e.stopped // until then a worker that has not seen the Stop may claim the timer
		}
		ended := e.funcTimers.waits.wait(&t.countedFunc)
		if ended == nil && t.changes.Load() == n { // else a Reset may have armed the timer
			return nil
		}
		if err := waitFor(ctx, ended); err != nil {
			return err
		}
	}
}

// Deadline returns the deadline, rounded up to a tick, on the wheel's clock. It returns false if
// the timer is not armed or its wheel was stopped. O(1).
func (t *FuncTimer) Deadline() (time.Time, bool) {
	var at time.Time
	ok, _ := t.try(func(h Timer) (ok bool) { at, ok = h.Deadline(); return ok })
	return at, ok
}

// try calls do with the handle, and again if do returns false because a Reset has replaced the
// handle since. n is the value of changes as of the last handle.
func (t *FuncTimer) try(do func(h Timer) bool) (ok bool, n uint32) {
	for {
		h, n := t.handle()
		if do(h) {
			return true, n
		}
		if t.changes.Load() == n {
			return false, n
		}
	}
}

// handle returns the handle and the value of changes as of the handle. While a Reset is between two
// stores of the handle, handle yields to it. The handle is zero before Init.
func (t *FuncTimer) handle() (h Timer, n uint32) {
	for {
		n = t.changes.Load()
		h.ref = t.ref.Load()
		record := t.record.Load()
		h.index, h.gen = uint32(record>>32), uint32(record)
		if n&1 == 0 && t.changes.Load() == n {
			return h, n
		}
		if n&1 == 1 {
			runtime.Gosched()
		}
	}
}

// rearm makes a new timer for t. If the timer of the handle is still pending, because rearm does
// not wait for the armMu of its shard, the new timer replaces it, and was is true. h and n are from
// t.handle. ok is false if another Reset has replaced the handle since then.
func (t *FuncTimer) rearm(h Timer, n uint32, deadline, now int64) (was, ok bool) {
	e := engineAt(h.ref)
	s := e.pickAndLock()
	if !s.ensureRecord() {
		s.armMu.Unlock()
		return false, true
	}
	if !t.changes.CompareAndSwap(n, n+1) {
		s.armMu.Unlock()
		return false, false
	}
	c, w, was := pendingRecord(h)
	var to arena.Word
	for was {
		if to, _ = c.stopWord(w); c.page.Swap(c.index, w, to) {
			break
		}
		c, w, was = pendingRecord(h)
	}
	next := s.armFree(deadline, now, arena.Counted)
	s.countedFuncs.set(next.index, &t.countedFunc)
	if t.ref.Load() != next.ref {
		t.ref.Store(next.ref)
	}
	t.record.Store(uint64(next.index)<<32 | uint64(next.gen))
	t.changes.Store(n + 2)
	s.unlockArm()
	if was {
		c.finishStop(w, to) // without armMu, which a drain takes
		e.funcTimers.replaced.Add(1)
	}
	return was, true
}

// engineAt returns the engine to which a FuncTimer with this pageRef belongs.
func engineAt(ref *pageRef) *engine[func()] { return shardAt(ref).typed.(*shardOf[func()]).engine }
