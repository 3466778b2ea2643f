//go:build !invariants

package timingwheel

// checkLocked verifies the shard under the build tag invariants, and is nothing otherwise.
func (s *shard) checkLocked() {}

// firstBatch is the size of a shard's first batch.
const firstBatch = 1
