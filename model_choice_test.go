package timingwheel

import (
	"math"
	"time"
)

// delay chooses a delay, with a bent for the places where a wheel may go wrong.
func (m *model) delay() time.Duration {
	tick := int64(m.cfg.tick)
	near := func(ns int64) time.Duration { return time.Duration(satAdd(ns, int64(m.pick.below(3)-1))) }
	switch m.pick.below(12) {
	case 0:
		return 0
	case 1:
		return -time.Duration(m.pick.bits()) - 1
	case 2:
		return time.Duration(m.pick.bits() % (3 * tick))
	case 3, 4:
		return near(satMul(int64(m.pick.below(2*m.cfg.size+2)), tick))
	case 5: // an edge of a level, from now
		return near(satMul(satAdd(m.edge(), int64(m.pick.below(3)-1)), tick))
	case 6: // an edge of a level, on the wheel
		e := m.edge()
		return near(satMul(e-m.tickOf()%e+int64(m.pick.below(3)-1), tick))
	case 7:
		return near(1 << m.pick.below(63))
	case 8: // rounds
		return near(satMul(satMul(m.cfg.span(), tick), 1+int64(m.pick.below(4))))
	case 9:
		return math.MaxInt64 - time.Duration(m.pick.below(2))
	case 10: // the very deadline of another timer
		if len(m.pending) > 0 {
			return time.Duration(m.pending[m.pick.below(len(m.pending))].due - m.now)
		}
	}
	return time.Duration(m.pick.bits() % satMul(satMul(m.cfg.span(), tick), 2))
}

// edge is the number of ticks of one interval of some level, or of its whole wheel.
func (m *model) edge() int64 {
	n := int64(m.cfg.size)
	for range m.pick.below(m.cfg.levels) {
		n = satMul(n, int64(m.cfg.size))
	}
	return n
}

// target chooses the reading to which the clock moves. Mostly it lies within some laps of the last
// wheel: otherwise timers that never fire would soon take the clock to its end.
func (m *model) target() int64 {
	to := m.anyTarget()
	if m.pick.below(32) == 1 {
		return to
	}
	return min(to, satAdd(m.now, satMul(satMul(m.cfg.span(), int64(m.cfg.tick)), 4)))
}

func (m *model) anyTarget() int64 {
	tick := int64(m.cfg.tick)
	switch m.pick.below(10) {
	case 0:
		return m.now
	case 1:
		return m.now - m.pick.bits()%(m.now+1)
	case 2:
		return satAdd(m.now, m.pick.bits()%(3*tick))
	case 3, 4:
		return satAdd(m.now, satMul(tick, int64(m.pick.below(2*m.cfg.size))))
	case 5:
		if at, ok := m.checkNext(); ok {
			return at
		}
	case 6: // just before there is something to do
		if at, ok := m.checkNext(); ok && at > m.now {
			return at - 1
		}
	case 7:
		e := m.edge()
		return satMul(satAdd(m.tickOf(), e-m.tickOf()%e+int64(m.pick.below(3)-1)), tick)
	case 8:
		if len(m.pending) > 0 {
			return satAdd(m.pending[m.pick.below(len(m.pending))].due, m.pick.bits()%tick)
		}
	}
	return satAdd(m.now, satMul(m.cfg.span(), tick)/int64(1+m.pick.below(64)))
}

// readingNear is a point in time that lies d ahead, or behind where d is negative.
func (m *model) readingNear(d time.Duration) int64 {
	if d < 0 {
		return max(0, m.now+int64(d))
	}
	return m.delayed(d)
}

var modelTicks = []time.Duration{
	time.Microsecond, time.Millisecond, time.Second, time.Hour, 1_234_567, 7919 * time.Microsecond,
}

// modelOrigins are first readings of the clock: small, just before some level of the wheel wraps,
// after 2^48 ticks, and so large that sums with long delays overflow.
func modelOrigins(c modelConfig) []int64 {
	tick := int64(c.tick)
	lap := satMul(c.span(), tick)
	return []int64{
		0, 1, tick - 1, tick*int64(c.size) - 1, max(0, min(lap, 1<<61)-tick), min(satMul(lap, 1<<16), 1<<62) - 1,
		min(satMul(1<<48, tick), 1<<61+12345), 1 << 61, math.MaxInt64 - 1<<55,
	}
}

// modelChoice is a configuration that the choices make.
func modelChoice(pick choices) modelConfig {
	c := modelConfig{
		tick:   modelTicks[pick.below(len(modelTicks))],
		size:   2 << pick.below(6),
		levels: 1 + pick.below(5),
		shards: 1 + pick.below(4)/3,
		queued: pick.below(4) == 3,
	}
	origins := modelOrigins(c)
	c.origin = origins[pick.below(len(origins))]
	return c
}
