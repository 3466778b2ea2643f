package timingwheel

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// BenchmarkCascade has a million timers that move to a finer wheel at one instant, and 2,000 others
// on the same shard that are due meanwhile, one each millisecond: how late those are, with and
// without the million. With 64 slots of 1 ms an interval of the third wheel is 4096 ms.
func BenchmarkCascade(b *testing.B) {
	const interval, probes = 4096 * time.Millisecond, 2000
	for _, size := range []struct {
		name string
		n    int
	}{{"0", 0}, {"1M", 1_000_000}} {
		b.Run("impl=wheel/pending="+size.name, func(b *testing.B) {
			var late []time.Duration
			for range b.N {
				tw := newBenchWheel(b, Options{WheelSize: 64, Shards: 1})
				base := time.Now()
				rng := xorshift(5)
				for range size.n { // they are in one bucket, which expires at 2*interval, and are due when all is over
					tw.AtFunc(base.Add(2*interval+3*time.Second+time.Duration(rng.below(900))*time.Millisecond), func() {})
				}
				late = append(late, lateness(tw, base.Add(2*interval-probes/2*time.Millisecond), probes)...)
				tw.Stop()
			}
			slices.Sort(late)
			b.ReportMetric(late[len(late)/2].Seconds()*1e3, "p50-ms")
			b.ReportMetric(late[len(late)*99/100].Seconds()*1e3, "p99-ms")
			b.ReportMetric(late[len(late)-1].Seconds()*1e3, "max-ms")
		})
	}
}

// lateness is how late n callbacks are, one each millisecond from first on.
func lateness(tw *TimingWheel, first time.Time, n int) []time.Duration {
	late := make([]time.Duration, n)
	var done sync.WaitGroup
	done.Add(n)
	for i := range late {
		due := first.Add(time.Duration(i) * time.Millisecond)
		tw.AtFunc(due, func() {
			late[i] = time.Since(due)
			done.Done()
		})
	}
	done.Wait()
	return late
}
