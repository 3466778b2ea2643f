package timingwheel

import (
	"context"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// FuncTimer is a timer that calls one function and can be armed again and again. It has the
// semantics of the [time.Timer] that [time.AfterFunc] returns: Reset also arms a timer that has
// fired or been stopped, and the function may call Reset. Touch is the operation for heartbeats.
// For a single timeout a [Timer] suffices and is smaller.
//
// [TimingWheel.NewFuncTimer] makes a FuncTimer. [FuncTimer.Init] prepares one that is a field of
// another struct. Before Init or InitStopped, Reset panics and other methods do nothing. A
// FuncTimer must not be copied. Any goroutine may call its methods, and so may its function.
type FuncTimer struct {
	timer   rearmable
	timeout atomic.Int64 // ns: of the last Reset or Init
}

// NewFuncTimer returns a timer that is armed to call f once, d from now or up to one tick later,
// and never earlier. If d is zero or negative, the timer is due immediately. [Options.Executor]
// determines which goroutine runs f. On a stopped wheel the timer cannot be armed. NewFuncTimer
// panics if f is nil.
func (tw *TimingWheel) NewFuncTimer(d time.Duration, f func()) *FuncTimer {
	t := new(FuncTimer)
	t.Init(tw, d, f)
	return t
}

// Init prepares a timer that is a field of another struct and arms it, like
// [TimingWheel.NewFuncTimer]. Until Init returns, only f may call the timer's methods. Init panics
// if tw or f is nil or if the timer has already been initialised. To use a timer again, call Reset.
// The memory of a stopped timer must not be overwritten: the wheel may still refer to it.
func (t *FuncTimer) Init(tw *TimingWheel, d time.Duration, f func()) {
	t.InitStopped(tw, f)
	t.Reset(d)
}

// InitStopped prepares a timer like [FuncTimer.Init], but does not arm it: call [FuncTimer.Reset]
// to arm it.
func (t *FuncTimer) InitStopped(tw *TimingWheel, f func()) {
	if tw == nil {
		panic("timingwheel: FuncTimer with a nil wheel")
	}
	if f == nil {
		panic("timingwheel: FuncTimer with a nil function")
	}
	if t.timer.ref.Load() != nil {
		panic("timingwheel: Init called on a FuncTimer that was initialised before")
	}
	t.timer.init(tw.engine, f)
}

// Reset arms the timer to call its function once, d from now or up to one tick later. If d is zero
// or negative, the timer is due immediately. Reset reports whether the timer was already armed. If
// so, the function is not called for the old deadline. If the timer had fired, the function may
// still be running, and the next call does not wait until it returns, so two calls may overlap.
//
// On a stopped wheel Reset arms nothing and returns false. It panics if the timer was not
// initialised or if a shard already has 2^29 timers. Reset never waits for a callback. Moving the
// deadline later is one atomic operation, except in Manual mode.
func (t *FuncTimer) Reset(d time.Duration) bool {
	ref := t.timer.ref.Load()
	if ref == nil {
		panic("timingwheel: Reset called on a FuncTimer that was not initialised")
	}
	now := ref.shard.config.Read()
	if t.timeout.Load() != int64(d) { // a load costs less than a store
		t.timeout.Store(int64(d))
	}
	return t.timer.resetTo(clock.Later(now, int64(d)), now, arena.Counted)
}

// Touch postpones the timer and reports whether it was armed. The new deadline is d from now, where
// d is the duration passed to the last Reset or Init. The function is not called before the new
// deadline. A deadline that is already later is kept. If the timer has fired, or it or its wheel
// was stopped, Touch returns false and arms nothing. If Touch races with the expiry, either Touch
// returns true and the function is not called yet, or Touch returns false.
//
// Touch reads the clock once. Except in Manual mode it takes no lock.
func (t *FuncTimer) Touch() bool {
	ref := t.timer.ref.Load()
	if ref == nil {
		return false
	}
	return t.touch(ref.shard.config.Read())
}

// TouchFrom is like [FuncTimer.Touch] with now instead of the current time, and reads no clock if
// now has a monotonic reading. now may be in the past, such as the time a packet arrived.
func (t *FuncTimer) TouchFrom(now time.Time) bool {
	ref := t.timer.ref.Load()
	if ref == nil {
		return false
	}
	reading, _ := ref.shard.config.Instant(now)
	return t.touch(reading)
}

func (t *FuncTimer) touch(now int64) bool {
	for {
		h, n := t.timer.handle()
		pg, w := h.pending()
		if pg == nil {
			if t.timer.changes.Load() == n {
				return false
			}
			continue
		}
		s := h.ref.shard
		tick := s.config.ticks.Ceil(clock.Later(now, t.timeout.Load())) // read after w, which a Reset writes last
		switch {
		case tick <= w.Tick() || tick <= s.config.ticks.Floor(s.now.Load()):
			return true // further calls within the tick change nothing
		case s.config.Manual != nil:
			if moved, _ := h.lockAndMove(pg, w, tick, true); moved {
				return true
			}
		case pg.Swap(h.index, w, w.WithBits(uint64(tick))):
			return true
		}
	}
}

// Stop stops the timer and reports whether it was armed. If so, the function is not called. Stop
// returns false if the timer has fired, or if it or its wheel was already stopped. Stop does not
// wait for a call that is under way; see [FuncTimer.StopWait]. A later Reset arms the timer again.
func (t *FuncTimer) Stop() bool {
	stopped, _ := t.timer.stop()
	return stopped
}

// StopWait stops the timer and waits until no call to its function is under way. Once StopWait has
// returned nil, the function does not run until a later Reset. If a Reset arms the timer during the
// wait, StopWait stops it again or waits for its call too. If no call is under way, StopWait
// returns nil immediately, even if ctx has ended.
//
// If ctx ends first, StopWait returns ctx.Err(). The function may then be running, and a Reset
// during the wait may have armed the timer. If the function itself calls StopWait, it waits for
// itself until ctx ends. StopWait panics if ctx is nil.
func (t *FuncTimer) StopWait(ctx context.Context) error {
	mustHaveContext(ctx, "StopWait")
	if t.timer.ref.Load() == nil {
		return nil
	}
	e := t.timer.engine()
	for {
		_, n := t.timer.stop()
		stopped := e.stopped
		if e.shards[0].closed.Load() { // the first shard that the wheel's Stop closes
			<-stopped // until then a worker that has not seen the Stop may claim the timer
			stopped = nil
		}
		if !t.timer.isCalled(n, stopped == nil) {
			if t.timer.changes.Load() == n { // else a Reset may have armed the timer
				return nil
			}
			continue
		}
		ended := e.funcTimers.waits.channel(&t.timer)
		var err error
		if t.timer.changes.Load() == n && t.timer.isCalled(n, stopped == nil) { // else look again
			select {
			case <-ended:
			case <-stopped:
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if e.funcTimers.waits.wake(&t.timer); err != nil { // others look again
			return err
		}
	}
}

// Deadline returns the deadline, rounded up to a tick, on the wheel's clock. It returns false if
// the timer is not armed or its wheel was stopped. O(1).
func (t *FuncTimer) Deadline() (time.Time, bool) {
	var at time.Time
	ok, _ := t.timer.try(func(h Timer) (ok bool) { at, ok = h.Deadline(); return ok })
	return at, ok
}
