package local

import (
	"slices"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// DueBounds are rising instants. A message counts for the first bound that its due time is not
// after.
type DueBounds []driver.Instant

// Bounds returns the instants after now by the given durations, which must rise.
func Bounds(now driver.Instant, within []time.Duration) DueBounds {
	bounds := make(DueBounds, len(within))
	for i, d := range within {
		bounds[i] = now.Add(d)
	}
	return bounds
}

// Find returns the index of the first bound that is not before due, or the number of bounds. It is
// O(log n) for n bounds.
func (b DueBounds) Find(due driver.Instant) int {
	i, _ := slices.BinarySearch(b, due)
	return i
}

// Sums replaces each count by the sum of the counts up to it.
func Sums(counts []int64) []int64 {
	for i := 1; i < len(counts); i++ {
		counts[i] += counts[i-1]
	}
	return counts
}
