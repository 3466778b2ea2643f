package timingwheel

import (
	"math"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"time"

	"github.com/timingwheel-go/timingwheel/internal/clock"
)

// driverActive is the alarm's tick while a driver is starting or running. It is before every tick.
const driverActive = -1

// alarm starts the driver of a shard by a timer of the runtime, so no goroutine waits. While the
// alarm is off, that timer holds no reference to the shard. So a wheel without pending timers can
// be collected, although the runtime may still know the stopped timer. Manual mode has no alarm.
//
// The state of the alarm is in at:
//
//	at            meaning                            changes to
//	never         off                                a tick: the first timer was armed
//	a tick        the runtime's timer is set for it  an earlier tick: set by an arm or by unlock;
//	                                                 never: set by offIfEmpty
//	driverActive  a driver is starting or running    a tick or never: set by reset, once all
//	                                                 expired buckets are taken
//
// Each state changes to driverActive when the alarm goes off, when it is set to a tick that has
// begun, and by requestDriver. The wheel's Stop turns the alarm off in each state. All changes are
// made under armMu, and those to a later tick or never under wheelMu as well.
//
// A Stop does not move the alarm, because that costs as much as an arm and a stop together. If the
// timer for which the alarm is set was stopped, the driver wakes once for nothing.
type alarm struct {
	at atomic.Int64 // written under armMu

	shard  *shard
	target *alarmTarget // set together with timer

	// Guarded by armMu.
	timer    *time.Timer
	starting bool // startDriver has started a driver that has not begun

	fired atomic.Uint64
}

// alarmTarget is what the timer of the runtime refers to. Its shard is nil while the alarm is off,
// so that the timer does not keep an idle wheel alive.
type alarmTarget struct{ shard atomic.Pointer[shard] }

func (t *alarmTarget) fire() {
	if s := t.shard.Load(); s != nil {
		s.alarm.fired.Add(1)
		s.wake()
	}
}

// set sets the alarm to a tick, or starts a driver if the tick has begun. armMu is held.
func (a *alarm) set(tick int64) {
	s := a.shard
	if s.Manual {
		return
	}
	d := s.ticks.Begin(tick) - s.Read()
	if tick == clock.LastTick {
		d = math.MaxInt64 // the clock never reaches it
	}
	if d <= 0 {
		a.startDriver()
		return
	}
	a.at.Store(tick)
	if a.timer == nil {
		a.target = &alarmTarget{}
		a.target.shard.Store(s)
		a.timer = time.AfterFunc(time.Duration(d), a.target.fire)
		return
	}
	a.target.shard.Store(s)
	a.timer.Reset(time.Duration(d))
}

// startDriver starts a driver, unless a driver that it started before has not begun. armMu is held.
func (a *alarm) startDriver() {
	a.at.Store(driverActive)
	if !a.starting {
		a.starting = true
		go a.shard.wake()
	}
}

// off turns the alarm off. armMu is held.
func (a *alarm) off() {
	a.at.Store(never)
	if a.timer != nil {
		a.timer.Stop()
		a.target.shard.Store(nil)
	}
}

// setEarlier sets the alarm to a tick if that is earlier. armMu is held.
func (a *alarm) setEarlier(tick int64) {
	if tick < a.at.Load() {
		a.set(tick)
	}
}

// reset sets the alarm to the first tick at which the shard has work to do, or turns it off.
// wheelMu is held, armMu is not.
func (a *alarm) reset() {
	s := a.shard
	if s.Manual || s.owner.pool.driving || s.closed.Load() {
		return
	}
	first, _ := s.owner.wheel.first()
	s.armMu.Lock()
	defer s.armMu.Unlock()
	if first = min(first, s.owner.arrivals.first, s.inbox.first); first == never {
		a.off()
	} else {
		a.set(first)
	}
}

// requestDriver starts a driver, unless one is running. wheelMu is held, armMu is not.
func (a *alarm) requestDriver() {
	s := a.shard
	if s.Manual || s.owner.pool.driving || s.closed.Load() {
		return
	}
	s.armMu.Lock()
	defer s.armMu.Unlock()
	a.startDriver()
}

// offIfEmpty turns the alarm off if the shard has no timers. A running driver does that at its end.
// wheelMu is held, armMu is not.
func (a *alarm) offIfEmpty() {
	s := a.shard
	o := &s.owner
	if at := a.at.Load(); at == never || at == driverActive {
		return
	}
	// A late alarm may be set for a timer that is due.
	if o.wheel.live > 0 || o.due.ready > 0 || o.wheel.cascade.any() {
		return
	}
	s.armMu.Lock()
	defer s.armMu.Unlock()
	if s.inbox.first == never {
		a.off()
	}
}

// wake runs a driver. The alarm calls wake on a new goroutine, when it goes off or by startDriver.
func (s *shard) wake() {
	s.wheelMu.Lock()
	if s.closed.Load() {
		s.unlock()
		return
	}
	s.armMu.Lock()
	s.alarm.at.Store(driverActive)
	s.alarm.starting = false
	s.armMu.Unlock()
	// Another driver is running. It has released wheelMu between two quanta or for a call of the
	// executor.
	if s.owner.pool.driving {
		s.unlockAndDrain()
		return
	}
	s.host.drive()
}

// advance reads the clock and takes expired buckets off the wheel, a quantum at a time, and then
// sets the alarm. If a quantum has made timers due and was not the last one, advance returns early
// and sets owner.behind. The calling worker then serves these timers before it continues. wheelMu
// is held, and released between two quanta.
func (s *shard) advance() {
	o := &s.owner
	for !s.step() {
		if o.behind = o.due.ready > 0; o.behind {
			return
		}
		s.yield()
	}
	o.behind = false
	s.alarm.reset()
}

// step is one quantum of advance. It reports whether no work is left.
func (s *shard) step() bool {
	if s.closed.Load() {
		return true
	}
	drained := s.drain(quantum)
	s.advanceClock(s.Read())
	return s.owner.expire() && drained
}

// advanceClock advances the owner's clock to a reading. wheelMu is held.
func (s *shard) advanceClock(now int64) {
	if now > s.now.Load() {
		s.now.Store(now)
		s.owner.tick = s.ticks.Floor(now)
	}
}

// advanceIfLate does the driver's work if the owner is behind or the alarm should have gone off. On
// a busy machine the driver waits for a processor. advanceIfLate reports whether there was any
// work. wheelMu is held, and may be released in between.
func (s *shard) advanceIfLate() bool {
	if s.closed.Load() {
		return false
	}
	if now := s.Read(); !s.owner.behind && s.ticks.Floor(now) < s.alarm.at.Load() {
		return false
	}
	s.advance()
	return true
}
