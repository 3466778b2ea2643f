package timingwheel

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// Benchmarks of docs/benchmarks.md, named BenchmarkX/impl=…/pending=…/procs=… so that benchstat can
// pivot on them. Each runs the wheel and time.AfterFunc ("std") on the same workload in one binary;
// `make bench-std` prints the ratios beside their targets.
//
// The population outlives the run: its deadlines lie between one minute and one hour ahead. Victims are
// random over the whole population. Every timer has a closure of its own.

var sizes = []struct {
	name string
	n    int
}{{"1k", 1_000}, {"100k", 100_000}, {"1M", 1_000_000}, {"10M", 10_000_000}}

// xorshift is a generator whose cost is the same, and small, on both sides.
type xorshift uint64

func (x *xorshift) next() uint64 {
	v := *x
	v ^= v << 13
	v ^= v >> 7
	v ^= v << 17
	*x = v
	return uint64(v)
}

func (x *xorshift) below(n int) int { return int((x.next() >> 32) * uint64(n) >> 32) }

// far is a deadline of the population.
func (x *xorshift) far() time.Duration {
	return time.Minute + time.Duration(x.below(59*60*1000))*time.Millisecond
}

// sink keeps the compiler from dropping what benchmarks do.
var sink atomic.Int64

// closure returns a distinct closure, as a program's timers have.
func closure(i int) func() { return func() { sink.Add(int64(i)) } }

func newBenchWheel(b *testing.B, opts Options) *TimingWheel {
	b.Helper()
	tw, err := New(opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(tw.Stop)
	return tw
}

// eachProcs runs body in parallel on one and on two processors.
func eachProcs(b *testing.B, body func(pb *testing.PB)) {
	b.Helper()
	for procs := 1; procs <= min(2, runtime.NumCPU()); procs++ {
		b.Run(fmt.Sprintf("procs=%d", procs), func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			settle(b)
			b.RunParallel(body)
		})
	}
}

func fillWheel(tw *TimingWheel, n int) []Timer {
	rng := xorshift(1)
	timers := make([]Timer, n)
	for i := range timers {
		timers[i] = tw.AfterFunc(rng.far(), closure(i))
	}
	return timers
}

func fillStd(b *testing.B, n int) []*time.Timer {
	b.Helper()
	rng := xorshift(1)
	timers := make([]*time.Timer, n)
	for i := range timers {
		timers[i] = time.AfterFunc(rng.far(), closure(i))
	}
	b.Cleanup(func() {
		for _, t := range timers {
			t.Stop()
		}
	})
	return timers
}

// BenchmarkArmStop is a request timeout: AfterFunc(30s) and Stop.
func BenchmarkArmStop(b *testing.B) {
	f := func() {}
	for _, size := range sizes {
		b.Run("impl=std/pending="+size.name, func(b *testing.B) {
			fillStd(b, size.n)
			eachProcs(b, func(pb *testing.PB) {
				for pb.Next() {
					time.AfterFunc(30*time.Second, f).Stop()
				}
			})
		})
		b.Run("impl=wheel/pending="+size.name, func(b *testing.B) {
			tw := newBenchWheel(b, Options{})
			fillWheel(tw, size.n)
			eachProcs(b, func(pb *testing.PB) {
				for pb.Next() {
					tw.AfterFunc(30*time.Second, f).Stop()
				}
			})
		})
	}
}

// settle collects the garbage of the preparation and starts the clock.
func settle(b *testing.B) {
	b.Helper()
	runtime.GC()
	b.ReportAllocs()
	b.ResetTimer()
}

// BenchmarkPostpone is a heartbeat: it moves a random timer to a later time.
func BenchmarkPostpone(b *testing.B) {
	for _, size := range sizes {
		b.Run("impl=std/pending="+size.name, func(b *testing.B) {
			timers := fillStd(b, size.n)
			rng := xorshift(2)
			settle(b)
			for b.Loop() {
				timers[rng.below(len(timers))].Reset(time.Hour)
			}
		})
		b.Run("impl=wheel/pending="+size.name, func(b *testing.B) {
			timers := fillWheel(newBenchWheel(b, Options{}), size.n)
			rng := xorshift(2)
			settle(b)
			for b.Loop() {
				timers[rng.below(len(timers))].Reschedule(time.Hour)
			}
		})
	}
}

// BenchmarkChurn stops a random timer and adds another one.
func BenchmarkChurn(b *testing.B) {
	f := func() {}
	for _, size := range sizes {
		b.Run("impl=std/pending="+size.name, func(b *testing.B) {
			timers := fillStd(b, size.n)
			rng := xorshift(2)
			settle(b)
			for b.Loop() {
				i := rng.below(len(timers))
				timers[i].Stop()
				timers[i] = time.AfterFunc(rng.far(), f)
			}
		})
		b.Run("impl=wheel/pending="+size.name, func(b *testing.B) {
			tw := newBenchWheel(b, Options{})
			timers := fillWheel(tw, size.n)
			rng := xorshift(2)
			settle(b)
			for b.Loop() {
				i := rng.below(len(timers))
				timers[i].Stop()
				timers[i] = tw.AfterFunc(rng.far(), f)
			}
		})
	}
}
