package timingwheel

import "math"

// checkNext checks that Next is never late, and that it asks for nothing before there is something
// to do.
func (m *model) checkNext() (reading int64, ok bool) {
	at, ok := m.sut.next()
	if ok != (len(m.pending) > 0) {
		m.failf("Next: %v with %d pending", ok, len(m.pending))
	}
	if !ok {
		return 0, false
	}
	first, ready := int64(math.MaxInt64), false
	for _, e := range m.pending {
		first = min(first, e.tick)
		ready = ready || e.collected
	}
	ready = ready || first <= m.tickOf()
	reading = m.reading(at)
	switch tick := int64(m.cfg.tick); {
	case reading > satMul(max(first, m.tickOf()), tick):
		m.failf("Next is %d, the first timer is due at tick %d", reading, first)
	case !ready && reading <= m.now:
		m.failf("Next is %d although nothing is due before tick %d", reading, first)
	}
	return reading, true
}

// checkSometimes is check where many callbacks follow each other: as the walk is O(pending), the
// more are pending the fewer are followed by one.
func (m *model) checkSometimes() {
	if m.unchecked++; m.unchecked > len(m.pending)/32 {
		m.check()
	}
}

// check compares what the wheel says of itself with the reference.
func (m *model) check() {
	m.unchecked = 0
	if err := m.sut.verify(); err != nil {
		m.failf("verify: %v", err)
	}
	switch {
	case m.sut.len() != len(m.pending):
		m.failf("Len: %d, want %d", m.sut.len(), len(m.pending))
	case !m.stopped && !m.sut.now().Equal(m.time(m.now)):
		m.failf("Now: %v, want %v", m.sut.now(), m.time(m.now))
	}
}

func (m *model) checkStats() {
	st := m.sut.stats()
	m.want.Pending = len(m.pending)
	got := Stats{
		Pending: st.Pending, Armed: st.Armed, Fired: st.Fired, Stopped: st.Stopped, Postponed: st.Postponed,
		Running: st.Running,
	}
	switch {
	case got != m.want:
		m.failf("Stats: %+v, want %+v", got, m.want)
	case !m.stopped && st.Lateness.Count() != st.Fired:
		m.failf("%d latenesses of %d", st.Lateness.Count(), st.Fired)
	}
}
