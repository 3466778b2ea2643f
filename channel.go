package timingwheel

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/clock"
	"github.com/timingwheel-go/timingwheel/internal/holders"
)

// ChannelTimer is a [time.Timer] on a wheel: when it fires, it sends the time on C. As with
// time.Timer since Go 1.23, no value of an earlier setting can be received once Stop or Reset has
// returned. It must not be copied.
type ChannelTimer struct {
	C <-chan time.Time // has room for one value; never replaced, never closed

	emitter emitter
}

// After returns a channel on which the time is sent once, d from now or up to one tick later. It
// costs less than NewTimer, but cannot be stopped.
func (tw *TimingWheel) After(d time.Duration) <-chan time.Time {
	c := make(chan time.Time, 1)
	tw.engine.after(d, func() { c <- tw.today() }) // there is room
	return c
}

// NewTimer returns a timer that sends the time once, d from now or up to one tick later. The wheel
// keeps the timer until it fires or is stopped.
func (tw *TimingWheel) NewTimer(d time.Duration) *ChannelTimer {
	t := new(ChannelTimer)
	t.emitter.start(tw, d)
	t.C = t.emitter.c
	return t
}

// Stop returns true if this call prevented the timer from firing, or took back a value that was not
// received. A receive from C then blocks until a Reset.
func (t *ChannelTimer) Stop() bool {
	t.must("Stop")
	return t.emitter.stop()
}

// Reset makes the timer fire d from now, whether it is pending, has fired or was stopped. It
// returns what Stop would have returned.
func (t *ChannelTimer) Reset(d time.Duration) bool {
	t.must("Reset")
	return t.emitter.reset(d)
}

func (t *ChannelTimer) must(method string) {
	if t.emitter.wheel == nil {
		panic("timingwheel: " + method + " of a ChannelTimer that was not made by NewTimer")
	}
}

// After calls [TimingWheel.After] on [Default].
func After(d time.Duration) <-chan time.Time { return Default().After(d) }

// NewTimer calls [TimingWheel.NewTimer] on [Default].
func NewTimer(d time.Duration) *ChannelTimer { return Default().NewTimer(d) }

// Ticker is a [time.Ticker] on a wheel: it sends the time on C again and again. The wheel keeps a
// ticker until it is stopped. A Ticker must not be copied.
type Ticker struct {
	C <-chan time.Time // has room for one tick; never replaced, never closed

	emitter  emitter
	periodic periodic
}

// NewTicker returns a ticker that sends the time at multiples of d from now, or up to one tick of
// the wheel later. A tick is dropped if an earlier one is still in the channel. NewTicker panics if
// d is not positive.
func (tw *TimingWheel) NewTicker(d time.Duration) *Ticker {
	mustBePositive("NewTicker", d)
	t := new(Ticker)
	t.periodic.period = int64(d)
	t.emitter.periodic = &t.periodic
	t.emitter.start(tw, d)
	t.C = t.emitter.c
	return t
}

// Stop turns the ticker off. A receive from C then blocks until a Reset.
func (t *Ticker) Stop() {
	if t.emitter.wheel != nil {
		t.emitter.stop()
	}
}

// Reset starts the ticker anew with the period d, also if it was stopped, and takes back a tick. It
// panics if d is not positive.
func (t *Ticker) Reset(d time.Duration) {
	mustBePositive("Ticker.Reset", d)
	if t.emitter.wheel == nil {
		panic("timingwheel: Reset of a Ticker that was not made by NewTicker")
	}
	t.emitter.reset(d)
}

// Ticks returns an iterator over ticks at multiples of d, until the wheel is stopped. Each loop has
// its own ticker. Ticks panics if d is not positive.
func (tw *TimingWheel) Ticks(d time.Duration) iter.Seq[time.Time] {
	mustBePositive("Ticks", d)
	return func(yield func(time.Time) bool) {
		t := tw.NewTicker(d)
		defer t.Stop()
		home := t.emitter.home()
		if home == nil {
			return
		}
		halting := tw.engine.halted
		for {
			select {
			case now := <-t.C:
				// If a tick waits as well, select may choose it although the wheel is stopped.
				if home.closed.Load() || !yield(now) {
					return
				}
			case <-halting:
				return
			}
		}
	}
}

func mustBePositive(function string, d time.Duration) {
	if d <= 0 {
		panic(fmt.Sprintf("timingwheel: %s(%v): accepted is a positive duration", function, d))
	}
}

// NewTicker calls [TimingWheel.NewTicker] on [Default].
func NewTicker(d time.Duration) *Ticker { return Default().NewTicker(d) }

// Ticks calls [TimingWheel.Ticks] on [Default].
func Ticks(d time.Duration) iter.Seq[time.Time] { return Default().Ticks(d) }

// emitter is the common part of [ChannelTimer] and [Ticker]: it sends times on a channel with room
// for one.
//
// An emitter is armed while relay is set, and idle otherwise. An armed emitter has a timer of the
// wheel whose callback is that of the relay. This timer is pending, or its callback is claimed and
// about to lock mu, or a stopped wheel has discarded it. The channel may hold the last value. If
// the emitter fires once, the channel holds a value only while the emitter is idle.
//
//	E1  Only fire sends, under mu, and it never blocks. An emitter that fires once sends into an
//	    empty channel. A tick that finds no room is dropped.
//	E2  fire sends only for the relay that is set. Stop unsets the relay and empties the channel in
//	    one critical section. Reset does the same and sets a new relay. If the timer is still
//	    pending, Reset moves it and keeps its relay. A callback that comes too late therefore finds
//	    that its relay is not set, and no earlier value can be received afterwards.
//	E3  A relay is in the pool, or it is set and its timer is pending, or its callback has been
//	    claimed. The goroutine that stops the timer puts the relay back. A claimed callback puts it
//	    back at its end, or arms it for the next tick. So no relay serves two callbacks. Relays of
//	    timers that a stopped wheel has discarded are left to the garbage collector.
//
// Lock order: emitter.mu -> shard.armMu. The wheel runs callbacks without a lock, so fire may take
// both.
//
// Rejected: a Ticker as a plan of [TimingWheel.ScheduleFunc]. A plan asks for each run and keeps
// its handle, which took 12% more processor time, the receivers' included.
type emitter struct {
	wheel *TimingWheel // nil: not made by a constructor
	c     chan time.Time

	mu       sync.Mutex
	relay    *relay // the one that may send; nil: idle
	timer    Timer  // of relay
	periodic *periodic
}

// periodic holds the times of the ticks of a [Ticker]. An emitter without one fires once.
type periodic struct {
	period int64 // ns, positive
	next   int64 // ns on the wheel's clock: the tick that is armed

	origin *holders.Origin // of the timer that the user has armed, if it was sampled
}

// skipTo moves on to the first tick after now. If a Flush has fired the timer early, it moves on by
// one period.
func (r *periodic) skipTo(now int64) {
	missed := max(now-r.next, 0) / r.period
	r.next = clock.Saturated(r.next+missed*r.period, r.period)
}

// relay is a callback that knows its emitter, so that it can be kept and reused. A closure for each
// timer would be one more allocation.
type relay struct {
	owner *emitter
	run   func() // calls fire of the owner
}

// relays is shared by all wheels, those of testing/synctest bubbles included, because a relay holds
// nothing that belongs to a bubble.
var relays sync.Pool

func newRelay(owner *emitter) *relay {
	r, ok := relays.Get().(*relay)
	if !ok {
		r = new(relay)
		r.run = func() { r.owner.fire(r) }
	}
	r.owner = owner
	return r
}

func (r *relay) recycle() {
	r.owner = nil
	relays.Put(r)
}

// start arms a new emitter, d from now.
func (e *emitter) start(tw *TimingWheel, d time.Duration) {
	e.wheel, e.c = tw, make(chan time.Time, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	now := tw.engine.reading()
	e.arm(clock.Later(now, int64(d)), now)
}

// arm sets a relay, unless the wheel is stopped. The emitter is idle. mu is held.
func (e *emitter) arm(deadline, now int64) {
	e.armRelay(newRelay(e), deadline, now)
	if e.periodic != nil {
		e.periodic.origin = e.timer.origin()
	}
}

// armRelay arms a timer for a relay, which is new or has just fired. mu is held.
func (e *emitter) armRelay(r *relay, deadline, now int64) {
	if e.periodic != nil {
		e.periodic.next = deadline
	}
	e.relay, e.timer = r, e.wheel.engine.armAt(deadline, now, r.run)
	if e.timer == (Timer{}) {
		e.relay = nil
		r.recycle()
	}
}

// fire is the callback of a relay's timer.
func (e *emitter) fire(r *relay) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.relay != r {
		r.recycle()
		return
	}
	date := e.wheel.today()
	select {
	case e.c <- date:
	default: // the receiver of ticks is slow
	}
	if e.periodic == nil {
		e.relay = nil
		r.recycle()
		return
	}
	now, _ := e.wheel.engine.Instant(date)
	e.periodic.skipTo(now)
	e.armRelay(r, e.periodic.next, now)
	e.timer.sampleAs(e.periodic.origin)
}

// stop makes the emitter idle and empties the channel. It returns true if a value was still to be
// received.
func (e *emitter) stop() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stopLocked()
}

// reset makes the emitter fire d from now. If the emitter has a periodic, d is its new period as
// well. reset returns true if a value was still to be received.
func (e *emitter) reset(d time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.resetLocked(d)
}

func (e *emitter) resetLocked(d time.Duration) bool {
	now := e.wheel.engine.reading()
	deadline := clock.Later(now, int64(d))
	if e.periodic != nil {
		e.periodic.period = int64(d)
	}
	if e.relay != nil && e.timer.rescheduleTo(deadline, now) {
		if e.periodic != nil {
			e.periodic.next = deadline
			e.empty()
		}
		return true
	}
	active := e.stopLocked()
	e.arm(deadline, now)
	return active
}

func (e *emitter) stopLocked() bool {
	waiting := e.empty()
	r := e.relay
	if r == nil {
		return waiting
	}
	e.relay = nil
	if e.timer.Stop() {
		r.recycle()
		return true
	}
	// The callback was claimed and now comes too late, or the stopped wheel has discarded the
	// timer.
	return waiting || !e.timer.shard().closed.Load()
}

// empty takes back the value in the channel. It returns false if there was none.
func (e *emitter) empty() bool {
	select {
	case <-e.c:
		return true
	default:
		return false
	}
}

// home returns the shard of the timer that was armed last, or nil if the wheel was already stopped
// then. The emitter has been started.
func (e *emitter) home() *shard {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.timer.shard()
}

// ErrStopped is returned by [TimingWheel.Sleep] if the wheel is stopped.
var ErrStopped = errors.New("timingwheel: the wheel is stopped")

// Sleep returns nil once d has passed, ctx.Err() if ctx ends first, and [ErrStopped] if the wheel
// is stopped. A Flush ends a Sleep. In a callback of a Manual or [Inline] wheel, Sleep would block
// the wheel. It panics if ctx is nil.
func (tw *TimingWheel) Sleep(ctx context.Context, d time.Duration) error {
	if ctx == nil {
		panic("timingwheel: Sleep with a nil context")
	}
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	s := tw.sleeper()
	timer := tw.engine.after(d, s.wake)
	if timer == (Timer{}) {
		tw.sleepers.Put(s)
		return ErrStopped
	}
	var halting <-chan struct{} // nil: the wheel cannot be stopped
	if !tw.use.isDefault() {
		halting = tw.engine.halted
	}
	reusable, err := s.wait(ctx, timer, halting)
	if reusable {
		tw.sleepers.Put(s)
	}
	return err
}

// sleeper is a call of Sleep that waits. It is reused only once its timer can no longer wake it:
// the timer has woken it or was stopped.
type sleeper struct {
	awake chan struct{}
	wake  func()
}

func (tw *TimingWheel) sleeper() *sleeper {
	if s, ok := tw.sleepers.Get().(*sleeper); ok {
		return s
	}
	s := &sleeper{awake: make(chan struct{}, 1)}
	s.wake = func() { s.awake <- struct{}{} } // there is room
	return s
}

// wait returns what Sleep returns, and whether the sleeper may be used again.
func (s *sleeper) wait(ctx context.Context, timer Timer, halting <-chan struct{}) (reusable bool, err error) {
	if halting == nil && ctx.Done() == nil {
		<-s.awake
		return true, nil
	}
	select {
	case <-s.awake:
		return true, nil
	case <-halting:
		return s.halted(ErrStopped)
	case <-ctx.Done():
	}
	if timer.Stop() {
		return true, ctx.Err()
	}
	select { // d has passed as well and the callback is about to run, or the wheel is stopped
	case <-s.awake:
		return true, nil
	case <-halting:
		return s.halted(ctx.Err())
	}
}

// halted returns the result for a sleeper on a stopped wheel. Its callback has run, may be about to
// run, or never will.
func (s *sleeper) halted(err error) (reusable bool, _ error) {
	select {
	case <-s.awake:
		return true, nil
	default:
		return false, err
	}
}

// Sleep calls [TimingWheel.Sleep] on [Default].
func Sleep(ctx context.Context, d time.Duration) error { return Default().Sleep(ctx, d) }
