package timingwheel

import (
	"context"
	"math/rand/v2"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"time"
	"unsafe"

	"github.com/timingwheel-go/timingwheel/internal/arena"
	"github.com/timingwheel-go/timingwheel/internal/clock"
	"github.com/timingwheel-go/timingwheel/internal/holders"
)

// FuncTimer has the semantics of the [time.Timer] of [time.AfterFunc]: Reset also arms a timer that
// has fired or was stopped, and f may call it. Touch is the operation for heartbeats. A [Timer] is
// smaller and suffices for one timeout.
//
// NewFuncTimer makes a timer. Init prepares one that is a field, before any other method is called.
// A FuncTimer must not be copied.
type FuncTimer struct {
	shard *shardOf[func()]

	// until is the deadline, a reading of the clock, or unarmed. The goroutine that replaces a
	// deadline by unarmed has won the timer: a Stop, or the worker that calls f. Touch, and a Reset
	// to a later deadline, replace until and nothing else. Stop and every other Reset replace until
	// under the shard's armMu, which guards the slot. If the lock is taken for long, they replace
	// until without it and leave a request, which makes the slot agree with until afterwards.
	until   atomic.Int64
	timeout atomic.Int64 // ns: of the last Reset or Init

	// place is the slot of the timer plus 1, or 0 if the timer has none. armMu guards it.
	//
	//	F1  A timer with a deadline has a slot or a request. The slot is Staged or Placed for a tick
	//	    that is not after the deadline's, or it is Running, or there is a request.
	//	F2  A Running slot belongs to look, which restores F1, or gives the slot back, before it
	//	    calls f.
	place uint32

	// marks is shard.epoch as of the last time that the deadline was set or confirmed, and two
	// flags. A Flush since then makes look call f whatever the deadline is.
	//
	//	calling  a call of f is under way
	//	listed   shard.again has the timer: there are further calls, or a StopWait waits. Then both
	//	         flags change under armMu only.
	marks atomic.Uint32

	// A Touch uses the fields above, which stand side by side in 32 bytes.

	f   func()
	run func() // the payload: look
}

// unarmed is the until of a timer that is not armed.
const unarmed = clock.Unread

// armTries is how often a caller tries to lock armMu before it leaves a request. If the lock is not
// free by then, its holder has probably been preempted.
const armTries = 200

// Bits of FuncTimer.marks.
const (
	calling   = 1 << 31
	listed    = 1 << 30
	epochMask = listed - 1
)

// NewFuncTimer returns a timer that calls f once, d from now or up to one tick later.
// [TimingWheel.AfterFunc] says where f runs. It panics if f is nil.
func (tw *TimingWheel) NewFuncTimer(d time.Duration, f func()) *FuncTimer {
	t := new(FuncTimer)
	t.Init(tw, d, f)
	return t
}

// NewFuncTimer calls [TimingWheel.NewFuncTimer] on [Default].
func NewFuncTimer(d time.Duration, f func()) *FuncTimer { return Default().NewFuncTimer(d, f) }

// Init is [TimingWheel.NewFuncTimer] for a timer that is a field. It panics if the timer was
// initialised before. The memory of a stopped timer must not be overwritten, because the wheel may
// refer to it for a moment.
func (t *FuncTimer) Init(tw *TimingWheel, d time.Duration, f func()) {
	t.InitStopped(tw, f)
	t.Reset(d)
}

// InitStopped is Init for a timer that is armed only by a later Reset.
func (t *FuncTimer) InitStopped(tw *TimingWheel, f func()) {
	if f == nil {
		panic("timingwheel: FuncTimer of a nil function")
	}
	if t.shard != nil {
		panic("timingwheel: Init of a FuncTimer that was initialised before")
	}
	t.shard, t.f, t.run = tw.engine.shardFor(unsafe.Pointer(t)), f, t.look
	t.until.Store(unarmed)
}

// Reset arms the timer to call f once, d from now. It returns true if the timer was armed, and then
// f is not called for the old deadline. If it returns false, f may still be running, and the next
// call does not wait for it. Reset panics if the timer was not initialised. To a later deadline it
// is one atomic operation, except in Manual mode.
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

// Touch moves the deadline of an armed timer to the d of the last Reset or Init from now, but never
// to an earlier time, and returns true: f is not called before then. Otherwise it returns false and
// arms nothing. It reads the clock once and writes to the timer alone, except in Manual mode.
func (t *FuncTimer) Touch() bool {
	s := t.shard
	if s == nil {
		return false
	}
	return t.touch(s.reading())
}

// TouchAt is Touch with a time that the caller has read, such as a packet's.
func (t *FuncTimer) TouchAt(now time.Time) bool {
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
		deadline := clock.Later(now, t.timeout.Load()) // after until, which a Reset writes last
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

// Stop returns true if it prevented the call of f, and false if the timer was not armed. It does
// not wait for a call that is under way.
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

// tryLock locks armMu. It returns false if another goroutine holds the lock for long, unless the
// wheel is stopped or Manual.
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
		if w.Kind() == arena.Running { // look finds unarmed and gives the slot back
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

// StopWait stops the timer and waits until no call of f is under way. After it has returned nil, f
// does not run until a later Reset: a Reset while StopWait waits is stopped too, or its call is
// awaited. If ctx ends first, StopWait returns ctx.Err(). Then f may be running, and the timer may
// be armed by such a Reset. Called by f, StopWait waits until ctx ends.
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

// Deadline returns the deadline, rounded up to a tick, or false if the timer is not armed. A Flush
// does not change it. O(1).
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

// set gives the timer any deadline and reports whether it was armed. If always is false, set is for
// a Touch in Manual mode: it does nothing to a timer that is not armed, and makes no deadline
// earlier. now is a reading of the clock that is not later than the call, or for a Touch the
// time that its caller has passed. set is called with armMu held and returns without it.
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
			reading = clock.Unread                                // now may lie ahead of the clock
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
	// The end of the tick, even if the deadline has passed within the tick: look waits for that.
	deadline = max(s.ticks.Begin(s.ticks.Ceil(deadline)), now)
	tick := s.tickOf(deadline, now)
	for t.place != 0 {
		c := t.cell()
		w := c.load()
		ok := w.Kind() == arena.Running // look comes next
		if !ok {
			var old int64
			old, ok = s.decode(w, s.ticks.Floor(s.now.Load()))
			ok = ok && (old <= tick && !s.Manual || c.moveLocked(w, deadline, tick))
		}
		if ok {
			if !was {
				s.inbox.armed++
				t.sampleAs(nil) // the slot is that of an earlier arming
			}
			return
		}
	}
	if h := s.armLocked(deadline, now, t.run, arena.Plan); h.home != nil { // else the wheel is stopped
		t.place = h.index + 1
		s.callees.set(h.index, t.f)
		if was {
			s.inbox.armed-- // it is counted already
		}
	}
}

// setUnlocked is set for a Reset that has found armMu taken. ok is false if the wheel is stopped.
func (t *FuncTimer) setUnlocked(deadline int64) (was, ok bool) {
	s := t.shard
	ok = s.claims.unless(&s.closed, func() {
		t.renew() // first, or else look might call f although this call moves the deadline
		for done := false; !done; {
			u := t.until.Load()
			was = u != unarmed
			if !was {
				s.again.armed.Add(1) // first, or else Len might be negative
			}
			done = t.until.CompareAndSwap(u, deadline)
			if !done && !was {
				s.again.armed.Add(^uint64(0))
			}
		}
	})
	switch {
	case !ok:
	case was || s.profileRate == 0:
		t.request(t.settle)
	default:
		var origin *holders.Origin
		if rand.IntN(s.profileRate) == 0 {
			origin = holders.Here(s.reading())
		}
		t.request(func() { t.settle(); t.sampleAs(origin) })
	}
	return was, ok
}

// stopUnlocked is stop for a caller that has found armMu taken. ok is false if the wheel is
// stopped.
func (t *FuncTimer) stopUnlocked() (stopped, ok bool) {
	s := t.shard
	ok = s.claims.unless(&s.closed, func() {
		if stopped = t.until.Swap(unarmed) != unarmed; stopped {
			s.again.stopped.Add(1)
		}
	})
	if stopped {
		t.request(t.settle)
	}
	return stopped, ok
}

// request leaves a request. The next owner serves it, or a goroutine that waits for armMu.
func (t *FuncTimer) request(do func()) {
	s := t.shard
	if !s.again.leave(do) {
		return
	}
	go func() {
		s.engine.labels.Own()
		s.armMu.Lock()
		s.again.coming.Store(false)
		s.again.serve(&s.closed)
		s.unlockArm()
		if s.wanted.Load() {
			s.tend()
		}
	}()
}

// settle makes the slot agree with until: it restores F1 after setUnlocked, and gives the slot back
// after stopUnlocked. armMu is held.
func (t *FuncTimer) settle() {
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
			continue // the lock was free meanwhile
		}
		t.placeLocked(u, clock.Unread, true)
		s.inbox.pass() // the caller of Reset has drawn for itself
		return
	}
}

// sampleAs is [Timer.sampleAs] under armMu.
func (t *FuncTimer) sampleAs(o *holders.Origin) {
	s := t.shard
	if t.place == 0 || s.inbox.samples == nil {
		return
	}
	i := t.place - 1
	s.inbox.samples.Set(holders.Timer{Page: s.host.pageOf(i), Index: i, Gen: t.cell().load().Gen()}, o)
}

// look is the payload: the timer's slot is Running, because its tick has come or was flushed. look
// calls f if the deadline has come as well. If it was moved, look makes the slot pending again.
func (t *FuncTimer) look() {
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
		if u == unarmed { // by a Stop
			break
		}
		if !flushed && !t.reached(u) {
			s.inbox.rescheduled++
			// The next generation, because other workers may still have the batch of this claim.
			// They would take the timer for one that was postponed and return it to the inbox, even
			// after a Flush.
			c.stageAt(w, w.Renewed(), max(u, s.noteReading(clock.Unread)), s.ticks.Ceil(u))
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
	dead := (w.With(arena.Dead) | arena.Moved) &^ arena.Far
	s.replace(c.page, c.index, w, dead)
	t.place = 0
	s.release(c.index)
	tend := s.removals.push(c.page, c.index, dead) >= int(s.removals.offerAt.Load())
	s.armMu.Unlock()
	switch {
	case fires: // at once, because the wheel's Stop waits for the claim and not for tend
		t.call()
	case tend:
		s.tend()
	}
}

// call calls f and notes the end of the call, also if f panics or calls runtime.Goexit.
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
	u := s.again.underWay[&t.marks]
	if u.more > 0 {
		u.more--
		return
	}
	t.marks.And(epochMask)
	if delete(s.again.underWay, &t.marks); len(s.again.underWay) == 0 {
		s.again.underWay = nil // a map does not shrink
	}
	if u.ended != nil {
		close(u.ended)
	}
}

// list lists the timer and returns its entry, or nil if no call of f is under way. armMu is held.
func (t *FuncTimer) list() *underWay {
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
	u := s.again.underWay[&t.marks]
	if u == nil {
		if s.again.underWay == nil {
			s.again.underWay = make(map[*atomic.Uint32]*underWay)
		}
		u = new(underWay)
		s.again.underWay[&t.marks] = u
	}
	return u
}

// outdated reports whether a Flush, or the Stop of the wheel, has come since the timer was armed.
func (t *FuncTimer) outdated() bool {
	return (t.marks.Load()^t.shard.epoch.Load())&epochMask != 0
}

// renew brings the timer into the epoch of the shard, so that it does not belong to a Flush any
// more. It returns false if the wheel is stopped.
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

// cell returns the slot. There must be one, and armMu is held.
func (t *FuncTimer) cell() cell {
	i := t.place - 1
	return cell{&t.shard.shard, t.shard.pages.At(i >> arena.PageShift), i}
}

// reached reports whether the tick of a deadline has come.
func (t *FuncTimer) reached(deadline int64) bool {
	s := t.shard
	tick := s.ticks.Ceil(deadline)
	return tick <= s.ticks.Floor(s.now.Load()) || !s.Manual && tick <= s.ticks.Floor(s.Read())
}
