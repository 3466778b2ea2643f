package timingwheel

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// heapInUse is the live heap after a collection.
func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkFill arms n timers on an empty wheel, with closures that exist already and without
// keeping the handles. One iteration is a whole population; ns/op and allocs/op are for one timer.
// B/timer is the growth of the live heap.
func BenchmarkFill(b *testing.B) {
	for _, size := range sizes {
		fs := make([]func(), size.n)
		for i := range fs {
			fs[i] = closure(i)
		}
		b.Run("impl=std/pending="+size.name, func(b *testing.B) {
			timers := make([]*time.Timer, size.n) // only to stop them afterwards
			fill(b, size.n, func(i int, d time.Duration) { timers[i] = time.AfterFunc(d, fs[i]) }, func() {
				for _, t := range timers {
					t.Stop()
				}
			})
		})
		b.Run("impl=wheel/pending="+size.name, func(b *testing.B) {
			tw := newBenchWheel(b, Options{})
			fill(b, size.n, func(i int, d time.Duration) { tw.AfterFunc(d, fs[i]) }, func() {
				tw.Stop()
				tw = newBenchWheel(b, Options{})
			})
		})
		b.Run("impl=timeouts/pending="+size.name, func(b *testing.B) { fillTimeouts(b, size.n) })
	}
	b.Run("impl=timeouts/pending=100M", func(b *testing.B) {
		const need uint64 = 6 << 30
		if free := availableMemory(); free < need {
			b.Skipf("%d bytes of memory are available, it needs %d", free, need)
		}
		fillTimeouts(b, 100_000_000)
	})
}

func fillTimeouts(b *testing.B, n int) {
	b.Helper()
	w := newBenchTimeouts(b)
	fill(b, n, func(i int, d time.Duration) { w.Add(d, uint64(i)) }, func() {
		w.Stop()
		w = newBenchTimeouts(b)
	})
}

// availableMemory is what Linux says is available, 0 where nothing says so.
func availableMemory() (bytes uint64) {
	info, _ := os.ReadFile("/proc/meminfo")
	_, after, _ := strings.Cut(string(info), "MemAvailable:")
	_, _ = fmt.Sscanf(after, "%d kB", &bytes)
	return bytes << 10
}

func newBenchTimeouts(b *testing.B) *Timeouts[uint64] {
	b.Helper()
	w, err := NewTimeouts(Options{}, func(v []uint64) { sink.Add(int64(len(v))) })
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(w.Stop)
	return w
}

// fill arms n timers in each iteration, and renews the wheel in between.
func fill(b *testing.B, n int, arm func(i int, d time.Duration), renew func()) {
	b.Helper()
	before := heapInUse()
	rng := xorshift(1)
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	allocs, armed, held := uint64(0), 0, 0.0
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		if armed > 0 {
			renew()
			runtime.GC()
		}
		runtime.ReadMemStats(&m0)
		b.StartTimer()
		start := time.Now()
		for i := range n {
			arm(i, rng.far())
		}
		held += float64(time.Since(start))
		armed += n
		b.StopTimer()
		runtime.ReadMemStats(&m1)
		allocs += m1.Mallocs - m0.Mallocs
	}
	b.ReportMetric(held/float64(armed), "ns/op")
	b.ReportMetric(float64(heapInUse()-before)/float64(n), "B/timer")
	b.ReportMetric(float64(allocs/uint64(armed)), "allocs/op")
	renew()
}

// BenchmarkGC is one full collection with n pending timers, each with a closure of its own, whose
// handles the collector does not see. "std" comes last: its stopped timers stay in the runtime's
// heap until others are added.
func BenchmarkGC(b *testing.B) {
	for _, size := range sizes {
		b.Run("impl=wheel/pending="+size.name, func(b *testing.B) {
			tw := newBenchWheel(b, Options{})
			fillWheel(tw, size.n)
			collect(b)
		})
		b.Run("impl=timeouts/pending="+size.name, func(b *testing.B) {
			w := newBenchTimeouts(b)
			rng := xorshift(1)
			for i := range size.n {
				w.Add(rng.far(), uint64(i))
			}
			collect(b)
		})
		b.Run("impl=std/pending="+size.name, func(b *testing.B) {
			timers := unscanned(b, size.n) // so that they can be stopped
			rng := xorshift(1)
			for i := range timers {
				timers[i] = time.AfterFunc(rng.far(), closure(i))
			}
			collect(b)
			for _, t := range timers {
				t.Stop()
			}
		})
	}
}

// collect reports the time of a collection in ms.
func collect(b *testing.B) {
	b.Helper()
	runtime.GC()
	b.ResetTimer()
	for b.Loop() {
		runtime.GC()
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "gc-ms")
}

// BenchmarkManual is arm and stop on a wheel whose clock is driven by the caller; its counterpart
// is BenchmarkArmStop.
func BenchmarkManual(b *testing.B) {
	f := func() {}
	for _, size := range sizes[:3] {
		b.Run("ArmStop/impl=manual/pending="+size.name, func(b *testing.B) {
			tw := newBenchWheel(b, Options{Manual: true})
			fillWheel(tw, size.n)
			settle(b)
			for b.Loop() {
				tw.AfterFunc(30*time.Second, f).Stop()
			}
		})
	}
}

// BenchmarkIdle counts how often a program that holds n far timers is scheduled in five seconds.
func BenchmarkIdle(b *testing.B) {
	for _, size := range sizes[:3] {
		b.Run("impl=std/pending="+size.name, func(b *testing.B) {
			fillStd(b, size.n)
			idle(b)
		})
		b.Run("impl=wheel/pending="+size.name, func(b *testing.B) {
			tw := newBenchWheel(b, Options{})
			fillWheel(tw, size.n)
			before := tw.Stats().Wakeups
			idle(b)
			b.ReportMetric(float64(tw.Stats().Wakeups-before)/float64(b.N), "driver-wakeups")
		})
	}
}

// idle reports the voluntary context switches of the process in five seconds, for each iteration.
func idle(b *testing.B) {
	b.Helper()
	debug.FreeOSMemory()    // or the runtime gives memory back meanwhile, bit by bit
	time.Sleep(time.Second) // let its helpers come to rest
	before := contextSwitches()
	for range b.N {
		time.Sleep(5 * time.Second)
	}
	b.ReportMetric(float64(contextSwitches()-before)/float64(b.N), "wakeups")
}
