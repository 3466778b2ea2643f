package timingwheel

import (
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"time"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

const (
	// driverActive is the alarm's tick while a driver is on its way or at work. It is before every tick.
	driverActive = -1

	// Setting the alarm costs as much as an arm and a stop together. So a Stop of the earliest
	// timer corrects the alarm once for correctionCost arms, with correctionCredit arms saved up.
	correctionCost   = 128
	correctionCredit = 64 * correctionCost

	// linger is how much longer the alarm stays set for a timer that was stopped, if there is no
	// credit.
	linger = 100 * time.Millisecond
)

// alarm wakes the driver of a shard: a timer of the runtime, which costs no goroutine while it
// waits. It holds the shard only while it is set. So a wheel without pending timers can be
// collected, although the runtime may still know the stopped timer. armMu guards it. Manual mode
// has no alarm.
type alarm struct {
	at        atomic.Int64 // tick at which the driver wakes, or driverActive, or never; read without armMu
	lone      atomic.Bool  // the inbox had one timer after the last arm
	stale     atomic.Bool  // the timer for which the alarm is set was postponed in the inbox
	shard     *shard
	timer     *time.Timer
	target    *alarmTarget
	starting  bool   // a driver was started by startDriver and has not begun
	correctAt uint64 // a Stop may correct the alarm once inbox.armed+correctionCredit reaches it
	fired     atomic.Uint64
}

// alarmTarget is what the timer of the runtime refers to. Its shard is nil while the alarm is off, so the
// timer keeps no idle wheel alive.
type alarmTarget struct{ shard atomic.Pointer[shard] }

func (b *alarmTarget) fire() {
	if s := b.shard.Load(); s != nil {
		s.alarm.fired.Add(1)
		s.wake()
	}
}

// set sets the alarm to a tick, and starts a driver at once if the tick has begun.
func (a *alarm) set(tick int64) {
	s := a.shard
	if s.Manual {
		return
	}
	d := s.ticks.Begin(tick) - s.Read()
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

// startDriver starts a driver now, unless a driver that it started before has not begun.
func (a *alarm) startDriver() {
	a.at.Store(driverActive)
	if !a.starting {
		a.starting = true
		go a.shard.wake()
	}
}

// off switches the alarm off.
func (a *alarm) off() {
	a.at.Store(never)
	if a.timer != nil {
		a.timer.Stop()
		a.target.shard.Store(nil)
	}
}

// setEarlier sets the alarm to a tick that is earlier.
func (a *alarm) setEarlier(tick int64) {
	if tick < a.at.Load() {
		a.set(tick)
	}
}

// isFor reports whether the alarm may be set for a timer that was stopped when its word was w.
func (a *alarm) isFor(w arena.Word) bool {
	if w.Kind() == arena.Staged && (a.lone.Load() || a.stale.Load()) {
		return true
	}
	if w.Has(arena.Far) {
		return a.isForFar(w)
	}
	return w.Bits() == arena.LowBits(a.at.Load())
}

// isForFar is isFor for a far deadline.
func (a *alarm) isForFar(w arena.Word) bool {
	tick, ok := a.shard.far.get(w.Bits())
	return ok && tick == a.at.Load()
}

// reset sets the alarm for the first thing to do, or switches it off. wheelMu is held, and not
// armMu.
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

// requestDriver starts a driver now, unless one is at work. wheelMu is held, and not armMu.
func (a *alarm) requestDriver() {
	s := a.shard
	if s.Manual || s.owner.pool.driving || s.closed.Load() {
		return
	}
	s.armMu.Lock()
	defer s.armMu.Unlock()
	a.startDriver()
}

// correct is called after a Stop of the timer for which the alarm is set, and when nothing is on the
// wheel any more. If arms have saved up enough credit, it corrects the alarm. If not, it makes sure
// that a driver looks within linger. wheelMu is held, and not armMu.
func (a *alarm) correct() {
	s := a.shard
	o := &s.owner
	if s.Manual || s.closed.Load() {
		return
	}
	a.stale.Store(false)
	s.armMu.Lock()
	armed := s.inbox.armed
	if armed+correctionCredit < a.correctAt {
		a.setEarlier(s.ticks.Ceil(s.Read() + int64(linger)))
		s.armMu.Unlock()
		return
	}
	a.correctAt = max(a.correctAt, armed) + correctionCost
	s.armMu.Unlock()
	s.drain(callerQuantum)
	if o.batchesDue() > 0 || o.wheel.cascade.any() {
		a.requestDriver() // the alarm may have been set for them
	} else {
		a.reset()
	}
}

// wake runs on a goroutine of its own when the alarm goes off.
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
	// Another driver is at work. It has unlocked for a moment, or for a call of the executor.
	if s.owner.pool.driving {
		s.unlockAndDrain()
		return
	}
	s.host.drive()
}

// advance reads the clock and takes what is due off the wheel, a quantum at a time, and then sets
// the alarm. If a quantum has made timers due and was not the last one, advance ends early and
// notes that the owner is behind. The calling worker then serves these timers and comes back for
// the rest. wheelMu is held, and released between two quanta.
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

// step is one quantum of advance. It reports whether nothing is left.
func (s *shard) step() bool {
	if s.closed.Load() {
		return true
	}
	drained := s.drain(quantum)
	now := s.Read()
	if !s.owner.noteReading(now) {
		s.leap(now)
	}
	return s.owner.expire() && drained
}

// leap moves the clock on so far that the words of timers could not be read afterwards (see
// arena.Near). That happens when no driver has come for hours or months, for example because the
// process has stood still, and once in arena.Near ticks in any case. leap goes in steps, so that
// each timer is due before the clock is too far from its tick. The lock is held throughout.
func (s *shard) leap(now int64) {
	o := &s.owner
	for end := s.ticks.Floor(now); o.tick < end; {
		s.drainAll() // in each step, because callers arm by words.now what should have run before it
		tick := min(end, o.tick+arena.Near/2)
		o.age(tick)
		o.tick = tick
		o.now.Store(max(o.now.Load(), s.ticks.Begin(tick)))
		for more := true; more; {
			more = !o.expire() || o.wheel.cascade.any()
			o.cascadeQuantum()
		}
	}
	o.noteReading(now)
}

// advanceIfLate does the driver's work if the owner is behind or the alarm should have gone off: on a
// busy machine the driver waits for a processor. It reports whether there was anything to do.
// wheelMu is held, and may be released meanwhile.
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
