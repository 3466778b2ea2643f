//go:build invariants

package timingwheel

import (
	"os"
	"runtime/debug"
)

// checkLocked verifies the shard after a change and ends the program where an invariant does not hold. The walk
// is O(pending), so over many timers only some changes are followed by one: the cost per change stays
// within a small factor.
func (s *shard) checkLocked() {
	s.sinceCheck++
	if s.sinceCheck < s.pending/16 {
		return
	}
	s.sinceCheck = 0
	if err := s.verify(); err != nil {
		// Not a panic: with mu held, deferred calls that take it would hang before the message is seen.
		println("timingwheel: invariant " + err.Error())
		debug.PrintStack()
		os.Exit(2)
	}
}

// firstLot lets callbacks be claimed in lots from the first one, so that tests meet them.
const firstLot = chunkSize

// tombstonesFrom lets tests meet tombstones, but for those that count wake-ups of a few timers.
const tombstonesFrom = 8
