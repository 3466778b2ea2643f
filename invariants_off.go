//go:build !invariants

package timingwheel

// checkInvariants verifies the shard under the build tag invariants. Without the tag it does
// nothing.
func checkInvariants(*shard) {}

// firstBatch is the size of a shard's first batch.
const firstBatch = 1
