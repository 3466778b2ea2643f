package timingwheel

import (
	"testing"
	"time"
)

// BenchmarkPlan is one run of each plan of a wheel in Manual mode: claim, question, callback, arming.
func BenchmarkPlan(b *testing.B) {
	for _, c := range []struct {
		name string
		s    Scheduler
	}{
		{"every", Every(time.Millisecond)},
		{"scheduler", nextFunc(Every(time.Millisecond).Next)},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkPlan(b, c.s) })
	}
}

func benchmarkPlan(b *testing.B, s Scheduler) {
	start := time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)
	tw, err := New(Options{Manual: true, Start: start})
	if err != nil {
		b.Fatal(err)
	}
	defer tw.Stop()
	runs := 0
	for range 1000 {
		tw.ScheduleFunc(s, func() { runs++ })
	}
	b.ReportAllocs()
	steps := 0
	for b.Loop() {
		steps++
		tw.Advance(start.Add(time.Duration(steps) * time.Millisecond))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(runs), "ns/run")
	if runs != 1000*steps {
		b.Fatalf("%d runs in %d steps of 1000 plans", runs, steps)
	}
}

// BenchmarkPlanAdd is ScheduleFunc and Stop.
func BenchmarkPlanAdd(b *testing.B) {
	tw, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer tw.Stop()
	s := Every(time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		tw.ScheduleFunc(s, func() {}).Stop()
	}
}
