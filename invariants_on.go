//go:build invariants

package timingwheel

// checkLocked verifies the shard after a change and panics where an invariant does not hold. The walk
// is O(pending), so over many timers only some changes are followed by one: the cost per change stays
// within a small factor.
func (s *shard) checkLocked() {
	s.sinceCheck++
	if s.sinceCheck < s.pending/16 {
		return
	}
	s.sinceCheck = 0
	if err := s.verify(); err != nil {
		panic("timingwheel: invariant " + err.Error())
	}
}
