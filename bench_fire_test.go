package timingwheel

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// arming is AfterFunc of one implementation, its handle dropped.
type burstArming struct {
	name  string
	after func(b *testing.B) func(d time.Duration, f func())
}

var burstArmings = []burstArming{
	{"std", func(*testing.B) func(time.Duration, func()) {
		return func(d time.Duration, f func()) { time.AfterFunc(d, f) }
	}},
	{"wheel", func(b *testing.B) func(time.Duration, func()) {
		tw := newBenchWheel(b, Options{})
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

// BenchmarkBurst has a million callbacks due at one instant: the time from then until the last has
// run.
func BenchmarkBurst(b *testing.B) {
	const n = 1_000_000
	eachArming(b, "1M", func(b *testing.B, after func(time.Duration, func())) {
		drain(b, n, 2*time.Second, after, nil)
	})
}

// BenchmarkBurstBlocking has 10,000 callbacks due at one instant that each sleep for a millisecond.
func BenchmarkBurstBlocking(b *testing.B) {
	eachArming(b, "10k", func(b *testing.B, after func(time.Duration, func())) {
		drain(b, 10_000, 200*time.Millisecond, after, func() { time.Sleep(time.Millisecond) })
	})
}

// drain arms n callbacks for one instant and reports the time from then until all have run.
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

// BenchmarkBlocked has a quick callback due together with 2,000 that block: how late it is.
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

// BenchmarkSpread has a million callbacks due over two seconds: processor time for each timer, from
// arming to firing, and how late they are. Every eighth tells its lateness; the others only count,
// so that the clock readings of the measurement do not hide what is measured.
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

// BenchmarkArmDuringBurst measures single adds while a million timers expire.
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
