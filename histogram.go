package timingwheel

import (
	"math"
	"math/bits"
	"time"

	"github.com/timingwheel-go/timingwheel/internal/clock"
)

const (
	histogramSub     = 2 // log2 of the buckets for each power of two
	histogramFirst   = 8 // everything below 2^8 ns is in the first bucket
	histogramBuckets = (48 - histogramFirst) << histogramSub
)

// Histogram counts durations in buckets. Their upper bounds rise from 256ns to 2.4 days, each by at
// most a quarter, and the last bucket has no upper bound. The zero value is an empty histogram.
type Histogram struct {
	// Counts has the number of durations in each bucket: Counts[i] counts the durations less than
	// Bound(i) that are in no earlier bucket.
	Counts [histogramBuckets]uint64
	// Sum is the sum of the durations, or math.MaxInt64 if the sum is larger.
	Sum time.Duration
	// Max is the largest duration, or 0 for an empty histogram.
	Max time.Duration
}

// Record counts d, or 0 if d is negative. Calls must not be concurrent.
func (h *Histogram) Record(d time.Duration) { h.recordN(d, 1) }

// recordN counts d n times. n is small.
func (h *Histogram) recordN(d time.Duration, n uint64) {
	d = max(d, 0)
	h.Counts[histogramBucket(d)] += n
	h.Sum = time.Duration(clock.Later(int64(h.Sum), int64(min(d, math.MaxInt64/time.Duration(n))*time.Duration(n))))
	h.Max = max(h.Max, d)
}

// histogramBucket returns the index of the bucket of d. d must not be negative.
func histogramBucket(d time.Duration) int {
	if d < 1<<histogramFirst {
		return 0
	}
	e := bits.Len64(uint64(d)) - 1
	sub := int(uint64(d)>>(e-histogramSub)) & (1<<histogramSub - 1)
	return min((e-histogramFirst)<<histogramSub+sub+1, histogramBuckets-1)
}

// Bound returns the exclusive upper bound of bucket i of Counts, or math.MaxInt64 for the last one.
// It panics if i is out of range.
func (h Histogram) Bound(i int) time.Duration {
	_ = h.Counts[i]
	if i == histogramBuckets-1 {
		return math.MaxInt64
	}
	e := i>>histogramSub + histogramFirst
	sub := time.Duration(i & (1<<histogramSub - 1))
	return 1<<e + sub<<(e-histogramSub)
}

// Count returns the number of recorded durations.
func (h Histogram) Count() uint64 {
	n := uint64(0)
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Mean returns the mean duration, or 0 for an empty histogram. The mean is too low once Sum has
// saturated.
func (h Histogram) Mean() time.Duration {
	if n := h.Count(); n > 0 {
		return h.Sum / time.Duration(n)
	}
	return 0
}

// Quantile returns an upper bound of the q-quantile that is at most a quarter, or 256ns, too high.
// It returns 0 for an empty histogram. q is clamped to the range from 0 to 1, and NaN counts as 0.
func (h Histogram) Quantile(q float64) time.Duration {
	if math.IsNaN(q) {
		q = 0
	}
	n := h.Count()
	rank := uint64(math.Ceil(min(max(q, 0), 1) * float64(n)))
	seen := uint64(0)
	for i, c := range h.Counts {
		seen += c
		if c > 0 && seen >= rank {
			return min(h.Bound(i), h.Max)
		}
	}
	return 0
}

func (h *Histogram) add(o *Histogram) {
	for i, c := range o.Counts {
		h.Counts[i] += c
	}
	h.Sum = time.Duration(clock.Later(int64(h.Sum), int64(o.Sum)))
	h.Max = max(h.Max, o.Max)
}
