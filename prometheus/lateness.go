package timingwheelprom

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/timingwheel-go/timingwheel"
)

const (
	schema       = 2 // native buckets for each power of two: 2^schema, as many as the wheel has
	classicFirst = 14
	classicLast  = 36 // classic bounds are powers of two of ns, from 16 µs to 69 s
)

// Lateness makes metrics of a [timingwheel.Histogram], for collectors: a native histogram with classic
// buckets or, if it was made so, a classic one. A Lateness does not change and may be shared.
type Lateness struct {
	desc    *prometheus.Desc
	native  []int           // index in schema 2 of each bucket but the first, which is the zero bucket
	zero    float64         // s: the zero bucket's upper bound
	bounds  []time.Duration // of the classic buckets
	classic bool            // only that
}

// NewLateness returns a Lateness for a description with one variable label.
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
	l.native[last] = l.native[last-1] + 1 // it has no upper bound: what is in it is days late
	for e := classicFirst; e <= classicLast; e++ {
		l.bounds = append(l.bounds, 1<<e)
	}
	return l
}

// nativeIndex is the index of the native bucket that a duration falls in: that of the first bound,
// a power of 2^(1/4) s, that is not below it.
func nativeIndex(d time.Duration) int {
	return int(math.Ceil(math.Log2(d.Seconds()) * (1 << schema)))
}

// Desc returns the description.
func (l *Lateness) Desc() *prometheus.Desc { return l.desc }

// Metric returns the metric of h with a value of the label. It panics if the description does not
// have one variable label.
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

// below is how many durations lie below each classic bound. Prometheus counts those that equal it
// as well; the histogram has them in the next bucket.
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

// both is a native histogram with classic buckets: one format of a scrape shows the former, the
// others the latter.
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
	out.Histogram.CreatedTimestamp = nil // unknown
	return nil
}
