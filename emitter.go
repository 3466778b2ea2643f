package timingwheel

import (
	"sync"
	"time"
)

// emitter sends times on a channel with room for one: what [ChannelTimer] and [Ticker] have in common. A ticker arms each tick itself: as a plan of
// [TimingWheel.ScheduleFunc], which has to ask for its runs and to keep its handle, it took 12% more of the processor's time, the receivers' included.
//
// It is armed while relay is set, and idle otherwise. An armed one has a timer of the wheel whose callback is that of the relay, pending, or claimed and
// about to ask for mu. The last value may be in the channel or not; where the emitter fires once, it is there only when idle.
//
//	E1  Only fire sends, under mu, and never blocks: once, into an empty channel, or a tick that is dropped where there is no room.
//	E2  fire sends for the relay that is set, and for no other. Stop and Reset unset or replace it and then empty the channel, in one critical section.
//	    So whatever a timer was armed for earlier finds out that it comes too late, and no value of it can be received afterwards.
//	E3  A relay is in the pool, or set with its timer pending, or its callback has been claimed. Whoever stops the timer puts it back, or else the callback
//	    does at its end. So no relay serves two callbacks. Those that a stopped wheel has discarded are left to the garbage collector.
//
// Lock order: emitter.mu -> shard.mu. The wheel runs callbacks without a lock, so fire may take both.
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

// skipTo moves on to the first tick after now, or at least to the next one where a flush came before its time.
func (r *rhythm) skipTo(now int64) {
	missed := max(now-r.next, 0) / r.period
	r.next = saturated(r.next+missed*r.period, r.period)
}

// relay is a callback that finds its emitter by itself, so that it can be kept and used again: a closure for each timer would be one more allocation.
type relay struct {
	owner *emitter
	run   func() // calls fire of the owner
}

// relays is shared by all wheels, those of testing/synctest bubbles included: a relay holds nothing that belongs to one.
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
	e.arm(later(now, int64(d)), now)
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
	now, _ := e.wheel.engine.instant(date)
	e.rhythm.skipTo(now)
	e.armRelay(r, e.rhythm.next, now)
}

// stop makes the emitter idle and empties the channel. It returns true if a value was still to be received.
func (e *emitter) stop() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stopLocked()
}

// reset makes the emitter fire d from now, and with that period where it has one. It returns true if a value was still to be received.
func (e *emitter) reset(d time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.resetLocked(d)
}

func (e *emitter) resetLocked(d time.Duration) bool {
	now := e.wheel.engine.reading()
	deadline := later(now, int64(d))
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
	return waiting || !e.timer.shard.isStopped() // claimed, and now comes too late; or discarded
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

// home returns the shard of the timer that was armed last, or nil where that was too late, as the wheel had been stopped. The emitter has been started.
func (e *emitter) home() *shard {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.timer.shard
}
