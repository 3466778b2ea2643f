package timingwheel

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/clock"
	"github.com/timingwheel-go/timingwheel/internal/sampling"
)

// ChannelTimer is a [time.Timer] on a wheel: when it fires, it sends the current time on C. As with
// time.Timer since Go 1.23, no stale value can be received once Stop or Reset has returned, so the
// channel need not be drained. Make one with [TimingWheel.NewChannelTimer]. Methods of any other
// ChannelTimer panic. A ChannelTimer must not be copied. Its methods may be called concurrently.
type ChannelTimer struct {
	C <-chan time.Time // has a buffer of one value, is never replaced and never closed

	emitter emitter
}

// After returns a channel on which the current time is sent once, d from now or up to one tick
// later, and never earlier. A zero or negative d means at once. After costs less than
// NewChannelTimer but cannot be stopped: the wheel keeps the timer until d has passed. If the value
// may not be needed, use [TimingWheel.NewChannelTimer]. On a stopped wheel nothing is sent.
func (tw *TimingWheel) After(d time.Duration) <-chan time.Time {
	c := make(chan time.Time, 1)
	tw.engine.after(d, func() { c <- tw.wallNow() }) // there is room
	return c
}

// NewChannelTimer returns a timer that sends the current time on its channel once, d from now or up
// to one tick later, and never earlier. A zero or negative d means at once. The wheel keeps the
// timer until it fires or is stopped, even if the program no longer refers to it. On a stopped
// wheel nothing is sent.
func (tw *TimingWheel) NewChannelTimer(d time.Duration) *ChannelTimer {
	t := new(ChannelTimer)
	t.emitter.start(tw, d)
	t.C = t.emitter.c
	return t
}

// Stop stops the timer. It returns true if it prevented the timer from firing, or if it removed a
// value from C that was not received. It returns false if the value was received, or if the timer
// was stopped. A receive from C then blocks until a Reset. If the wheel was stopped, Stop returns
// true only if it removed a value.
func (t *ChannelTimer) Stop() bool {
	t.must("Stop")
	return t.emitter.stop()
}

// Reset makes the timer fire d from now or up to one tick later, whether it is pending, has fired
// or was stopped. A zero or negative d means at once. A value in C that was not received is
// removed. Reset returns what [ChannelTimer.Stop] would have returned. If the wheel was stopped,
// Reset arms nothing. Moving a pending timer later allocates nothing.
func (t *ChannelTimer) Reset(d time.Duration) bool {
	t.must("Reset")
	return t.emitter.reset(d)
}

func (t *ChannelTimer) must(method string) {
	if t.emitter.wheel == nil {
		panic("timingwheel: " + method + " of a ChannelTimer that was not made by NewChannelTimer")
	}
}

// After returns a channel on which the current time is sent once, d from now or up to one tick
// later, by the wheel of [Default]. See [TimingWheel.After].
func After(d time.Duration) <-chan time.Time { return Default().After(d) }

// NewChannelTimer returns a timer on the wheel of [Default] that sends the current time on its
// channel once, d from now or up to one tick later. See [TimingWheel.NewChannelTimer].
func NewChannelTimer(d time.Duration) *ChannelTimer { return Default().NewChannelTimer(d) }

// Ticker is a [time.Ticker] on a wheel: it sends the current time on C at regular intervals. Make
// one with [TimingWheel.NewTicker]. The wheel keeps a ticker until it is stopped, even if the
// program no longer refers to it. A Ticker must not be copied. Its methods may be called
// concurrently.
type Ticker struct {
	C <-chan time.Time // has a buffer of one tick, is never replaced and never closed

	emitter  emitter
	periodic periodic
}

// NewTicker returns a ticker that sends the current time at multiples of d from now, each up to one
// tick of the wheel later. Delays do not add up. If a tick has not been received when the next one
// is due, the next one is dropped. On a stopped wheel nothing is sent. NewTicker panics if d is not
// positive.
func (tw *TimingWheel) NewTicker(d time.Duration) *Ticker {
	mustBePositive("NewTicker", d)
	t := new(Ticker)
	t.periodic.period = int64(d)
	t.emitter.periodic = &t.periodic
	t.emitter.start(tw, d)
	t.C = t.emitter.c
	return t
}

// Stop stops the ticker and removes a tick from C that was not received. A receive from C then
// blocks until a Reset. Stop does not close C. Stopping a stopped ticker or a zero Ticker has no
// effect.
func (t *Ticker) Stop() {
	if t.emitter.wheel != nil {
		t.emitter.stop()
	}
}

// Reset restarts the ticker with the period d, even if it was stopped. The next tick comes d from
// now. A tick in C that was not received is removed. If the wheel was stopped, Reset arms nothing.
// It panics if d is not positive, and if the Ticker was not made by NewTicker.
func (t *Ticker) Reset(d time.Duration) {
	mustBePositive("Ticker.Reset", d)
	if t.emitter.wheel == nil {
		panic("timingwheel: Reset of a Ticker that was not made by NewTicker")
	}
	t.emitter.reset(d)
}

// Ticks returns an iterator that yields the current time at multiples of d from the start of the
// loop, each up to one tick of the wheel later. Each loop has its own ticker, which is stopped when
// the loop is left. The loop ends when the wheel is stopped. A tick that comes while the body runs
// waits; further ticks are dropped. Ticks panics if d is not positive.
func (tw *TimingWheel) Ticks(d time.Duration) iter.Seq[time.Time] {
	mustBePositive("Ticks", d)
	return func(yield func(time.Time) bool) {
		t := tw.NewTicker(d)
		defer t.Stop()
		first := &tw.engine.shards[0].shard // the first shard that the wheel's Stop closes
		for !first.closed.Load() {
			select {
			case now := <-t.C:
				// If a tick waits, select may choose it although the wheel is stopped.
				if first.closed.Load() || !yield(now) {
					return
				}
			case <-tw.engine.stopped:
				return
			}
		}
	}
}

func mustBePositive(function string, d time.Duration) {
	if d <= 0 {
		panic(fmt.Sprintf("timingwheel: %s: d is %v; it must be positive", function, d))
	}
}

// NewTicker returns a ticker on the wheel of [Default] that sends the current time at multiples of
// d from now. See [TimingWheel.NewTicker].
func NewTicker(d time.Duration) *Ticker { return Default().NewTicker(d) }

// emitter is the common part of [ChannelTimer] and [Ticker]: it sends times on a channel with a
// buffer of one.
//
// An emitter is armed while relay is set, and idle otherwise. An armed emitter has a timer of the
// wheel whose callback is that of the relay. This timer is pending, or its callback is claimed and
// about to lock mu, or a stopped wheel has discarded it. The channel may hold the last value. If
// the emitter is not periodic, the channel holds a value only while the emitter is idle.
//
//	E1  Only fire sends, under mu, and it never blocks. An emitter that is not periodic sends into
//	    an empty channel. A tick that finds the buffer full is dropped.
//	E2  fire sends only for the relay that is set. Stop unsets the relay and empties the channel in
//	    one critical section. Reset does the same and sets a new relay. If the timer is still
//	    pending, Reset moves it and keeps its relay. A callback that comes too late therefore finds
//	    that its relay is not set, and no earlier value can be received after Stop or Reset.
//	E3  A relay is in the pool, or it is set and its timer is pending, or its callback has been
//	    claimed. The goroutine that stops the timer puts the relay back into the pool. A claimed
//	    callback puts it back at its end, or arms it for the next tick. So no relay serves two
//	    callbacks. Relays of timers that a stopped wheel has discarded are garbage.
//
// Lock order: emitter.mu -> shard.armMu. The wheel runs callbacks without a lock, so fire may take
// both.
//
// Rejected: a Ticker as a plan of [TimingWheel.ScheduleFunc]. A plan asks its Scheduler before each
// run and keeps its handle, which took 12% more CPU time, the receivers included.
type emitter struct {
	wheel *TimingWheel // nil: not made by a constructor
	c     chan time.Time

	mu       sync.Mutex
	relay    *relay // the one that may send; nil: idle
	timer    Timer  // of relay
	periodic *periodic
}

// periodic has the period of a [Ticker] and the time of its next tick.
type periodic struct {
	period int64 // ns, positive
	next   int64 // ns on the wheel's clock: the tick that is armed

	origin *sampling.Origin // of the call that armed the ticker, if that was sampled
}

// skipTo sets next to the first tick after now. If a Flush has fired the timer early, skipTo
// advances next by one period.
func (r *periodic) skipTo(now int64) {
	missed := max(now-r.next, 0) / r.period
	r.next = clock.Saturated(r.next+missed*r.period, r.period)
}

// relay is a callback that refers to its emitter and can be reused for another one. A closure for
// each timer would be one more allocation.
type relay struct {
	owner *emitter
	run   func() // calls fire of the owner
}

// relays is shared by all wheels, including those of testing/synctest bubbles, because a relay in
// the pool refers to nothing of a bubble.
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
	e.relay, e.timer = r, e.wheel.engine.armAt(deadline, now, r.run, 0)
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
	date := e.wheel.wallNow()
	select {
	case e.c <- date:
	default: // the receiver is slow, and the tick is dropped
	}
	if e.periodic == nil {
		e.relay = nil
		r.recycle()
		return
	}
	now, _ := e.wheel.engine.config.Instant(date)
	e.periodic.skipTo(now)
	e.armRelay(r, e.periodic.next, now)
	e.timer.sampleAs(e.periodic.origin)
}

// stop makes the emitter idle and empties the channel. It returns true if a value could still have
// been received.
func (e *emitter) stop() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stopLocked()
}

// reset makes the emitter fire d from now. If the emitter is periodic, d is its new period as well.
// reset returns true if a value could still have been received.
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
	// The callback was claimed and will find that its relay is not set, or the stopped wheel has
	// discarded the timer.
	return waiting || !e.timer.shard().closed.Load()
}

// empty removes the value in the channel. It returns false if there was none.
func (e *emitter) empty() bool {
	select {
	case <-e.c:
		return true
	default:
		return false
	}
}

// Sleep blocks until d has passed, or up to one tick longer, and returns nil. If ctx ends first,
// Sleep returns ctx.Err(). If the wheel is stopped before or during the call, Sleep returns
// [ErrStopped]. A zero or negative d returns at once: ctx.Err() if ctx has ended, and nil
// otherwise. A Flush of the wheel ends a Sleep early, with nil. Sleep panics if ctx is nil.
//
// Do not call Sleep in a callback of a wheel that is Manual or has the [Inline] executor, because
// the callback would block the wheel that is to wake it.
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
	if !tw.role.isDefault() {
		halting = tw.engine.stopped
	}
	reusable, err := s.wait(ctx, timer, halting)
	if reusable {
		tw.sleepers.Put(s)
	}
	return err
}

// sleeper is what a call of Sleep waits on. It is reused only if its timer can no longer wake it,
// because the timer has woken it or was stopped.
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
		return s.afterStop(ErrStopped)
	case <-ctx.Done():
	}
	if timer.Stop() {
		return true, ctx.Err()
	}
	select { // either d has passed and the callback is about to run, or the wheel is stopped
	case <-s.awake:
		return true, nil
	case <-halting:
		return s.afterStop(ctx.Err())
	}
}

// afterStop returns the result of Sleep on a stopped wheel. The callback has run, is about to run,
// or will never run.
func (s *sleeper) afterStop(err error) (reusable bool, _ error) {
	select {
	case <-s.awake:
		return true, nil
	default:
		return false, err
	}
}

// Sleep blocks until d has passed on the wheel of [Default], or returns ctx.Err() if ctx ends
// first. See [TimingWheel.Sleep].
func Sleep(ctx context.Context, d time.Duration) error { return Default().Sleep(ctx, d) }
