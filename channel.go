package timingwheel

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// ChannelTimer is time.Timer with a channel, on a wheel: when it fires, the time is sent on C. Make
// one with [TimingWheel.NewTimer]. (The name Timer is that of the handle of a callback.)
//
// As with time.Timer since Go 1.23, no value of an earlier setting can be received once Stop or
// Reset has returned, so nobody has to drain C. All methods may be called at any time from any
// goroutine, callbacks included. A ChannelTimer must not be copied.
type ChannelTimer struct {
	C <-chan time.Time // with room for one value; the same for ever, never closed

	emitter emitter
}

// After returns a channel on which the time is sent once, d from now or up to one tick later, never
// earlier. It is the channel of a [TimingWheel.NewTimer] that nobody can stop, and cheaper than
// that: where the value may turn out not to be wanted, a ChannelTimer that is stopped gives its
// memory back at once, and this one when d has passed.
//
// Zero and negative mean at once; a d beyond the range of the clock is never reached. Nothing is
// sent on a wheel that is stopped, before or meanwhile. O(1), with one closure and the channel to
// allocate.
func (tw *TimingWheel) After(d time.Duration) <-chan time.Time {
	c := make(chan time.Time, 1)
	tw.engine.after(d, func() { c <- tw.today() }) // there is room
	return c
}

// NewTimer returns a timer that sends the time on its channel once, d from now or up to one tick
// later, never earlier. What is sent is the time of firing: the current time, as from time.Now, or
// in Manual mode that of the wheel's clock.
//
// Zero and negative mean at once, in Manual mode in the next Advance; a d beyond the range of the
// clock is never reached. On a stopped wheel nothing is ever sent. No goroutine waits. Until it
// fires or is stopped the wheel keeps the timer, also where nobody else does. O(1).
func (tw *TimingWheel) NewTimer(d time.Duration) *ChannelTimer {
	t := new(ChannelTimer)
	t.emitter.start(tw, d)
	t.C = t.emitter.c
	return t
}

// Stop prevents the timer from firing, and takes the value back where it has fired and nobody has
// received it. It returns true if this call did either, and false if the value has been received or
// the timer had been stopped before. Once Stop has returned, a receive from C blocks until a Reset.
//
// On a stopped wheel, which has discarded the timer, Stop returns false, unless the value was sent
// before and is taken back. It panics where the timer was not made by NewTimer. O(1) amortised.
func (t *ChannelTimer) Stop() bool {
	t.must("Stop")
	return t.emitter.stop()
}

// Reset makes the timer fire d from now, whether it is pending, has fired or was stopped. It
// returns what Stop would have returned: true if no value of the earlier setting had been received.
// None is received after Reset has returned. Zero and negative mean at once.
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

// Ticker is time.Ticker on a wheel: it sends the time on C again and again. Make one with
// [TimingWheel.NewTicker], and stop it in the end: the wheel keeps it until then, also where nobody
// else does.
//
// As with time.Ticker since Go 1.23, no tick of before can be received once Stop or Reset has
// returned. All methods may be called at any time from any goroutine, callbacks included. A Ticker
// must not be copied.
type Ticker struct {
	C <-chan time.Time // with room for one tick; the same for ever, never closed

	emitter emitter
	rhythm  rhythm
}

// NewTicker returns a ticker that sends the time on its channel after each d, up to one tick of the
// wheel later and never earlier. What is sent is the time of firing, as with
// [TimingWheel.NewTimer].
//
// It keeps its phase: ticks belong to multiples of d after the call. One that finds an earlier one
// still in the channel is dropped, and so are those that have passed when the ticker gets to run,
// the first of them excepted. A d below the tick of the wheel thus makes one tick for each tick of
// the wheel; in Manual mode there is at most one in each Advance.
//
// NewTicker panics where d is not positive. On a stopped wheel nothing is ever sent. No goroutine
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

// Stop turns the ticker off and takes back a tick that nobody has received. Once it has returned, a
// receive from C blocks until a Reset. C is not closed. More calls do nothing, and so does one of a
// Ticker that was not made by NewTicker, as with time.Ticker. O(1) amortised.
func (t *Ticker) Stop() {
	if t.emitter.wheel != nil {
		t.emitter.stop()
	}
}

// Reset stops the ticker and starts it anew with the period d: the first tick comes d from now. No
// tick of before is received after Reset has returned. It starts a ticker that was stopped, too. On
// a stopped wheel nothing is ever sent.
//
// Reset panics where d is not positive, or the ticker was not made by NewTicker. O(1).
func (t *Ticker) Reset(d time.Duration) {
	mustBePositive("Ticker.Reset", d)
	if t.emitter.wheel == nil {
		panic("timingwheel: Reset of a Ticker that was not made by NewTicker")
	}
	t.emitter.reset(d)
}

// Tick returns an iterator over the ticks of a [TimingWheel.NewTicker], which a loop makes when it
// begins and stops when it is left, by whatever way:
//
//	for now := range tw.Tick(time.Second) {
//
// Where the body takes longer than d, ticks are dropped. The loop ends when the wheel is stopped:
// it takes no tick once Stop has returned, also where one was waiting for it. Each loop over the
// iterator has a ticker of its own. Tick panics where d is not positive.
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
				// Of two calls of Stop at once the second may return before the first has closed
				// halting, so that would say too little.
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

// emitter sends times on a channel with room for one: what [ChannelTimer] and [Ticker] have in
// common. A ticker arms each tick itself: as a plan of [TimingWheel.ScheduleFunc], which has to ask
// for its runs and to keep its handle, it took 12% more of the processor's time, the receivers'
// included.
//
// It is armed while relay is set, and idle otherwise. An armed one has a timer of the wheel whose
// callback is that of the relay, pending, or claimed and about to ask for mu. The last value may be
// in the channel or not; where the emitter fires once, it is there only when idle.
//
//	E1  Only fire sends, under mu, and never blocks: once, into an empty channel, or a tick that is dropped where there is no room.
//	E2  fire sends for the relay that is set, and for no other. Stop and Reset unset or replace it and then empty the channel, in one critical section.
//	    So whatever a timer was armed for earlier finds out that it comes too late, and no value of it can be received afterwards.
//	E3  A relay is in the pool, or set with its timer pending, or its callback has been claimed. Whoever stops the timer puts it back, or else the callback
//	    does at its end. So no relay serves two callbacks. Those that a stopped wheel has discarded are left to the garbage collector.
//
// Lock order: emitter.mu -> shard.mu. The wheel runs callbacks without a lock, so fire may take
// both.
type emitter struct {
	wheel *TimingWheel // nil: not made by a constructor
	c     chan time.Time

	mu     sync.Mutex
	relay  *relay // that may send; nil: idle
	timer  Timer  // of relay
	rhythm *rhythm
}

// rhythm is the ticks of a [Ticker]. An emitter without one fires once.
type rhythm struct {
	period int64 // ns, positive
	next   int64 // ns on the wheel's clock: the tick that is armed
}

// skipTo moves on to the first tick after now, or at least to the next one where a flush came
// before its time.
func (r *rhythm) skipTo(now int64) {
	missed := max(now-r.next, 0) / r.period
	r.next = clock.Saturated(r.next+missed*r.period, r.period)
}

// relay is a callback that finds its emitter by itself, so that it can be kept and used again: a
// closure for each timer would be one more allocation.
type relay struct {
	owner *emitter
	run   func() // calls fire of the owner
}

// relays is shared by all wheels, those of testing/synctest bubbles included: a relay holds nothing
// that belongs to one.
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
}

// armRelay arms a timer for a relay, new or the one that has just fired. mu is held.
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
	default: // a slow receiver of ticks
	}
	if e.rhythm == nil {
		e.relay = nil
		r.recycle()
		return
	}
	now, _ := e.wheel.engine.Instant(date)
	e.rhythm.skipTo(now)
	e.armRelay(r, e.rhythm.next, now)
}

// stop makes the emitter idle and empties the channel. It returns true if a value was still to be
// received.
func (e *emitter) stop() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stopLocked()
}

// reset makes the emitter fire d from now, and with that period where it has one. It returns true
// if a value was still to be received.
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
	return waiting || !e.timer.shard.closed.Load() // claimed, and now comes too late; or discarded
}

// empty takes back what is in the channel. It returns true if there was something.
func (e *emitter) empty() bool {
	select {
	case <-e.c:
		return true
	default:
		return false
	}
}

// home returns the shard of the timer that was armed last, or nil where that was too late, as the
// wheel had been stopped. The emitter has been started.
func (e *emitter) home() *shard {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.timer.shard
}

// ErrStopped is what waiting for a wheel returns that has been stopped.
var ErrStopped = errors.New("timingwheel: the wheel is stopped")

// Sleep waits until d has passed, up to one tick longer and never shorter, and returns nil. It
// returns ctx.Err() where ctx ends before, or has ended when Sleep is called, whatever d is; ask
// [context.Cause] for the cause. Where both happen, nil means that d had passed when Sleep looked.
// It returns [ErrStopped] where the wheel is stopped before or meanwhile. A Flush wakes it as if d
// had passed.
//
// Zero and negative d return at once, also on a stopped wheel and in Manual mode. A d beyond the
// range of the clock never passes. In Manual mode Sleep waits until another goroutine has advanced
// the clock, so it must not be called in a callback that Advance runs, nor with Inline in any
// callback: it holds up the wheel.
//
// Sleep panics where ctx is nil. It allocates nothing as a rule. O(1).
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
	var halting <-chan struct{} // nil: nobody can stop the wheel
	if !tw.shared {
		halting = tw.engine.halted
	}
	reusable, err := s.wait(ctx, timer, halting)
	if reusable {
		tw.sleepers.Put(s)
	}
	return err
}

// sleeper is somebody who sleeps. It is used again only when its timer cannot wake it any more: it
// has done so, or was stopped.
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

// halted is what becomes of a sleeper on a stopped wheel. Its callback has run, may be about to, or
// never will.
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
