package timingwheel

import (
	"testing"
	"time"
)

// BenchmarkObserved fires a thousand callbacks that do next to nothing at one tick, with what may
// be asked of a wheel about them: what that costs for each callback.
func BenchmarkObserved(b *testing.B) {
	const n = 1000
	for _, c := range []struct {
		name string
		opts Options
	}{
		{"nothing", Options{}},
		{"OnPanic", Options{OnPanic: func(any, []byte) {}}},
		{"SlowAfter", Options{SlowAfter: time.Second}},
		{"OnSlow", Options{OnSlow: func(SlowCallback) {}}},
		{"ProfileLabels", Options{ProfileLabels: true, Name: "w"}},
	} {
		b.Run("asked="+c.name+"/pending=1k", func(b *testing.B) {
			c.opts.Manual = true
			tw := newBenchWheel(b, c.opts)
			for b.Loop() {
				b.StopTimer()
				for range n {
					tw.AfterFunc(time.Millisecond, func() { sink.Add(1) })
				}
				b.StartTimer()
				tw.Advance(tw.Now().Add(2 * time.Millisecond))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/timer")
		})
	}
}
