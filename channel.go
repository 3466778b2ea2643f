package timingwheel

import (
	"cmp"
	"context"
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
	C <-chan time.Time // has a buffer of one value, and is never replaced or closed

	emitter emitter
}

// After returns a channel on which the current time is sent once, d from now or up to one tick
// later, and never earlier. If d is zero or negative, the value is due immediately. After costs
// less than NewChannelTimer, but its timer cannot be stopped and is kept until d has passed. If the
// value may not be needed, use [TimingWheel.NewChannelTimer]. On a stopped wheel nothing is sent.
func (tw *TimingWheel) After(d time.Duration) <-chan time.Time {
	c := make(chan time.Time, 1)
	armAfter(tw.engine, d, func() { c <- tw.engine.config.Now() }) // there is room
	return c
}

// NewChannelTimer returns a timer that sends the current time on its channel once, d from now or up
// to one tick later, and never earlier. If d is zero or negative, the timer is due immediately. The
// wheel keeps the timer until it fires or is stopped, even if the program no longer refers to it.
// On a stopped wheel nothing is sent.
func (tw *TimingWheel) NewChannelTimer(d time.Duration) *ChannelTimer {
	t := new(ChannelTimer)
	t.C = t.emitter.start(tw, d)
	return t
}

// Stop stops the timer. It reports whether it prevented the timer from firing or removed a value
// from C that had not been received. It returns false if the value had been received or the timer
// was already stopped. After Stop, a receive from C blocks until the timer is reset and fires. If
// the wheel was stopped, Stop returns true only if it removed a value.
func (t *ChannelTimer) Stop() bool {
	t.emitter.mustBeMade("Stop", "ChannelTimer")
	return t.emitter.stop()
}

// Reset makes the timer fire d from now or up to one tick later, whether it is pending, has fired
// or has been stopped. If d is zero or negative, the timer is due immediately. Reset removes a
// value from C that has not been received. It returns what [ChannelTimer.Stop] would have returned.
// If the wheel was stopped, Reset arms nothing. Moving a pending timer later allocates nothing.
func (t *ChannelTimer) Reset(d time.Duration) bool {
	t.emitter.mustBeMade("Reset", "ChannelTimer")
	return t.emitter.reset(d)
}

// After returns a channel on which the [Default] wheel sends the current time once, d from now or
// up to one tick later. See [TimingWheel.After].
func After(d time.Duration) <-chan time.Time { return Default().After(d) }

// NewChannelTimer returns a timer on the [Default] wheel that sends the current time on its
// channel once, d from now or up to one tick later. See [TimingWheel.NewChannelTimer].
func NewChannelTimer(d time.Duration) *ChannelTimer { return Default().NewChannelTimer(d) }

// Ticker is a [time.Ticker] on a wheel: it sends the current time on C at regular intervals. Make
// one with [TimingWheel.NewTicker]. The wheel keeps a ticker until the ticker is stopped, even if
// the program no longer refers to it. A Ticker must not be copied. Its methods may be called
// concurrently.
type Ticker struct {
	C <-chan time.Time // has a buffer of one tick, and is never replaced or closed

	emitter emitter
}

// NewTicker returns a ticker that sends the current time at multiples of d from now, each time up
// to one tick of the wheel late. Delays do not accumulate. If a tick has not been received when the
// next one is due, the next one is dropped. On a stopped wheel nothing is sent. NewTicker panics if
// d is not positive.
func (tw *TimingWheel) NewTicker(d time.Duration) *Ticker {
	mustBePositive("NewTicker", d)
	t := new(Ticker)
	t.emitter.ticks = true
	t.C = t.emitter.start(tw, d)
	return t
}

// Stop stops the ticker and removes a tick from C that has not been received. After Stop, a receive
// from C blocks until the ticker is reset and ticks. Stop does not close C. Stopping a stopped
// ticker or a zero Ticker has no effect.
func (t *Ticker) Stop() {
	if t.emitter.c != nil {
		t.emitter.stop()
	}
}

// Reset restarts the ticker with the period d, even if it was stopped. The next tick comes d from
// now. Reset removes a tick from C that has not been received. If the wheel was stopped, Reset arms
// nothing. Reset panics if d is not positive or if the Ticker was not made by NewTicker.
func (t *Ticker) Reset(d time.Duration) {
	mustBePositive("Ticker.Reset", d)
	t.emitter.mustBeMade("Reset", "Ticker")
	t.emitter.reset(d)
}

// Ticks returns an iterator that yields the current time at multiples of d from the start of the
// loop, each time up to one tick of the wheel late. Each loop has its own ticker, which is stopped
// when the loop is left. The loop ends when the wheel is stopped. A tick that comes while the body
// runs waits; any more are dropped. Ticks panics if d is not positive.
func (tw *TimingWheel) Ticks(d time.Duration) iter.Seq[time.Time] {
	mustBePositive("Ticks", d)
	return func(yield func(time.Time) bool) {
		t := tw.NewTicker(d)
		defer t.Stop()
		for {
			select {
			case now := <-t.C:
				// If a tick waits, select may choose it although the wheel is stopped.
				if isClosed(tw.engine.stopped) || !yield(now) {
					return
				}
			case <-tw.engine.stopped:
				return
			}
		}
	}
}

// NewTicker returns a ticker on the [Default] wheel that sends the current time at multiples of
// d from now. See [TimingWheel.NewTicker].
func NewTicker(d time.Duration) *Ticker { return Default().NewTicker(d) }

// emitter is the common part of [ChannelTimer] and [Ticker]: it sends times on a channel with a
// buffer of one.
//
//	E1  Only fire sends, under mu, and it never blocks. A ChannelTimer has a value in its channel
//	    only while it is not armed. A tick that finds the buffer full is dropped.
//	E2  Stop and Reset empty the channel. If they come after a claim of the timer, they count its
//	    call in late, in the same critical section, and fire sends nothing for a late call. So no
//	    earlier value can be received after Stop or Reset.
//
// Lock order: emitter.mu -> shard.inbox.mu. The wheel runs callbacks without a lock, so fire may
// take both.
//
// Rejected: a Ticker as a plan of [TimingWheel.ScheduleFunc]. A plan asks its Scheduler before each
// run and keeps its handle, which took 12% more CPU time, the receivers included.
type emitter struct {
	c     chan time.Time // nil: not made by a constructor
	timer rearmable

	mu    sync.Mutex
	late  int32 // calls to fire that are to come and have to send nothing
	armed bool  // timer is pending or claimed, or was discarded by the wheel's Stop

	// For a Ticker.
	ticks  bool             // it is one
	period int64            // ns, positive
	next   int64            // ns on the wheel's clock: the tick that is armed
	origin *sampling.Origin // of the call that armed the ticker, if that was sampled
}

// skipTo sets next to the first tick after now. If a Flush has fired the timer early, skipTo
// advances next by one period.
func (e *emitter) skipTo(now int64) {
	missed := max(now-e.next, 0) / e.period
	e.next = clock.Saturated(e.next+missed*e.period, e.period)
}

func (e *emitter) mustBeMade(method, kind string) {
	if e.c == nil {
		panic("timingwheel: " + method + " called on a " + kind + " that was not made by New" + kind)
	}
}

// start arms a new emitter, d from now, and returns its channel.
func (e *emitter) start(tw *TimingWheel, d time.Duration) <-chan time.Time {
	e.c = make(chan time.Time, 1)
	e.timer.init(tw.engine, e.fire)
	e.reset(d)
	return e.c
}

// fire is the callback of the timer.
func (e *emitter) fire() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.late > 0 {
		e.late--
		return
	}
	e.armed = e.ticks
	date := e.timer.engine().config.Now()
	select {
	case e.c <- date:
	default: // the receiver is slow, and the tick is dropped
	}
	if e.ticks {
		now, _ := e.timer.engine().config.Instant(date)
		e.skipTo(now)
		e.timer.resetTo(e.next, now, 0)
		h, _ := e.timer.handle()
		h.sampleAs(e.origin)
	}
}

// stop stops the timer and empties the channel. It reports whether a value could still have been
// received.
func (e *emitter) stop() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	stopped, _ := e.timer.stop()
	return e.disarmed(stopped)
}

// reset makes the emitter fire d from now. The period of a Ticker becomes d.
// reset reports whether a value could still have been received.
func (e *emitter) reset(d time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.timer.engine().config.Read()
	deadline := clock.Later(now, int64(d))
	active := e.disarmed(e.timer.resetTo(deadline, now, 0))
	e.armed = true
	if e.ticks {
		h, _ := e.timer.handle()
		e.period, e.next, e.origin = int64(d), deadline, h.origin()
	}
	return active
}

// disarmed empties the channel after the timer was stopped or armed again. pending says that the
// timer was pending before. Otherwise, if it was armed, its call is to come, or the wheel's Stop
// has discarded it. disarmed reports whether a value could still have been received.
func (e *emitter) disarmed(pending bool) bool {
	active := e.empty() || pending || e.armed && !e.timer.engine().shards[0].closed.Load()
	if e.armed && !pending {
		e.late++
	}
	e.armed = false
	return active
}

// empty removes the value in the channel and reports whether there was one.
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
// [ErrStopped]. If d is zero or negative, Sleep returns immediately: ctx.Err() if ctx has ended,
// and nil otherwise. [TimingWheel.Flush] makes Sleep return nil early. Sleep panics if ctx is nil.
//
// Do not call Sleep from one of the wheel's callbacks if the wheel is Manual or has the [Inline]
// executor, because the callback would block the wheel that is to wake it.
func (tw *TimingWheel) Sleep(ctx context.Context, d time.Duration) error {
	mustHaveContext(ctx, "Sleep")
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	t, ok := tw.sleepers.Get().(*ChannelTimer)
	if ok {
		t.Reset(d)
	} else {
		t = tw.NewChannelTimer(d)
	}
	defer tw.sleepers.Put(t)
	select {
	case <-t.C:
		return nil
	case <-tw.engine.stopped:
	case <-ctx.Done():
	}
	if t.emitter.empty() {
		return nil
	}
	t.Stop()
	return cmp.Or(ctx.Err(), ErrStopped)
}

// Sleep blocks until d has passed on the [Default] wheel, or returns ctx.Err() if ctx ends
// first. See [TimingWheel.Sleep].
func Sleep(ctx context.Context, d time.Duration) error { return Default().Sleep(ctx, d) }
