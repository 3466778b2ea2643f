// Package prommetric converts a timingwheel.Histogram to a Prometheus metric, for the collectors of
// wheels and of queues. It is a module of its own, because the root module does not depend on
// Prometheus.
package prommetric

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/timingwheel-go/timingwheel"
)

const (
	schema       = 2 // a native histogram has 2^schema buckets for each power of two, as a Histogram has
	classicFirst = 14
	classicLast  = 36 // the classic bounds are 2^14 to 2^36 ns, from 16 µs to 69 s
)

// Histogram returns h as a metric: a native histogram with classic buckets, or only a classic one.
// label is the value of the only variable label of desc. Histogram panics if desc has none, or
// several.
func Histogram(desc *prometheus.Desc, h *timingwheel.Histogram, classicOnly bool, label string) prometheus.Metric {
	count, sum := h.Count(), h.Sum.Seconds()
	classic := prometheus.MustNewConstHistogram(desc, count, sum, cumulative(h), label)
	if classicOnly {
		return classic
	}
	buckets := map[int]int64{}
	for i, n := range h.Counts {
		if i > 0 && n > 0 {
			buckets[nativeIndex(h, i)] = int64(n)
		}
	}
	native := prometheus.MustNewConstNativeHistogram(desc, count, sum, buckets, nil,
		h.Counts[0], schema, h.Bound(0).Seconds(), time.Time{}, label) // the first one is the zero bucket
	return dualHistogram{native, classic}
}

// nativeIndex returns the index of the native bucket for bucket i, which is not the first. The
// upper bound of native bucket n is 2^(n/4) s, inclusive.
func nativeIndex(h *timingwheel.Histogram, i int) int {
	if i == len(h.Counts)-1 {
		return nativeIndex(h, i-1) + 1 // the last bucket has no upper bound: its timers are days late
	}
	return int(math.Ceil(math.Log2(h.Bound(i).Seconds()) * (1 << schema)))
}

// cumulative returns the number of durations below each classic bound. A Prometheus bucket includes
// its upper bound, but a Histogram counts a duration that equals a bound in the next bucket.
func cumulative(h *timingwheel.Histogram) map[float64]uint64 {
	all := make(map[float64]uint64, classicLast-classicFirst+1)
	n, i := uint64(0), 0
	for e := classicFirst; e <= classicLast; e++ {
		bound := time.Duration(1) << e
		for ; h.Bound(i) <= bound; i++ {
			n += h.Counts[i]
		}
		all[bound.Seconds()] = n
	}
	return all
}

// dualHistogram is a native histogram with classic buckets. The protobuf format shows both, and the
// text formats show the classic buckets.
type dualHistogram struct{ native, classic prometheus.Metric }

func (b dualHistogram) Desc() *prometheus.Desc { return b.native.Desc() }

func (b dualHistogram) Write(out *dto.Metric) error {
	if err := b.native.Write(out); err != nil {
		return err
	}
	var classic dto.Metric
	if err := b.classic.Write(&classic); err != nil {
		return err
	}
	out.Histogram.Bucket = classic.Histogram.Bucket
	out.Histogram.CreatedTimestamp = nil // the time at which the wheel was made is unknown
	return nil
}
