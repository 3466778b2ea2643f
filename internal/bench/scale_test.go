package bench_test

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// heapInUse returns the size of the live heap after a collection.
func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkFill arms n timers on an empty wheel. The closures exist before, and the handles are
// dropped. One iteration is a whole population. ns/op and allocs/op are for one timer. B/timer is
// the growth of the live heap.
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
			tw := newBenchWheel(b, timingwheel.Options{})
			fill(b, size.n, func(i int, d time.Duration) { tw.AfterFunc(d, fs[i]) }, func() {
				tw.Stop()
				tw = newBenchWheel(b, timingwheel.Options{})
			})
		})
		b.Run("impl=functimer/pending="+size.name, func(b *testing.B) {
			tw := newBenchWheel(b, timingwheel.Options{})
			var timers []timingwheel.FuncTimer
			fill(b, size.n, func(i int, d time.Duration) {
				if i == 0 {
					timers = make([]timingwheel.FuncTimer, size.n) // counts, like fields of connections
				}
				timers[i].Init(tw, d, fs[i])
			}, func() {
				tw.Stop()
				tw = newBenchWheel(b, timingwheel.Options{})
			})
		})
		b.Run("impl=timeouts/pending="+size.name, func(b *testing.B) { fillTimeouts(b, size.n) })
	}
	b.Run("impl=timeouts/pending=100M", func(b *testing.B) {
		const need uint64 = 6 << 30
		if free := availableMemory(); free < need {
			b.Skipf("%d bytes of memory are available, and %d are needed", free, need)
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

// availableMemory returns the available memory on Linux, and 0 on other systems.
func availableMemory() (bytes uint64) {
	info, _ := os.ReadFile("/proc/meminfo")
	_, after, _ := strings.Cut(string(info), "MemAvailable:")
	_, _ = fmt.Sscanf(after, "%d kB", &bytes)
	return bytes << 10
}

func newBenchTimeouts(b *testing.B) *timingwheel.Timeouts[uint64] {
	b.Helper()
	w, err := timingwheel.NewTimeouts(timingwheel.Options{}, func(v []uint64) { sink.Add(int64(len(v))) })
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(w.Stop)
	return w
}

// fill arms n timers in each iteration and renews the wheel in between.
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

// BenchmarkGC measures one full collection with n pending timers. Each timer has its own closure,
// and the collector does not see the handles. "std" comes last, because its stopped timers stay in
// the runtime's heap until others are added.
func BenchmarkGC(b *testing.B) {
	for _, size := range sizes {
		b.Run("impl=wheel/pending="+size.name, func(b *testing.B) {
			tw := newBenchWheel(b, timingwheel.Options{})
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

// BenchmarkManual is BenchmarkArmStop on a Manual wheel.
func BenchmarkManual(b *testing.B) {
	f := func() {}
	for _, size := range sizes[:3] {
		b.Run("ArmStop/impl=manual/pending="+size.name, func(b *testing.B) {
			tw := newBenchWheel(b, timingwheel.Options{Manual: true})
			fillWheel(tw, size.n)
			startMeasuring(b)
			for b.Loop() {
				tw.AfterFunc(30*time.Second, f).Stop()
			}
		})
	}
}

// BenchmarkIdle counts how often a program with n distant timers is scheduled in five seconds.
func BenchmarkIdle(b *testing.B) {
	for _, size := range sizes[:3] {
		b.Run("impl=std/pending="+size.name, func(b *testing.B) {
			fillStd(b, size.n)
			idle(b)
		})
		b.Run("impl=wheel/pending="+size.name, func(b *testing.B) {
			tw := newBenchWheel(b, timingwheel.Options{})
			fillWheel(tw, size.n)
			before := tw.Stats().Wakeups
			idle(b)
			b.ReportMetric(float64(tw.Stats().Wakeups-before)/float64(b.N), "driver-wakeups")
		})
	}
}

// idle reports the voluntary context switches of the process in five seconds.
func idle(b *testing.B) {
	b.Helper()
	debug.FreeOSMemory()    // or the runtime would return memory during the measurement
	time.Sleep(time.Second) // until the goroutines of the runtime are idle
	before := contextSwitches()
	for range b.N {
		time.Sleep(5 * time.Second)
	}
	b.ReportMetric(float64(contextSwitches()-before)/float64(b.N), "wakeups")
}

// BenchmarkGeometry runs a million timers from arming to firing on wheels of several sizes, in
// Manual mode with Next and Advance. It reports the time for each timer, moves between levels,
// wake-ups and the memory when all timers are pending. The defaults of WheelSize and Levels are
// based on it.
func BenchmarkGeometry(b *testing.B) {
	const n = 1_000_000
	populations := []struct {
		name     string
		from, to time.Duration
	}{{"1s-60s", time.Second, time.Minute}, {"1m-1h", time.Minute, time.Hour}}
	for _, p := range populations {
		for _, size := range []int{16, 64, 256, 1024, 4096} {
			b.Run(fmt.Sprintf("delays=%s/size=%d", p.name, size), func(b *testing.B) {
				var st timingwheel.Stats
				wakes, held := 0, 0.0
				for range b.N {
					start := time.Unix(0, 0)
					tw := newBenchWheel(b, timingwheel.Options{Manual: true, WheelSize: size, Levels: 16, Start: start})
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
				b.ReportMetric(held/n-8, "B/timer") // without the order of arming, which only Manual mode stores
			})
		}
	}
}
