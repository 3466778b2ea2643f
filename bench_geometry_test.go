package timingwheel

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkGeometry runs a million timers from arming to firing on wheels of several sizes, in
// Manual mode driven by Next, so that the clock plays no part: time for each timer, moves between
// wheels, wake-ups and the memory held when all are pending. The defaults of WheelSize and Levels
// come from it.
func BenchmarkGeometry(b *testing.B) {
	const n = 1_000_000
	populations := []struct {
		name     string
		from, to time.Duration
	}{{"1s-60s", time.Second, time.Minute}, {"1m-1h", time.Minute, time.Hour}}
	for _, p := range populations {
		for _, size := range []int{16, 64, 256, 1024, 4096} {
			b.Run(fmt.Sprintf("delays=%s/size=%d", p.name, size), func(b *testing.B) {
				var st Stats
				wakes, held := 0, 0.0
				for range b.N {
					start := time.Unix(0, 0)
					tw := newBenchWheel(b, Options{Manual: true, WheelSize: size, Levels: maxLevels, Start: start})
					rng := xorshift(4)
					for range n {
						tw.AfterFunc(p.from+time.Duration(rng.below(int((p.to-p.from)/1000)))*1000, func() { sink.Add(1) })
					}
					held = float64(tw.Stats().Bytes)
					for at, ok := tw.Next(); ok; at, ok = tw.Next() {
						tw.Advance(at)
						wakes++
					}
					st = tw.Stats()
				}
				b.ReportMetric(float64(b.Elapsed())/float64(b.N)/n, "ns/timer")
				b.ReportMetric(float64(st.Moved)/n, "moves/timer")
				b.ReportMetric(float64(wakes)/float64(b.N), "wakeups")
				b.ReportMetric(held/n-8, "B/timer") // without the order of arming, which only Manual mode keeps
			})
		}
	}
}
