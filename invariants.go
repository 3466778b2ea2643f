//go:build invariants

package timingwheel

import (
	"os"
	"runtime/debug"
)

// checkInvariants verifies the shard after a change and ends the program if an invariant does not
// hold. The walk is O(pending), so only some changes are followed by one if many timers are
// pending. The cost of a change stays within a small factor. wheelMu is held.
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
		// Not a panic: with wheelMu held, deferred calls that take it would hang before the message
		// is seen.
		println("timingwheel: invariant " + err.Error())
		debug.PrintStack()
		os.Exit(2)
	}
}

// firstBatch lets workers claim batches from the first one, so that tests meet them.
const firstBatch = batchSize
