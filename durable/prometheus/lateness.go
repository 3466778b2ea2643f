package durableprom

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/timingwheel-go/timingwheel"
)

// A native histogram of schema 2 has four buckets for each power of two of seconds, and a
// [timingwheel.Histogram] four for each power of two of nanoseconds. Each bucket goes to the native
// bucket that its upper bound is in, so a lateness is never shown too small.
const schema = 2

// Classic bounds are powers of two of nanoseconds, from 16 µs to 69 s.
const classicFirst, classicLast = 14, 36

// nativeIndex returns the index of the native bucket that a lateness is in.
func nativeIndex(d time.Duration) int {
	return int(math.Ceil(math.Log2(d.Seconds()) * (1 << schema)))
}

// latenessMetric returns the histogram: native with classic buckets, or classic.
func latenessMetric(desc *prometheus.Desc, h *timingwheel.Histogram, classicOnly bool, queue string) prometheus.Metric {
	count, sum := h.Count(), h.Sum.Seconds()
	classic := prometheus.MustNewConstHistogram(desc, count, sum, below(h), queue)
	if classicOnly {
		return classic
	}
	native, last := map[int]int64{}, len(h.Counts)-1
	for i := 1; i < last; i++ {
		if h.Counts[i] > 0 {
			native[nativeIndex(h.Bound(i))] += int64(h.Counts[i])
		}
	}
	if n := h.Counts[last]; n > 0 { // it has no upper bound
		native[nativeIndex(h.Bound(last-1))+1] += int64(n)
	}
	all := prometheus.MustNewConstNativeHistogram(desc, count, sum, native, nil, h.Counts[0], schema, h.Bound(0).Seconds(), time.Time{}, queue)
	return both{all, classic}
}

// below returns how many deliveries were late by less than each classic bound.
func below(h *timingwheel.Histogram) map[float64]uint64 {
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

// both is a native histogram with classic buckets: a scrape of protobuf shows both, and one of text
// the latter.
type both struct{ native, classic prometheus.Metric }

func (b both) Desc() *prometheus.Desc { return b.native.Desc() }

func (b both) Write(out *dto.Metric) error {
	if err := b.native.Write(out); err != nil {
		return err
	}
	var classic dto.Metric
	if err := b.classic.Write(&classic); err != nil {
		return err
	}
	out.Histogram.Bucket = classic.Histogram.Bucket
	out.Histogram.CreatedTimestamp = nil // unknown
	return nil
}
