//go:build invariants

package timingwheel

import (
	"os"
	"runtime/debug"
)

// checkInvariants verifies the shard after a change and exits the program if an invariant is
// violated. A verification is O(slots). With many open pages only some changes are verified, so
// that the cost of a change stays within a small factor. wheelMu is held.
func checkInvariants(s *shard) {
	if s.closed.Load() {
		return
	}
	s.armMu.Lock()
	pages := s.slots.OpenPages
	s.armMu.Unlock()
	s.owner.sinceCheck++
	if s.owner.sinceCheck < pages*2 {
		return
	}
	s.owner.sinceCheck = 0
	if err := s.verify(); err != nil {
		// A panic would run deferred calls that lock wheelMu, which is held. They would hang before
		// the message is printed.
		println("timingwheel: invariant " + err.Error())
		debug.PrintStack()
		os.Exit(2)
	}
}

// firstBatch is the size of a shard's first batch. It is the full size, so that tests cover
// batches.
const firstBatch = batchSize
