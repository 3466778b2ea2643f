package wheelprometheus

import (
	"math"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

// nativeBuckets returns the counts of the positive buckets of a native histogram by upper bound.
func nativeBuckets(t *testing.T, h *dto.Histogram) map[float64]uint64 {
	t.Helper()
	require.EqualValues(t, 2, h.GetSchema())
	buckets := map[float64]uint64{}
	index, k, n := 0, 0, int64(0)
	for _, span := range h.GetPositiveSpan() {
		index += int(span.GetOffset())
		for range span.GetLength() {
			n += h.GetPositiveDelta()[k]
			k++
			if n > 0 {
				buckets[math.Exp2(float64(index)/4)] = uint64(n)
			}
			index++
		}
	}
	require.Equal(t, len(h.GetPositiveDelta()), k)
	return buckets
}

// A scraper that accepts protobuf gets the counts of the wheel in native and in classic buckets.
func TestProtobufScrapeHasNativeAndClassicBuckets(t *testing.T) {
	t.Parallel()
	var st fixedStats
	h := &st.Lateness
	for i := range h.Counts {
		h.Counts[i] = uint64(i % 5)
	}
	h.Counts[0] = 7
	h.Sum, h.Max = time.Hour, time.Minute
	c := NewCollector(Options{})
	require.NoError(t, c.Add("w", &st))
	s := serve(t, c)
	got := series(s.scrape(acceptProtobuf)["timingwheel_lateness_seconds"], "w").GetHistogram()
	require.Equal(t, h.Count(), got.GetSampleCount())
	require.Equal(t, 3600.0, got.GetSampleSum())
	require.EqualValues(t, 7, got.GetZeroCount())
	require.Equal(t, h.Bound(0).Seconds(), got.GetZeroThreshold())
	require.Nil(t, got.GetCreatedTimestamp())
	buckets := nativeBuckets(t, got)
	total := got.GetZeroCount()
	for _, n := range buckets {
		total += n
	}
	require.Equal(t, h.Count(), total)
	for i, n := range h.Counts[1 : len(h.Counts)-1] { // the upper bound of the last one is unknown
		if n > 0 {
			native := math.Ceil(4 * math.Log2(h.Bound(i+1).Seconds()))
			require.Equal(t, n, buckets[math.Exp2(native/4)], "bucket %d", i+1)
		}
	}
	requireClassic(t, h, got)

	text := series(s.scrape(acceptText)["timingwheel_lateness_seconds"], "w").GetHistogram()
	require.Nil(t, text.Schema, "the text format has no native histograms")
	requireClassic(t, h, text)
}

// requireClassic checks that each classic bucket has the number of timers that the wheel counted
// below its bound.
func requireClassic(t *testing.T, h *timingwheel.Histogram, got *dto.Histogram) {
	t.Helper()
	finite := 0
	for _, b := range got.GetBucket() {
		if math.IsInf(b.GetUpperBound(), 1) {
			require.Equal(t, h.Count(), b.GetCumulativeCount())
			continue
		}
		finite++
		cumulative := uint64(0)
		for i, n := range h.Counts {
			if h.Bound(i).Seconds() <= b.GetUpperBound() {
				cumulative += n
			}
		}
		require.Equal(t, cumulative, b.GetCumulativeCount(), "le=%v", b.GetUpperBound())
	}
	require.Equal(t, 36-14+1, finite, "the bounds are 2^14 to 2^36 ns")
}

// A timer is 59 s late.
func TestMeasuredLatenessFallsIntoItsBucket(t *testing.T) {
	t.Parallel()
	tw, advance := newManualWheel(t, timingwheel.Options{})
	c := NewCollector(Options{})
	require.NoError(t, c.Add("w", tw))
	s := serve(t, c)
	got := series(s.scrape(acceptProtobuf)["timingwheel_lateness_seconds"], "w").GetHistogram()
	require.Zero(t, got.GetSampleCount())
	require.Empty(t, nativeBuckets(t, got))
	tw.AfterFunc(time.Second, func() {})
	advance(time.Minute)
	got = series(s.scrape(acceptProtobuf)["timingwheel_lateness_seconds"], "w").GetHistogram()
	require.Equal(t, 59.0, got.GetSampleSum())
	buckets := nativeBuckets(t, got)
	require.Len(t, buckets, 1)
	for upper, n := range buckets {
		require.EqualValues(t, 1, n)
		require.GreaterOrEqual(t, upper, 59.0)
		require.Less(t, upper, 59*1.25*1.11)
	}
}

func TestClassicOnlyOmitsNativeHistogram(t *testing.T) {
	t.Parallel()
	c := NewCollector(Options{ClassicOnly: true})
	st := fixedStats{}
	st.Lateness.Counts[10] = 3
	require.NoError(t, c.Add("w", &st))
	got := series(serve(t, c).scrape(acceptProtobuf)["timingwheel_lateness_seconds"], "w").GetHistogram()
	require.Nil(t, got.Schema)
	require.Empty(t, got.GetPositiveSpan())
	requireClassic(t, &st.Lateness, got)
}
