//go:build !invariants

package timingwheel

// checkLocked verifies the shard under the build tag invariants, and is nothing otherwise.
func (s *shard) checkLocked() {}

// firstLot is the size of a shard's first lot.
const firstLot = 1

// tombstonesFrom is the number of pending timers of a shard from which the descriptions of chunks do not stay in the
// first two caches.
const tombstonesFrom = 1 << 15
