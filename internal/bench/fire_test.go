package bench_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// burstArming is one implementation's AfterFunc, without its result.
type burstArming struct {
	name  string
	after func(b *testing.B) func(d time.Duration, f func())
}

var burstArmings = []burstArming{
	{"std", func(*testing.B) func(time.Duration, func()) {
		return func(d time.Duration, f func()) { time.AfterFunc(d, f) }
	}},
	{"wheel", func(b *testing.B) func(time.Duration, func()) {
		tw := newBenchWheel(b, timingwheel.Options{})
		return func(d time.Duration, f func()) { tw.AfterFunc(d, f) }
	}},
}

// eachArming runs body for the wheel and for time.AfterFunc.
func eachArming(b *testing.B, pending string, body func(b *testing.B, after func(time.Duration, func()))) {
	b.Helper()
	for _, a := range burstArmings {
		b.Run("impl="+a.name+"/pending="+pending, func(b *testing.B) { body(b, a.after(b)) })
	}
}

// BenchmarkBurst measures a million callbacks that are due at the same time: the time until the
// last one has run.
func BenchmarkBurst(b *testing.B) {
	const n = 1_000_000
	eachArming(b, "1M", func(b *testing.B, after func(time.Duration, func())) {
		drain(b, n, 2*time.Second, after, nil)
	})
}

// BenchmarkBurstBlocking is BenchmarkBurst with 10,000 callbacks that sleep for a millisecond each.
func BenchmarkBurstBlocking(b *testing.B) {
	eachArming(b, "10k", func(b *testing.B, after func(time.Duration, func())) {
		drain(b, 10_000, 200*time.Millisecond, after, func() { time.Sleep(time.Millisecond) })
	})
}

// BenchmarkLimit measures a million empty callbacks that are due at the same time, and 10,000
// that sleep for a millisecond each, with and without a limit.
func BenchmarkLimit(b *testing.B) {
	for _, limit := range []int{0, 1, 2, 100, 10_000} {
		arming := func(b *testing.B) func(time.Duration, func()) {
			var executor timingwheel.Executor
			if limit > 0 {
				executor = timingwheel.Limit(limit)
			}
			tw := newBenchWheel(b, timingwheel.Options{Executor: executor})
			return func(d time.Duration, f func()) { tw.AfterFunc(d, f) }
		}
		b.Run(fmt.Sprintf("work=none/limit=%d", limit), func(b *testing.B) {
			drain(b, 1_000_000, 2*time.Second, arming(b), nil)
		})
		if limit == 0 || limit >= 100 {
			b.Run(fmt.Sprintf("work=sleep/limit=%d", limit), func(b *testing.B) {
				drain(b, 10_000, 200*time.Millisecond, arming(b), func() { time.Sleep(time.Millisecond) })
			})
		}
	}
}

// drain arms n callbacks that are due at the same time, and reports the time until all have run.
func drain(b *testing.B, n int, ahead time.Duration, after func(time.Duration, func()), work func()) {
	b.Helper()
	var total time.Duration
	for range b.N {
		var left atomic.Int64
		left.Store(int64(n))
		done := make(chan time.Time)
		due := time.Now().Add(ahead)
		for range n {
			after(time.Until(due), func() {
				if work != nil {
					work()
				}
				if left.Add(-1) == 0 {
					done <- time.Now()
				}
			})
		}
		if time.Now().After(due) {
			b.Fatal("arming took longer than the time until the burst")
		}
		runtime.GC()
		total += (<-done).Sub(due)
	}
	b.ReportMetric(float64(total.Microseconds())/1000/float64(b.N), "drain-ms")
}

// BenchmarkBlocked measures how late a quick callback is that is due together with 2,000 callbacks
// that block.
func BenchmarkBlocked(b *testing.B) {
	eachArming(b, "2k", func(b *testing.B, after func(time.Duration, func())) {
		var total time.Duration
		for range b.N {
			release := make(chan struct{})
			var blocked sync.WaitGroup
			blocked.Add(2000)
			due := time.Now().Add(50 * time.Millisecond)
			ran := make(chan time.Time, 1)
			for range 2000 {
				after(time.Until(due), func() { <-release; blocked.Done() })
			}
			after(time.Until(due), func() { ran <- time.Now() })
			total += (<-ran).Sub(due)
			close(release)
			blocked.Wait()
		}
		b.ReportMetric(float64(total.Microseconds())/1000/float64(b.N), "late-ms")
	})
}

// BenchmarkSpread measures a million callbacks that are due over two seconds: the CPU time
// for each timer, from arming to firing, and its lateness. Only each eighth callback measures its
// lateness, because readings of the clock would dominate the CPU time.
func BenchmarkSpread(b *testing.B) {
	const n, sample = 1_000_000, 8
	late := make([]int64, n/sample)
	eachArming(b, "1M", func(b *testing.B, after func(time.Duration, func())) {
		var used time.Duration
		early := 0
		for range b.N {
			var left atomic.Int64
			left.Store(n)
			done := make(chan struct{})
			rng := xorshift(3)
			runtime.GC()
			cpu := processorTime()
			for i := range n {
				delay := time.Second + time.Duration(rng.below(2_000_000))*time.Microsecond
				if i%sample > 0 {
					after(delay, func() {
						if left.Add(-1) == 0 {
							close(done)
						}
					})
					continue
				}
				due := time.Now().Add(delay)
				after(delay, func() {
					late[i/sample] = int64(time.Since(due))
					if left.Add(-1) == 0 {
						close(done)
					}
				})
			}
			<-done
			used += processorTime() - cpu
		}
		slices.Sort(late)
		for early < len(late) && late[early] < 0 {
			early++
		}
		b.ReportMetric(float64(used)/float64(b.N)/n, "cpu-ns/timer")
		b.ReportMetric(float64(late[len(late)/2])/1e6, "p50-ms")
		b.ReportMetric(float64(late[len(late)/100*99])/1e6, "p99-ms")
		b.ReportMetric(float64(early), "early")
	})
}

// BenchmarkArmDuringBurst measures single calls to AfterFunc while a million timers expire.
func BenchmarkArmDuringBurst(b *testing.B) {
	const n = 1_000_000
	eachArming(b, "1M", func(b *testing.B, after func(time.Duration, func())) {
		var took []int64
		for range b.N {
			var left atomic.Int64
			left.Store(n)
			due := time.Now().Add(2 * time.Second)
			for range n {
				after(time.Until(due), func() { left.Add(-1) })
			}
			runtime.GC()
			time.Sleep(time.Until(due))
			for left.Load() > 0 {
				start := time.Now()
				after(time.Hour, func() {})
				took = append(took, int64(time.Since(start)))
			}
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)*999/1000])/1e3, "p99.9-us")
		b.ReportMetric(float64(took[len(took)-1])/1e3, "max-us")
	})
}

// BenchmarkCascade measures how late 2,000 timers are, one each millisecond, while a million other
// timers of the shard move to a finer level, and without these. With 64 slots of 1 ms, an interval
// of level 2 is 4096 ms.
func BenchmarkCascade(b *testing.B) {
	const interval, probes = 4096 * time.Millisecond, 2000
	for _, size := range []struct {
		name string
		n    int
	}{{"0", 0}, {"1M", 1_000_000}} {
		b.Run("impl=wheel/pending="+size.name, func(b *testing.B) {
			var late []time.Duration
			for range b.N {
				tw := newBenchWheel(b, timingwheel.Options{WheelSize: 64, Shards: 1})
				base := time.Now()
				rng := xorshift(5)
				for range size.n { // in one bucket, which expires at 2*interval; due after the measurement
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

// lateness returns how late n callbacks are, one each millisecond from first on.
func lateness(tw *timingwheel.TimingWheel, first time.Time, n int) []time.Duration {
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

// BenchmarkObserved measures what each option for observing callbacks costs for each callback. A
// thousand callbacks that do almost nothing are due at the same tick.
func BenchmarkObserved(b *testing.B) {
	const n = 1000
	for _, c := range []struct {
		name string
		opts timingwheel.Options
	}{
		{"nothing", timingwheel.Options{}},
		{"OnPanic", timingwheel.Options{OnPanic: func(any, []byte) {}}},
		{"Around", timingwheel.Options{Around: func(_ timingwheel.Call, run func()) { run() }}},
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

// BenchmarkPlan measures one run of each plan of a wheel in Manual mode: claim, question to the
// Scheduler, callback and arming.
func BenchmarkPlan(b *testing.B) {
	for _, c := range []struct {
		name string
		s    timingwheel.Scheduler
	}{
		{"every", timingwheel.Every(time.Millisecond)},
		{"scheduler", plain{timingwheel.Every(time.Millisecond)}},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkPlan(b, c.s) })
	}
}

// plain hides that a Scheduler may have a planner of its own.
type plain struct{ every timingwheel.Scheduler }

func (p plain) Next(t time.Time) time.Time { return p.every.Next(t) }

func benchmarkPlan(b *testing.B, s timingwheel.Scheduler) {
	start := time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start})
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

// BenchmarkEvery calls 1,000 functions every 5 ms. With package time each function has a ticker and
// a goroutine that waits for it. cpu-ns/run is the CPU time for each call. B/plan is the
// memory for each function, including stacks.
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
	}, func(b *testing.B, tw *timingwheel.TimingWheel) {
		s := timingwheel.Every(period)
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

// heldInAll returns the size of the live heap and the stacks.
func heldInAll() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) + float64(m.StackInuse)
}
