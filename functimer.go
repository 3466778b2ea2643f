package timingwheel

import (
	"context"
	"math/rand/v2"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"time"
	"unsafe"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
	"github.com/timingwheel-go/timingwheel/internal/sampling"
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
	shard *shardOf[func()]

	// until is the deadline, a reading of the clock, or unarmed. Exactly one goroutine replaces a
	// deadline by unarmed: a caller of Stop, or the worker that then calls f. Touch, and a Reset to
	// a later deadline, replace until and nothing else. Stop and every other Reset replace until
	// under the shard's armMu, which guards the slot. If another goroutine holds the lock for long,
	// they replace until without it and leave a request, which updates the slot afterwards.
	until   atomic.Int64
	timeout atomic.Int64 // ns: of the last Reset or Init

	// place is the slot of the timer plus 1, or 0 if the timer has none. armMu guards it.
	//
	//	F1  A timer with a deadline has a slot or a request. The slot is Staged or Placed for a tick
	//	    that is not after the deadline's, or it is Running, or there is a request.
	//	F2  A Running slot belongs to expire. Before it calls f, expire restores F1 or releases the
	//	    slot.
	place uint32

	// marks is shard.epoch as of the last time that the deadline was set or confirmed, and two
	// flags. After a newer Flush, expire calls f whatever the deadline is.
	//
	//	calling  a call of f is under way
	//	listed   shard.funcTimers.inFlight has the timer: there are further calls, or a StopWait
	//	         waits. Then both flags change under armMu only.
	marks atomic.Uint32

	// A Touch uses only the fields above, which fit in 32 bytes.

	f   func()
	run func() // the payload: expire
}

// unarmed is the until of a timer that is not armed.
const unarmed = clock.Unread

// armTries is the number of times that a caller tries to lock armMu before it leaves a request. If
// the lock is still held then, its holder has probably been preempted.
const armTries = 200

// Bits of FuncTimer.marks.
const (
	calling   = 1 << 31
	listed    = 1 << 30
	epochMask = listed - 1
)

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
	if t.shard != nil {
		panic("timingwheel: Init of a FuncTimer that was initialised before")
	}
	t.shard, t.f, t.run = tw.engine.shardFor(unsafe.Pointer(t)), f, t.expire
	t.until.Store(unarmed)
}

// Reset arms the timer to call its function once, d from now or up to one tick later. A zero or
// negative d means at once. Reset returns true if the timer was armed; the function is then not
// called for the old deadline. It returns false if the timer had fired or was stopped. The function
// may then still be running, and the next call does not wait for it, so two calls may overlap.
//
// On a stopped wheel Reset arms nothing and returns false. It panics if the timer was not
// initialised. Reset waits for no callback. Moving the deadline later is one atomic operation,
// except in Manual mode.
func (t *FuncTimer) Reset(d time.Duration) bool {
	s := t.shard
	if s == nil {
		panic("timingwheel: Reset of a FuncTimer that was not initialised")
	}
	now := s.reading()
	deadline := clock.Later(now, int64(d))
	if d <= 0 {
		deadline = s.ticks.Begin(s.ticks.Floor(now)) // whose tick has come
	}
	t.timeout.Store(int64(d))
	for !s.Manual {
		u := t.until.Load()
		if u == unarmed || u > deadline || !t.renew() {
			break
		}
		if t.until.CompareAndSwap(u, deadline) {
			return true
		}
	}
	for !t.tryLock() {
		if was, ok := t.setUnlocked(deadline); ok {
			return was
		}
	}
	return t.set(deadline, now, true)
}

// Touch postpones an armed timer and returns true. The new deadline is d from now, where d is that
// of the last Reset or Init. The function is not called before the new deadline. A deadline that is
// already later stays. If the timer has fired or was stopped, or its wheel was stopped, Touch
// returns false and arms nothing. If Touch races with the expiry, either Touch returns true and the
// function is not called yet, or Touch returns false.
//
// Touch reads the clock once. Except in Manual mode, it takes no lock and writes to the timer only.
func (t *FuncTimer) Touch() bool {
	s := t.shard
	if s == nil {
		return false
	}
	return t.touch(s.reading())
}

// TouchFrom is like [FuncTimer.Touch] with now instead of the current time, and reads no clock if
// now has a monotonic reading. The time now may have passed, such as the time at which a packet
// arrived.
func (t *FuncTimer) TouchFrom(now time.Time) bool {
	if t.shard == nil {
		return false
	}
	reading, _ := t.shard.Instant(now)
	return t.touch(reading)
}

func (t *FuncTimer) touch(now int64) bool {
	s := t.shard
	for {
		u := t.until.Load()
		deadline := clock.Later(now, t.timeout.Load()) // read after until, which a Reset writes last
		switch {
		case u == unarmed:
			return false
		case s.Manual && (u < deadline || t.outdated()):
			s.armMu.Lock()
			return t.set(deadline, now, false)
		case t.outdated():
			if !t.renew() {
				return false
			}
		case u >= deadline:
			return true
		case t.until.CompareAndSwap(u, s.ticks.Begin(s.ticks.Ceil(deadline))):
			return true // further calls within the tick change nothing
		}
	}
}

// Stop stops the timer and returns true if it was armed: the function is then not called. It
// returns false if the timer has fired or was stopped, or its wheel was stopped. Stop does not wait
// for a call that is under way; see [FuncTimer.StopWait]. A later Reset arms the timer again.
func (t *FuncTimer) Stop() bool {
	s := t.shard
	if s == nil {
		return false
	}
	for !t.tryLock() {
		if stopped, ok := t.stopUnlocked(); ok {
			return stopped
		}
	}
	return t.stop()
}

// tryLock locks armMu. It gives up and returns false if another goroutine holds the lock for long,
// unless the wheel is stopped or Manual.
func (t *FuncTimer) tryLock() bool {
	s := t.shard
	for range armTries {
		if s.armMu.TryLock() {
			return true
		}
	}
	if !s.Manual && !s.closed.Load() {
		return false
	}
	s.armMu.Lock()
	return true
}

// stop is Stop. It is called with armMu held and returns without it.
func (t *FuncTimer) stop() bool {
	s := t.shard
	if t.until.Swap(unarmed) == unarmed || s.closed.Load() {
		s.armMu.Unlock()
		return false
	}
	if t.place == 0 { // its request is not served yet
		s.inbox.stopped++
		s.armMu.Unlock()
		return true
	}
	c := t.cell()
	for {
		w := c.load()
		if w.Kind() == arena.Running { // expire finds unarmed and releases the slot
			s.inbox.stopped++
			s.armMu.Unlock()
			return true
		}
		to, _ := c.ending(w)
		if c.page.Swap(c.index, w, to) {
			t.place = 0
			s.armMu.Unlock()
			c.ended(w, to)
			return true
		}
	}
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
	for t.shard != nil {
		t.shard.armMu.Lock()
		u := t.list()
		if u == nil {
			t.stop()
			break
		}
		if u.ended == nil {
			u.ended = make(chan struct{})
		}
		ended := u.ended
		t.stop()
		if err := waitFor(ctx, ended); err != nil {
			return err
		}
	}
	return nil
}

// Deadline returns the deadline, rounded up to a tick, on the wheel's clock. It returns false if
// the timer is not armed or its wheel was stopped. A Flush does not change the deadline. O(1).
func (t *FuncTimer) Deadline() (time.Time, bool) {
	s := t.shard
	if s == nil || s.closed.Load() {
		return time.Time{}, false
	}
	u := t.until.Load()
	if u == unarmed {
		return time.Time{}, false
	}
	return s.TimeAt(s.ticks.Begin(s.ticks.Ceil(u))), true
}

// set changes the deadline, earlier or later, and reports whether the timer was armed. always is
// true for a Reset, which also arms a timer that is not armed. It is false for a Touch in Manual
// mode, which moves only an armed timer, and only later. now is a reading of the clock from before
// the call, or for a Touch the time that its caller has passed. set is called with armMu held and
// returns without it.
func (t *FuncTimer) set(deadline, now int64, always bool) (was bool) {
	s := t.shard
	if always && t.place == 0 && len(s.inbox.free) == 0 {
		s.refill() // releases the lock for a while
	}
	if s.closed.Load() {
		if always {
			s.inbox.rejected++
		}
		s.armMu.Unlock()
		return false
	}
	for {
		u := t.until.Load()
		if was = u != unarmed; !was && !always {
			break
		}
		reading := now
		if !always {
			deadline = max(clock.Later(now, t.timeout.Load()), u) // another Touch may have come first
			reading = clock.Unread                                // now may be ahead of the clock
		}
		if t.until.CompareAndSwap(u, deadline) {
			t.renew()
			t.placeLocked(deadline, reading, was)
			break
		}
	}
	s.unlockArm()
	return was
}

// placeLocked restores F1 for a deadline, and counts the timer as armed if it was not. armMu is
// held. If the timer has no slot, the inbox has a free one.
func (t *FuncTimer) placeLocked(deadline, now int64, was bool) {
	s := t.shard
	now = max(now, s.now.Load()) // the caller may have been preempted since it read the clock
	// The end of the tick, even if the deadline has passed within the tick: expire waits for that.
	deadline = max(s.ticks.Begin(s.ticks.Ceil(deadline)), now)
	tick := s.tickOf(deadline, now)
	for t.place != 0 {
		c := t.cell()
		w := c.load()
		ok := w.Kind() == arena.Running // expire comes next
		if !ok {
			ok = w.Tick() <= tick && !s.Manual || c.moveLocked(w, tick)
		}
		if ok {
			if !was {
				s.inbox.armed++
				t.sampleAs(nil) // the slot is that of an earlier arming
			}
			return
		}
	}
	if h := s.armLocked(deadline, now, t.run, arena.Plan); h.ref != nil { // else the wheel is stopped
		t.place = h.index + 1
		s.callees.set(h.index, t.f)
		if was {
			s.inbox.armed-- // it is counted already
		}
	}
}

// setUnlocked is set for a Reset that has found armMu locked. ok is false if the wheel is stopped.
func (t *FuncTimer) setUnlocked(deadline int64) (was, ok bool) {
	s := t.shard
	ok = s.claims.doUnlessClosed(&s.closed, func() {
		t.renew() // first, or else expire might call f early although this call moves the deadline
		for done := false; !done; {
			u := t.until.Load()
			was = u != unarmed
			if !was {
				s.funcTimers.armed.Add(1) // before until, or else Len might be negative
			}
			done = t.until.CompareAndSwap(u, deadline)
			if !done && !was {
				s.funcTimers.armed.Add(^uint64(0))
			}
		}
	})
	switch {
	case !ok:
	case was || s.profileRate == 0:
		t.request(t.updateSlot)
	default:
		var origin *sampling.Origin
		if rand.IntN(s.profileRate) == 0 {
			origin = sampling.Here(s.reading())
		}
		t.request(func() { t.updateSlot(); t.sampleAs(origin) })
	}
	return was, ok
}

// stopUnlocked is stop for a caller that has found armMu locked. ok is false if the wheel is
// stopped.
func (t *FuncTimer) stopUnlocked() (stopped, ok bool) {
	s := t.shard
	ok = s.claims.doUnlessClosed(&s.closed, func() {
		if stopped = t.until.Swap(unarmed) != unarmed; stopped {
			s.funcTimers.stopped.Add(1)
		}
	})
	if stopped {
		t.request(t.updateSlot)
	}
	return stopped, ok
}

// request leaves a request that runs do under armMu. The next owner serves it, or a new goroutine
// that waits for the lock.
func (t *FuncTimer) request(do func()) {
	s := t.shard
	if !s.funcTimers.push(do) {
		return
	}
	go func() {
		s.engine.labels.Own()
		s.armMu.Lock()
		s.funcTimers.serverStarting.Store(false)
		s.funcTimers.serve(&s.closed)
		s.unlockArm()
		if s.drainRequested.Load() {
			s.tryDrain()
		}
	}()
}

// updateSlot updates the slot after a change of until without armMu: it restores F1 after
// setUnlocked, and releases the slot after stopUnlocked. armMu is held.
func (t *FuncTimer) updateSlot() {
	s := t.shard
	for {
		u := t.until.Load()
		switch {
		case u == unarmed:
			if t.place != 0 && t.cell().endCounted() {
				t.place = 0
			}
			return
		case t.place == 0 && len(s.inbox.free) == 0:
			if !s.refill() {
				return
			}
			continue // refill has released the lock for a while
		}
		t.placeLocked(u, clock.Unread, true)
		s.inbox.skipSamples() // the caller of Reset has decided whether this arming is sampled
		return
	}
}

// sampleAs is [Timer.sampleAs] under armMu.
func (t *FuncTimer) sampleAs(o *sampling.Origin) {
	s := t.shard
	if t.place == 0 || s.inbox.samples == nil {
		return
	}
	i := t.place - 1
	s.inbox.samples.Set(sampling.Timer{Page: s.host.pageOf(i), Index: i, Gen: t.cell().load().Gen()}, o)
}

// expire is the payload of the timer's slot, which is Running because its tick has come or was
// flushed. expire calls f if the deadline has come as well. If the deadline was moved, expire makes
// the slot pending again.
func (t *FuncTimer) expire() {
	s := t.shard
	s.armMu.Lock()
	if s.closed.Load() {
		s.armMu.Unlock()
		return
	}
	c := t.cell()
	w := c.load()
	flushed := t.outdated()
	fires := false
	for !fires {
		u := t.until.Load()
		if u == unarmed { // the timer was stopped
			break
		}
		if !flushed && !t.reached(u) {
			s.inbox.rescheduled++
			// The slot gets the next generation, because other workers may still hold the batch of
			// this claim. They would mistake the timer for a postponed one and return it to the
			// inbox, even after a Flush.
			c.stageAt(w, w.Renewed(), s.ticks.Ceil(u))
			if s.inbox.samples != nil {
				s.inbox.samples.Renew(c.index, w.Gen(), w.Renewed().Gen())
			}
			s.unlockArm()
			return
		}
		fires = t.until.CompareAndSwap(u, unarmed)
	}
	if fires {
		s.claims.runs.Add(1)
		t.noteCall()
	}
	dead := w.With(arena.Dead) | arena.Moved
	c.page.Swap(c.index, w, dead)
	t.place = 0
	s.release(c.index)
	offer := s.removals.push(c.page, c.index, dead) >= removalsMax
	s.armMu.Unlock()
	switch {
	case fires: // before any tryDrain, because the wheel's Stop waits for the claim
		t.call()
	case offer:
		s.tryDrain()
	}
}

// call calls f and notes the end of the call, even if f panics or calls runtime.Goexit.
func (t *FuncTimer) call() {
	defer t.noteEnd()
	t.f()
}

// noteCall notes that a call of f begins. armMu is held.
func (t *FuncTimer) noteCall() {
	if u := t.list(); u != nil {
		u.more++
		return
	}
	t.marks.Or(calling)
}

// noteEnd notes that a call of f has ended. It takes armMu only if the timer is listed.
func (t *FuncTimer) noteEnd() {
	for m := t.marks.Load(); m&listed == 0; m = t.marks.Load() {
		if t.marks.CompareAndSwap(m, m&^calling) {
			return
		}
	}
	s := t.shard
	s.armMu.Lock()
	defer s.armMu.Unlock()
	u := s.funcTimers.inFlight[&t.marks]
	if u.more > 0 {
		u.more--
		return
	}
	t.marks.And(epochMask)
	if delete(s.funcTimers.inFlight, &t.marks); len(s.funcTimers.inFlight) == 0 {
		s.funcTimers.inFlight = nil // a map does not shrink
	}
	if u.ended != nil {
		close(u.ended)
	}
}

// list adds the timer to shard.funcTimers.inFlight, unless it is there, and returns its entry. It
// returns nil if no call of f is under way. armMu is held.
func (t *FuncTimer) list() *inFlightCalls {
	for {
		m := t.marks.Load()
		if m&calling == 0 {
			return nil
		}
		if t.marks.CompareAndSwap(m, m|listed) {
			break
		}
	}
	s := t.shard
	u := s.funcTimers.inFlight[&t.marks]
	if u == nil {
		if s.funcTimers.inFlight == nil {
			s.funcTimers.inFlight = make(map[*atomic.Uint32]*inFlightCalls)
		}
		u = new(inFlightCalls)
		s.funcTimers.inFlight[&t.marks] = u
	}
	return u
}

// outdated reports whether the wheel was flushed or stopped since the timer was armed or touched.
func (t *FuncTimer) outdated() bool {
	return (t.marks.Load()^t.shard.epoch.Load())&epochMask != 0
}

// renew brings the timer into the current epoch of the shard, so that earlier Flushes no longer
// apply to it. It returns false if the wheel is stopped.
func (t *FuncTimer) renew() bool {
	s := t.shard
	for {
		m := t.marks.Load() // before epoch, so that no newer one is replaced
		epoch := s.epoch.Load() & epochMask
		if s.closed.Load() { // after epoch, which the wheel's Stop counts up afterwards
			return false
		}
		if m&epochMask == epoch || t.marks.CompareAndSwap(m, m&^epochMask|epoch) {
			return true
		}
	}
}

// cell returns the timer's slot, which must exist. armMu is held.
func (t *FuncTimer) cell() cell {
	i := t.place - 1
	return cell{&t.shard.shard, t.shard.slots.Pages.At(i >> arena.PageShift), i}
}

// reached reports whether the clock has reached the tick of a deadline.
func (t *FuncTimer) reached(deadline int64) bool {
	s := t.shard
	tick := s.ticks.Ceil(deadline)
	return tick <= s.ticks.Floor(s.now.Load()) || !s.Manual && tick <= s.ticks.Floor(s.Read())
}
