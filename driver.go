package timingwheel

import (
	"math"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms

	"github.com/timingwheel-go/timingwheel/internal/alarm"
	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// driverActive is the alarm's tick while a driver is starting or running. It is before every tick.
const driverActive = -1

// driverAlarm starts the driver of a shard. If the alarm is off, the garbage collector can free the
// wheel. In Manual mode at stays driverActive until the wheel's Stop, so nothing sets the alarm.
//
// The state of the alarm is in at:
//
//	at            meaning                        changes to
//	never         off                            a tick: the first timer was armed
//	a tick        the alarm is set for the tick  an earlier tick: set by arming or by unlock;
//	                                             never: set by drain
//	driverActive  a driver starts or runs        a tick or never: set by reset, once all expired
//	                                             buckets are taken
//
// Each state changes to driverActive when the alarm goes off, and when it is set to a tick that has
// begun. The wheel's Stop turns the alarm off in each state. Changes to a later tick or never are
// made under owner.mu as well as inbox.mu. Stopping a timer does not move the alarm, because that
// costs as much as arming and stopping a timer.
type driverAlarm struct {
	at atomic.Int64 // written under inbox.mu

	shard        *shard
	due          due  // its own, or shared by the shards of the wheel
	workersDrive bool // the workers of due continue the work of a driver

	// Guarded by inbox.mu.
	timer    alarm.Alarm
	starting bool // startDriver has started a driver that has not begun

	rings atomic.Uint64 // times that the alarm went off
}

func (a *driverAlarm) init(s *shard, group *alarm.Group) {
	a.shard = s
	a.at.Store(never)
	if s.engine.opts.Manual {
		a.at.Store(driverActive)
	}
	a.timer.Init(group, a.ring)
}

// ring is called on a goroutine of its own when the alarm goes off. If the alarm went off early,
// the driver sets it again.
func (a *driverAlarm) ring() {
	a.rings.Add(1)
	a.wake()
}

// set starts a driver if the tick has begun. inbox.mu is held.
func (a *driverAlarm) set(tick int64) {
	at, now := a.begin(tick), a.shard.config.Read()
	if at <= now {
		a.startDriver()
		return
	}
	a.at.Store(tick)
	a.timer.Set(at, now)
}

func (a *driverAlarm) begin(tick int64) int64 {
	if tick == clock.LastTick {
		return math.MaxInt64 // the clock never reaches it
	}
	return a.shard.config.ticks.Begin(tick)
}

// startDriver starts a driver, unless a driver that it started before has not begun. inbox.mu is
// held.
func (a *driverAlarm) startDriver() {
	a.at.Store(driverActive)
	if !a.starting {
		a.starting = true
		go a.wake()
	}
}

// off turns the alarm off. inbox.mu is held.
func (a *driverAlarm) off() {
	if a.at.Swap(never) != never {
		a.timer.Off()
	}
}

// close turns the alarm off for ever. inbox.mu is held.
func (a *driverAlarm) close() {
	a.at.Store(never)
	a.timer.Close()
}

// setEarlier sets the alarm to a tick if that is earlier. inbox.mu is held.
func (a *driverAlarm) setEarlier(tick int64) {
	if tick < a.at.Load() {
		a.set(tick)
	}
}

// reset sets the alarm to the first tick at which the shard has work to do, or turns it off.
// owner.mu is held, inbox.mu is not.
func (a *driverAlarm) reset() {
	s := a.shard
	o := &s.owner
	if s.closed.Load() {
		return
	}
	first := o.wheel.first()
	if len(o.expired) > 0 || o.wheel.cascade.any() {
		first = o.tick
	}
	s.inbox.mu.Lock()
	defer s.inbox.mu.Unlock()
	if first = min(first, o.arrivals.first, s.inbox.first); first == never {
		a.off()
	} else {
		a.set(first)
	}
}

// driverQuanta is the number of quanta that a driver works before what it has queued may run.
const driverQuanta = 8

// wake runs a driver on the calling goroutine, which queues the timers that are due and sets the
// alarm. Then this goroutine runs what is queued, unless another one does. If work is left after
// driverQuanta, the workers of the pool continue it. If there is no pool, or a pool with a limit,
// another goroutine does: a full pool does not call More.
func (a *driverAlarm) wake() {
	s := a.shard
	s.owner.mu.Lock()
	if s.closed.Load() {
		s.unlock()
		return
	}
	s.inbox.mu.Lock()
	a.at.Store(driverActive)
	a.starting = false
	s.inbox.mu.Unlock()
	queued, done := a.queueDueAndUnlock(false)
	if !done && !a.workersDrive {
		go a.wake()
	}
	if queued {
		a.due.Wake()
	}
}

// queueDueAndUnlock works for driverQuanta, or until no work is left. If it has queued no timer by
// then, it continues, unless brief is true.
func (a *driverAlarm) queueDueAndUnlock(brief bool) (queued, done bool) {
	s := a.shard
	o := &s.owner
	for n := 1; ; n++ {
		done = a.step()
		if len(o.expired) > 0 {
			queued = true
			a.due.Put(o.expired, a.workersDrive && !done)
			o.clearExpired()
		}
		if done {
			a.reset()
		}
		if done || n >= driverQuanta && (queued || brief) {
			s.unlockAndDrain()
			return queued, done
		}
		s.yield()
	}
}

// step is one quantum of a driver. It reports whether no work is left.
func (a *driverAlarm) step() bool {
	s := a.shard
	if s.closed.Load() {
		return true
	}
	drained := s.owner.drain(quantum)
	s.advanceClock(s.config.Read())
	return s.owner.expire() && drained
}

// owner.mu is held.
func (s *shard) advanceClock(now int64) {
	if now > s.now.Load() {
		s.now.Store(now)
		s.owner.tick = s.config.ticks.Floor(now)
	}
}

// driveIfLate does the driver's work if the alarm should have gone off by the tick: on a busy
// machine the driver waits for a processor. It does nothing if another goroutine holds owner.mu,
// unless own is true and a driver is active: that driver may have left its work to the caller.
func (a *driverAlarm) driveIfLate(tick int64, own bool) (queued bool) {
	s := a.shard
	at := a.at.Load()
	if tick < at {
		return false
	}
	if !s.owner.mu.TryLock() {
		if at != driverActive || !own {
			return false
		}
		s.owner.mu.Lock()
	}
	queued, done := a.queueDueAndUnlock(true)
	if own && !done {
		a.due.Put(nil, true)
	}
	return queued
}
