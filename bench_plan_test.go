package timingwheel

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkPlan is one run of each plan of a wheel in Manual mode: claim, question, callback,
// arming.
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

// BenchmarkEvery has 1,000 functions that are called every 5 ms. With package time each has a
// ticker, and a goroutine that waits for it. cpu-ns/run is the processor's time for each call,
// B/plan what one function holds, stacks included.
func BenchmarkEvery(b *testing.B) {
	const period = 5 * time.Millisecond
	eachChannels(b, func(b *testing.B) {
		calls(b, func(f func()) (stop func()) {
			t, end := time.NewTicker(period), make(chan struct{})
			go func() {
				for {
					select {
					case <-t.C:
						f()
					case <-end:
						return
					}
				}
			}()
			return func() {
				t.Stop()
				close(end)
			}
		})
	}, func(b *testing.B, tw *TimingWheel) {
		s := Every(period)
		calls(b, func(f func()) (stop func()) {
			t := tw.ScheduleFunc(s, f)
			return func() { t.Stop() }
		})
	})
}

func calls(b *testing.B, start func(f func()) (stop func())) {
	const n = 1_000
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan struct{})
	f := func() {
		if left.Add(-1) == 0 {
			close(done)
		}
	}
	stops := make([]func(), n)
	held, before := heldInAll(), processorTime()
	for i := range stops {
		stops[i] = start(f)
	}
	<-done
	b.ReportMetric(float64(processorTime()-before)/float64(b.N), "cpu-ns/run")
	b.ReportMetric((heldInAll()-held)/n, "B/plan")
	for _, stop := range stops {
		stop()
	}
}

// heldInAll is the live heap and the stacks.
func heldInAll() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) + float64(m.StackInuse)
}
