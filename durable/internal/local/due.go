package local

import (
	"slices"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// DueBounds are ascending instants. A message counts for the first bound that is not before its due
// time.
type DueBounds []driver.Instant

// Bounds returns now plus each of the given durations, which must be ascending.
func Bounds(now driver.Instant, within []time.Duration) DueBounds {
	bounds := make(DueBounds, len(within))
	for i, d := range within {
		bounds[i] = now.Add(d)
	}
	return bounds
}

// Find returns the index of the first bound that is not before due, or len(b). It is O(log n) for n
// bounds.
func (b DueBounds) Find(due driver.Instant) int {
	i, _ := slices.BinarySearch(b, due)
	return i
}

// Sums replaces each count with the sum of the counts up to it.
func Sums(counts []int64) []int64 {
	for i := 1; i < len(counts); i++ {
		counts[i] += counts[i-1]
	}
	return counts
}
