package bench_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// BenchmarkPunctual measures how late single callbacks are on an idle machine, with deadlines 50µs
// to 10ms ahead: from the deadline itself (p50-us, p99-us) and from the deadline rounded up to a
// tick (tick-p50-us, tick-p99-us). cpu-us is the CPU time of one callback, from arming to firing.
func BenchmarkPunctual(b *testing.B) {
	const shortest, longest = 50 * time.Microsecond, 10 * time.Millisecond
	for _, c := range []struct {
		name string
		tick time.Duration
	}{
		{"impl=std", 0},
		{"impl=wheel/tick=100us", 100 * time.Microsecond},
		{"impl=wheel/tick=1ms", time.Millisecond},
	} {
		b.Run(c.name, func(b *testing.B) {
			var tw *timingwheel.TimingWheel
			if c.tick > 0 {
				tw = newBenchWheel(b, timingwheel.Options{Tick: c.tick})
			}
			ran := make(chan time.Time)
			f := func() { ran <- time.Now() }
			arm := func(due time.Time) (rounded time.Time) {
				if tw == nil {
					time.AfterFunc(time.Until(due), f)
					return due
				}
				if at, ok := tw.AtFunc(due, f).Deadline(); ok {
					return at
				}
				return due // it has fired
			}
			rng := xorshift(7)
			var late, lateTick []time.Duration
			runtime.GC()
			cpu := processorTime()
			for range b.N {
				due := time.Now().Add(shortest + time.Duration(rng.below(int(longest-shortest))))
				rounded := arm(due)
				at := <-ran
				late = append(late, at.Sub(due))
				lateTick = append(lateTick, at.Sub(rounded))
			}
			used := processorTime() - cpu
			report := func(late []time.Duration, prefix string) {
				slices.Sort(late)
				b.ReportMetric(float64(late[len(late)/2])/1e3, prefix+"p50-us")
				b.ReportMetric(float64(late[len(late)*99/100])/1e3, prefix+"p99-us")
			}
			b.ReportMetric(0, "ns/op") // hidden, because it would include the time of the delay
			report(late, "")
			report(lateTick, "tick-")
			b.ReportMetric(float64(used)/1e3/float64(b.N), "cpu-us")
		})
	}
}
