package schedule

import (
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// BenchmarkRun measures one run of each of 1,000 plans on a wheel in Manual mode: the claim, the
// calls to the planner, the callback, and arming.
func BenchmarkRun(b *testing.B) {
	rate := timingwheel.Every(ms)
	for _, c := range []struct {
		name string
		s    timingwheel.Scheduler
	}{
		{"Every", rate},
		{"FixedDelay", FixedDelay(ms)},
		{"Aligned", Aligned(ms, time.UTC)},
		{"Limit", Limit(rate, 1<<30)},
		{"Jitter", Jitter(rate, 0)},
		{"Allow", WithOverlap(rate, Allow)},
		{"chain", WithMisfire(Limit(Jitter(Until(rate, midnight.AddDate(100, 0, 0)), 0), 1<<30), RunAll)},
	} {
		b.Run(c.name, func(b *testing.B) {
			tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: midnight})
			if err != nil {
				b.Fatal(err)
			}
			defer tw.Stop()
			runs := 0
			for range 1000 {
				tw.ScheduleFunc(c.s, func() { runs++ })
			}
			b.ReportAllocs()
			steps := 0
			for b.Loop() {
				steps++
				tw.Advance(midnight.Add(time.Duration(steps) * ms))
			}
			if runs != 1000*steps {
				b.Fatalf("%d runs in %d steps of 1000 plans", runs, steps)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(runs), "ns/run")
			b.ReportMetric(0, "ns/op")
		})
	}
}
