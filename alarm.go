package timingwheel

import (
	"time"

	"go.uber.org/atomic"
)

const (
	// Setting the alarm costs as much as an arm and a stop together, so the alarm is corrected after a
	// stop of the earliest timer once for relaxCost arms, with relaxCredit saved up. Without credit the
	// driver wakes once for nothing.
	relaxCost   = 128
	relaxCredit = 64 * relaxCost

	// linger is how long the alarm of a shard without pending timers may stay set when it may not be
	// switched off for want of credit.
	linger = 100 * time.Millisecond
)

// alarm wakes the driver of a shard: a timer of the runtime, which costs no goroutine while it waits.
// It holds the shard only while it is set, so that a wheel without pending timers can be collected even
// where the runtime still remembers the switched-off timer.
type alarm struct {
	timer *time.Timer
	bell  *bell
}

type bell struct{ shard atomic.Pointer[shard] }

func (b *bell) ring() {
	if s := b.shard.Load(); s != nil {
		s.wake()
	}
}

// sooner is told of a queued bucket's expiration and sets the alarm where it would go off later.
func (s *shard) sooner(b *bucket) {
	if b.key < s.wakeAt && !s.driving && !s.manual {
		s.setAlarm(b.key)
	}
}

// setAlarm lets the driver wake at a tick.
func (s *shard) setAlarm(tick int64) {
	s.wakeAt, s.quiet = tick, s.quietOf(tick)
	d := time.Duration(s.quiet - s.clock())
	if s.alarm.timer == nil {
		s.alarm.bell = &bell{}
		s.alarm.bell.shard.Store(s)
		s.alarm.timer = time.AfterFunc(d, s.alarm.bell.ring)
		return
	}
	s.alarm.bell.shard.Store(s)
	s.alarm.timer.Reset(d)
}

// quietOf is the time, in ns, of an alarm for a tick: until then nobody looks at the shard. In Manual mode it is 0.
func (s *shard) quietOf(tick int64) int64 {
	if s.manual {
		return 0
	}
	return s.ticks.times(tick)
}

// noAlarm notes that no alarm is set.
func (s *shard) noAlarm() { s.wakeAt, s.quiet = never, s.quietOf(never) }

// disarm switches the alarm off.
func (s *shard) disarm() {
	s.noAlarm()
	if s.alarm.timer != nil {
		s.alarm.timer.Stop()
		s.alarm.bell.shard.Store(nil)
	}
}

// resetAlarm sets the alarm for the earliest bucket, or switches it off.
func (s *shard) resetAlarm() {
	s.settleWheel()
	s.dropEmptyTop()
	if top, ok := s.queue.min(); ok {
		s.setAlarm(top.key)
	} else {
		s.disarm()
	}
}

// lastGone is told that a timer has gone from a bucket that is due, whose end emptied does not see, perhaps the last one.
func (s *shard) lastGone() {
	if s.pending == 0 && s.wakeAt != never {
		s.relax()
	}
}

// relax is called when the earliest bucket, or the whole wheel, has just lost its last timer.
func (s *shard) relax() {
	if s.manual || s.driving {
		return
	}
	armed := int64(s.counters.armed)
	if armed >= s.relaxAt {
		s.relaxAt = max(s.relaxAt, armed-relaxCredit) + relaxCost
		s.resetAlarm()
		return
	}
	if s.pending == 0 && s.quiet-s.now > int64(linger)+s.ticks.d {
		s.setAlarm(s.ticks.floor(s.now+int64(linger)) + 1)
	}
}
