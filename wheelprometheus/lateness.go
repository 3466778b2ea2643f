package wheelprometheus

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/timingwheel-go/timingwheel"
)

const (
	schema       = 2 // a native histogram has 2^schema buckets for each power of two, as the wheel has
	classicFirst = 14
	classicLast  = 36 // the classic bounds are 2^14 to 2^36 ns, from 16 µs to 69 s
)

// Lateness converts a [timingwheel.Histogram] into a metric, for collectors of other packages. The
// metric is a native histogram with classic buckets or only a classic histogram. Make a Lateness
// with [NewLateness]. A Lateness is immutable and is safe for concurrent use.
type Lateness struct {
	desc    *prometheus.Desc
	native  []int           // the native index of each bucket; the first one is the zero bucket
	zero    float64         // upper bound of the zero bucket, in seconds
	bounds  []time.Duration // upper bounds of the classic buckets
	classic bool            // no native histogram
}

// NewLateness returns a Lateness for a metric with the description desc, which must have one
// variable label. With classicOnly the metric has no native histogram.
func NewLateness(desc *prometheus.Desc, classicOnly bool) *Lateness {
	var h timingwheel.Histogram
	l := &Lateness{
		desc:    desc,
		native:  make([]int, len(h.Counts)),
		zero:    h.Bound(0).Seconds(),
		classic: classicOnly,
	}
	last := len(h.Counts) - 1
	for i := 1; i < last; i++ {
		l.native[i] = nativeIndex(h.Bound(i))
	}
	l.native[last] = l.native[last-1] + 1 // the last bucket has no upper bound: its timers are days late
	for e := classicFirst; e <= classicLast; e++ {
		l.bounds = append(l.bounds, 1<<e)
	}
	return l
}

// nativeIndex returns the index of the native bucket that contains d. The upper bound of bucket n
// is 2^(n/4) s, inclusive.
func nativeIndex(d time.Duration) int {
	return int(math.Ceil(math.Log2(d.Seconds()) * (1 << schema)))
}

// Desc returns the description that was passed to NewLateness.
func (l *Lateness) Desc() *prometheus.Desc { return l.desc }

// Metric returns a metric with the current counts of h and the given value of the variable label.
// Metric panics if the description does not have exactly one variable label.
func (l *Lateness) Metric(h *timingwheel.Histogram, label string) prometheus.Metric {
	count, sum := h.Count(), h.Sum.Seconds()
	classic := prometheus.MustNewConstHistogram(l.desc, count, sum, l.cumulative(h), label)
	if l.classic {
		return classic
	}
	buckets := map[int]int64{}
	for i, n := range h.Counts {
		if i > 0 && n > 0 {
			buckets[l.native[i]] += int64(n)
		}
	}
	native := prometheus.MustNewConstNativeHistogram(l.desc, count, sum, buckets, nil, h.Counts[0], schema, l.zero, time.Time{}, label)
	return dualHistogram{native, classic}
}

// cumulative returns the number of durations below each classic bound. A Prometheus bucket includes
// its upper bound, but a Histogram counts a duration that equals a bound in the next bucket.
func (l *Lateness) cumulative(h *timingwheel.Histogram) map[float64]uint64 {
	all := make(map[float64]uint64, len(l.bounds))
	n, i := uint64(0), 0
	for _, bound := range l.bounds {
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
