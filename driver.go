package timingwheel

import (
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"time"
)

const (
	// ringing is the alarm's tick while a driver is on its way: no timer is due before it.
	ringing = -1

	// Setting the alarm costs as much as an arm and a stop together. So a Stop of the earliest
	// timer corrects the alarm once for relaxCost arms, with relaxCredit arms saved up.
	relaxCost   = 128
	relaxCredit = 64 * relaxCost

	// linger is how much longer the alarm stays set for a timer that was stopped, if there is no
	// credit.
	linger = 100 * time.Millisecond
)

// alarm wakes the driver of a shard: a timer of the runtime, which costs no goroutine while it
// waits. It holds the shard only while it is set. So a wheel without pending timers can be
// collected, although the runtime may still know the stopped timer. armMu guards it. Manual mode
// has no alarm.
type alarm struct {
	at     atomic.Int64 // tick at which the driver wakes; ringing, never. Read without armMu
	shard  *shard
	timer  *time.Timer
	bell   *bell
	coming bool   // a driver was started by ring and has not begun
	credit uint64 // value of inbox.armed, with relaxCredit, from which a Stop may correct the alarm
	rung   atomic.Uint64
}

type bell struct{ shard atomic.Pointer[shard] }

func (b *bell) ring() {
	if s := b.shard.Load(); s != nil {
		s.alarm.rung.Add(1)
		s.wake()
	}
}

// set lets the driver wake at a tick.
func (a *alarm) set(tick int64) {
	s := a.shard
	if s.Manual {
		return
	}
	d := s.ticks.Begin(tick) - s.Read()
	if d <= 0 {
		a.ring()
		return
	}
	a.at.Store(tick)
	if a.timer == nil {
		a.bell = &bell{}
		a.bell.shard.Store(s)
		a.timer = time.AfterFunc(time.Duration(d), a.bell.ring)
		return
	}
	a.bell.shard.Store(s)
	a.timer.Reset(time.Duration(d))
}

// ring starts a driver now, unless it has started one that has not begun.
func (a *alarm) ring() {
	a.at.Store(ringing)
	if !a.coming {
		a.coming = true
		go a.shard.wake()
	}
}

// off switches the alarm off.
func (a *alarm) off() {
	a.at.Store(never)
	if a.timer != nil {
		a.timer.Stop()
		a.bell.shard.Store(nil)
	}
}

// advance sets the alarm to a tick that is earlier.
func (a *alarm) advance(tick int64) {
	if tick < a.at.Load() {
		a.set(tick)
	}
}

// reset sets the alarm for the first thing to do, or switches it off. wheelMu is held, and not
// armMu.
func (a *alarm) reset() {
	s := a.shard
	if s.Manual || s.owner.crew.driving || s.closed.Load() {
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

// summon starts a driver now, unless one is at work. wheelMu is held, and not armMu.
func (a *alarm) summon() {
	s := a.shard
	if s.Manual || s.owner.crew.driving || s.closed.Load() {
		return
	}
	s.armMu.Lock()
	defer s.armMu.Unlock()
	a.ring()
}

// relax is called after a Stop of the timer for which the alarm is set. It corrects the alarm by
// the credit that arms have saved up, or else sets it to a moment at which the driver looks again.
// wheelMu is held, and not armMu.
func (a *alarm) relax() {
	s := a.shard
	o := &s.owner
	if s.Manual || s.closed.Load() {
		return
	}
	s.armMu.Lock()
	armed := s.inbox.armed + relaxCredit
	if armed < a.credit {
		a.advance(s.ticks.Ceil(s.Read() + int64(linger)))
		s.armMu.Unlock()
		return
	}
	a.credit = max(a.credit, armed-relaxCredit) + relaxCost
	s.armMu.Unlock()
	s.settle(callerQuantum)
	if o.calls() > 0 || o.wheel.cascade.any() {
		a.summon() // the alarm may have been the one for them
	} else {
		a.reset()
	}
}

// wake runs on a goroutine of its own when the alarm goes off.
func (s *shard) wake() {
	s.wheelMu.Lock()
	if s.closed.Load() {
		s.letGo()
		return
	}
	s.armMu.Lock()
	s.alarm.at.Store(ringing)
	s.alarm.coming = false
	s.armMu.Unlock()
	if s.owner.crew.driving { // it has let go of the lock for a moment, or for a call of the executor, and goes on
		s.unlock()
		return
	}
	s.host.drive()
}

// advance reads the clock and takes what is due off the wheel, a quantum at a time, and then sets
// the alarm. wheelMu is held, and let go between two quanta.
func (s *shard) advance() {
	for !s.step() {
		s.yield()
	}
	s.alarm.reset()
}

// step is one quantum of advance. It reports whether nothing is left.
func (s *shard) step() bool {
	if s.closed.Load() {
		return true
	}
	settled := s.settle(quantum)
	now := s.Read()
	if now-s.now.Load() >= s.near {
		s.leap(now)
	}
	s.owner.observe(now)
	return s.owner.expire() && settled
}

// leap moves the clock on by so much that the words of timers could not be understood afterwards,
// as the process has stood still for hours or months: see arena.Near. It goes in steps, so that
// each timer is due before the clock is too far from its tick. The lock is held throughout.
func (s *shard) leap(now int64) {
	s.settleAll()
	o := &s.owner
	for now-s.now.Load() >= s.near {
		o.observe(s.now.Load() + s.near/2)
		for more := true; more; {
			more = !o.expire() || o.wheel.cascade.any()
			o.moveQuantum()
		}
	}
}

// overtake does the driver's work if the alarm should have gone off: on a busy machine the driver
// waits for a processor. It reports whether there was anything to do. wheelMu is held, and may be
// let go.
func (s *shard) overtake() bool {
	if s.closed.Load() {
		return false
	}
	if now := s.Read(); s.ticks.Floor(now) < s.alarm.at.Load() {
		return false
	}
	s.advance()
	return true
}

// yield lets other workers have the wheel.
func (s *shard) yield() {
	s.letGo()
	s.wheelMu.Lock()
}
