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

// ChannelTimer is a time.Timer on a wheel: when it fires, it sends the time on C. Make one with
// [TimingWheel.NewTimer]. (The name Timer is taken by the handle of a callback.)
//
// As with time.Timer since Go 1.23, no value of an earlier setting can be received once Stop or
// Reset has returned, so C need not be drained. All methods may be called at any time from any
// goroutine, callbacks included. A ChannelTimer must not be copied.
type ChannelTimer struct {
	C <-chan time.Time // has room for one value; never replaced, never closed

	emitter emitter
}

// After returns a channel on which the time is sent once, d from now or up to one tick later, never
// earlier. After costs less than [TimingWheel.NewTimer], but its timer cannot be stopped: the wheel
// keeps the timer until d has passed. If the value may turn out not to be needed, use NewTimer,
// whose Stop releases the memory at once.
//
// A zero or negative d means at once. A d beyond the range of the clock never passes. On a wheel
// that is stopped, before the call or after it, nothing is sent. O(1). After allocates one closure
// and the channel.
func (tw *TimingWheel) After(d time.Duration) <-chan time.Time {
	c := make(chan time.Time, 1)
	tw.engine.after(d, func() { c <- tw.today() }) // there is room
	return c
}

// NewTimer returns a timer that sends the time on its channel once, d from now or up to one tick
// later, never earlier. The value sent is the time of firing: the current time, as from time.Now,
// or in Manual mode the time of the wheel's clock.
//
// A zero or negative d means at once, in Manual mode in the next Advance. A d beyond the range of
// the clock never passes. On a stopped wheel nothing is ever sent. No goroutine waits. The wheel
// keeps the timer until it fires or is stopped, even if the program no longer refers to it. O(1).
func (tw *TimingWheel) NewTimer(d time.Duration) *ChannelTimer {
	t := new(ChannelTimer)
	t.emitter.start(tw, d)
	t.C = t.emitter.c
	return t
}

// Stop prevents the timer from firing. If the timer has fired and its value has not been received,
// Stop takes the value back. Stop returns true if this call did either. It returns false if the
// value has been received or if the timer was stopped before. Once Stop has returned, a receive
// from C blocks until a Reset.
//
// A stopped wheel has discarded the timer. Stop then returns false, unless the value was sent
// before and is taken back. Stop panics if the timer was not made by NewTimer. O(1) amortised.
func (t *ChannelTimer) Stop() bool {
	t.must("Stop")
	return t.emitter.stop()
}

// Reset makes the timer fire d from now, whether it is pending, has fired or was stopped. It
// returns what Stop would have returned: true if no value of the earlier setting had been received.
// None is received after Reset has returned. A zero or negative d means at once.
//
// If several calls race, the last one to reach the timer decides. On a stopped wheel nothing is
// armed. Moving a pending timer later is as cheap as [Timer.Reschedule], and allocates nothing.
// Reset panics if the timer was not made by NewTimer. O(1).
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

// Ticker is a time.Ticker on a wheel: it sends the time on C again and again. Make one with
// [TimingWheel.NewTicker]. A ticker that is no longer needed must be stopped: until then the wheel
// keeps it, even if the program no longer refers to it.
//
// As with time.Ticker since Go 1.23, no earlier tick can be received once Stop or Reset has
// returned. All methods may be called at any time from any goroutine, callbacks included. A Ticker
// must not be copied.
type Ticker struct {
	C <-chan time.Time // has room for one tick; never replaced, never closed

	emitter emitter
	rhythm  rhythm
}

// NewTicker returns a ticker that sends the time on its channel after each d, up to one tick of the
// wheel later, never earlier. The value sent is the time of firing, as with [TimingWheel.NewTimer].
//
// The ticker keeps its phase: ticks belong to multiples of d after the call. A tick that finds an
// earlier one still in the channel is dropped. If several ticks have passed when the ticker gets to
// run, it sends one and drops the others. If d is below the tick of the wheel, the ticker therefore
// sends once for each tick of the wheel. In Manual mode it sends at most once in each Advance.
//
// NewTicker panics if d is not positive. On a stopped wheel nothing is ever sent. No goroutine
// waits, and a tick allocates nothing. O(1).
func (tw *TimingWheel) NewTicker(d time.Duration) *Ticker {
	mustBePositive("NewTicker", d)
	t := new(Ticker)
	t.rhythm.period = int64(d)
	t.emitter.rhythm = &t.rhythm
	t.emitter.start(tw, d)
	t.C = t.emitter.c
	return t
}

// Stop turns the ticker off and takes back a tick that has not been received. Once Stop has
// returned, a receive from C blocks until a Reset. C is not closed. Further calls do nothing. As
// with time.Ticker, Stop does nothing if the Ticker was not made by NewTicker. O(1) amortised.
func (t *Ticker) Stop() {
	if t.emitter.wheel != nil {
		t.emitter.stop()
	}
}

// Reset stops the ticker and starts it anew with the period d: the first tick comes d from now.
// Once Reset has returned, no earlier tick is received. Reset also starts a ticker that was
// stopped. On a stopped wheel nothing is ever sent.
//
// Reset panics if d is not positive or if the ticker was not made by NewTicker. O(1).
func (t *Ticker) Reset(d time.Duration) {
	mustBePositive("Ticker.Reset", d)
	if t.emitter.wheel == nil {
		panic("timingwheel: Reset of a Ticker that was not made by NewTicker")
	}
	t.emitter.reset(d)
}

// Tick returns an iterator over the ticks of a [TimingWheel.NewTicker]. Each loop over the iterator
// makes a ticker of its own and stops it when the loop is left, in whatever way:
//
//	for now := range tw.Tick(time.Second) {
//
// If the body takes longer than d, ticks are dropped. The loop ends when the wheel is stopped: once
// the wheel's Stop has returned, the loop takes no tick, not even one that was waiting in the
// channel. Tick panics if d is not positive.
func (tw *TimingWheel) Tick(d time.Duration) iter.Seq[time.Time] {
	mustBePositive("Tick", d)
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

// Tick calls [TimingWheel.Tick] on [Default].
func Tick(d time.Duration) iter.Seq[time.Time] { return Default().Tick(d) }

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

	mu     sync.Mutex
	relay  *relay // the one that may send; nil: idle
	timer  Timer  // of relay
	rhythm *rhythm
}

// rhythm holds the ticks of a [Ticker]. An emitter without a rhythm fires once.
type rhythm struct {
	period int64 // ns, positive
	next   int64 // ns on the wheel's clock: the tick that is armed

	origin *holders.Origin // of the timer that the user has armed, if it was sampled
}

// skipTo moves on to the first tick after now. If a Flush has fired the timer early, it moves on by
// one period.
func (r *rhythm) skipTo(now int64) {
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
	if e.rhythm != nil {
		e.rhythm.origin = e.timer.origin()
	}
}

// armRelay arms a timer for a relay, which is new or has just fired. mu is held.
func (e *emitter) armRelay(r *relay, deadline, now int64) {
	if e.rhythm != nil {
		e.rhythm.next = deadline
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
	if e.rhythm == nil {
		e.relay = nil
		r.recycle()
		return
	}
	now, _ := e.wheel.engine.Instant(date)
	e.rhythm.skipTo(now)
	e.armRelay(r, e.rhythm.next, now)
	e.timer.sampleAs(e.rhythm.origin)
}

// stop makes the emitter idle and empties the channel. It returns true if a value was still to be
// received.
func (e *emitter) stop() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stopLocked()
}

// reset makes the emitter fire d from now. If the emitter has a rhythm, d is its new period as
// well. reset returns true if a value was still to be received.
func (e *emitter) reset(d time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.resetLocked(d)
}

func (e *emitter) resetLocked(d time.Duration) bool {
	now := e.wheel.engine.reading()
	deadline := clock.Later(now, int64(d))
	if e.rhythm != nil {
		e.rhythm.period = int64(d)
	}
	if e.relay != nil && e.timer.rescheduleTo(deadline, now) {
		if e.rhythm != nil {
			e.rhythm.next = deadline
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

// Sleep waits until d has passed, up to one tick longer and never shorter, and returns nil. It
// returns ctx.Err() if ctx ends first, or if ctx has ended when Sleep is called, whatever d is;
// [context.Cause] tells the cause. If both happen at about the same time, Sleep returns one or the
// other; nil means that d has passed. Sleep returns [ErrStopped] if the wheel is stopped, before
// the call or during it. A Flush wakes Sleep as if d had passed.
//
// If d is zero or negative, Sleep returns at once, also on a stopped wheel and in Manual mode. A d
// beyond the range of the clock never passes. In Manual mode Sleep waits until another goroutine
// has advanced the clock. It must therefore not be called in a callback that Advance runs. With
// Inline it must not be called in any callback, because it would block the wheel.
//
// Sleep panics if ctx is nil. It allocates nothing as a rule. O(1).
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
	if !tw.shared {
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
