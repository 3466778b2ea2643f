package durableprom

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/timingwheel-go/timingwheel/durable"
)

// A native bucket of schema 3 is 9% wide. Each bucket of Stats, which is less than 1% wide, goes to
// the native bucket that its upper bound is in, so a lateness is never shown too small.
const (
	schema    = 3
	zeroIndex = -160 // the zero bucket ends where this bucket ends: 0.95 µs
)

var zeroThreshold = math.Exp2(float64(zeroIndex) / (1 << schema))

// classicBounds are those of the classic buckets.
var classicBounds = []time.Duration{
	500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond,
	5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour,
}

// nativeIndex returns the index of the native bucket that a lateness is in.
func nativeIndex(d time.Duration) int {
	return max(zeroIndex+1, int(math.Ceil(math.Log2(d.Seconds())*(1<<schema))))
}

// latenessMetric returns the histogram: native with classic buckets, or classic.
func latenessMetric(desc *prometheus.Desc, l *durable.Lateness, classicOnly bool, queue string) prometheus.Metric {
	count, sum := uint64(l.Count), l.Sum.Seconds()
	classic := prometheus.MustNewConstHistogram(desc, count, sum, below(l.Buckets), queue)
	if classicOnly {
		return classic
	}
	zero, native := uint64(0), map[int]int64{}
	for _, b := range l.Buckets {
		if b.UpTo <= 0 {
			zero += uint64(b.Count)
			continue
		}
		native[nativeIndex(b.UpTo)] += b.Count
	}
	return both{prometheus.MustNewConstNativeHistogram(desc, count, sum, native, nil, zero, schema, zeroThreshold, time.Time{}, queue), classic}
}

// below returns how many deliveries were late by at most each classic bound.
func below(buckets []durable.LatenessBucket) map[float64]uint64 {
	all := make(map[float64]uint64, len(classicBounds))
	n, i := uint64(0), 0
	for _, bound := range classicBounds {
		for ; i < len(buckets) && buckets[i].UpTo <= bound; i++ {
			n += uint64(buckets[i].Count)
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
