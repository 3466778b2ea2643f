//go:build !invariants

package timingwheel

// checkInvariants verifies the shard under the build tag invariants, and is nothing otherwise.
func checkInvariants(*shard) {}

// firstBatch is the size of a shard's first batch.
const firstBatch = 1
