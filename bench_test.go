package timingwheel

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// Benchmarks of docs/benchmarks.md. Their names are BenchmarkX/impl=…/pending=…/procs=…, by which
// benchstat can group them. Each runs the wheel and time.AfterFunc ("std") with the same workload
// in one binary. `make bench-std` prints the ratios and their targets.
//
// The deadlines of the pending timers are one minute to one hour ahead, so none expires during a
// run. Timers that are stopped or moved are random. Each timer has its own closure.

var sizes = []struct {
	name string
	n    int
}{{"1k", 1_000}, {"100k", 100_000}, {"1M", 1_000_000}, {"10M", 10_000_000}}

// xorshift is a random number generator with a small cost, which is the same for all
// implementations.
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

// far returns a random delay from one minute to one hour.
func (x *xorshift) far() time.Duration {
	return time.Minute + time.Duration(x.below(59*60*1000))*time.Millisecond
}

// sink prevents the compiler from removing the work of benchmarks.
var sink atomic.Int64

// closure returns a distinct closure, as a program's timers have.
func closure(i int) func() { return func() { sink.Add(int64(i)) } }

func newBenchWheel(b *testing.B, opts Options) *TimingWheel {
	b.Helper()
	tw, err := New(withLimit(opts))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(tw.Stop)
	return tw
}

// eachProcs runs body in parallel on one and on two processors.
func eachProcs(b *testing.B, body func(pb *testing.PB)) {
	b.Helper()
	for procs := 1; procs <= 2; procs++ {
		onProcs(b, procs, body)
	}
}

// onProcs runs body in parallel on procs processors, unless the machine has fewer.
func onProcs(b *testing.B, procs int, body func(pb *testing.PB)) {
	b.Helper()
	if procs > runtime.NumCPU() {
		return
	}
	b.Run(fmt.Sprintf("procs=%d", procs), func(b *testing.B) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		startMeasuring(b)
		b.RunParallel(body)
	})
}

// seeds makes generators with different seeds, for goroutines that run at the same time.
type seeds struct{ last atomic.Uint64 }

func (s *seeds) generator() xorshift { return xorshift(1 + s.last.Add(1)) }

// place is a place for a timer that several goroutines stop and replace. Its timer belongs to the
// goroutine that has taken the place.
type place[H any] struct {
	taken atomic.Bool
	timer H
}

func placesOf[H any](timers []H) []place[H] {
	places := make([]place[H], len(timers))
	for i, t := range timers {
		places[i].timer = t
	}
	return places
}

// take takes a random place that is free.
func take[H any](places []place[H], rng *xorshift) *place[H] {
	for {
		s := &places[rng.below(len(places))]
		if s.taken.CompareAndSwap(false, true) {
			return s
		}
	}
}

func (s *place[H]) giveBack() { s.taken.Store(false) }

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

// BenchmarkArmStop measures a request timeout: AfterFunc(30s) and Stop.
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

// BenchmarkArmStopProfile is BenchmarkArmStop with and without a profile of the pending timers.
func BenchmarkArmStopProfile(b *testing.B) {
	f := func() {}
	for _, rate := range []int{0, 512} {
		b.Run(fmt.Sprintf("rate=%d", rate), func(b *testing.B) {
			tw := newBenchWheel(b, Options{ProfileRate: rate})
			fillWheel(tw, 1000)
			eachProcs(b, func(pb *testing.PB) {
				for pb.Next() {
					tw.AfterFunc(30*time.Second, f).Stop()
				}
			})
		})
	}
}

// startMeasuring collects the garbage of the preparation and resets the timer of the benchmark.
func startMeasuring(b *testing.B) {
	b.Helper()
	runtime.GC()
	b.ReportAllocs()
	b.ResetTimer()
}

// BenchmarkPostpone measures a heartbeat: Reschedule moves a random timer to a later time. On two
// processors both goroutines choose from all timers, as in a server whose connections move between
// processors.
func BenchmarkPostpone(b *testing.B) {
	for _, size := range sizes {
		b.Run("impl=std/pending="+size.name, func(b *testing.B) {
			timers := fillStd(b, size.n)
			b.Run("procs=1", func(b *testing.B) {
				rng := xorshift(2)
				startMeasuring(b)
				for b.Loop() {
					timers[rng.below(len(timers))].Reset(time.Hour)
				}
			})
			var seeds seeds
			onProcs(b, 2, func(pb *testing.PB) {
				rng := seeds.generator()
				for pb.Next() {
					timers[rng.below(len(timers))].Reset(time.Hour)
				}
			})
		})
		b.Run("impl=wheel/pending="+size.name, func(b *testing.B) {
			timers := fillWheel(newBenchWheel(b, Options{}), size.n)
			b.Run("procs=1", func(b *testing.B) {
				rng := xorshift(2)
				startMeasuring(b)
				for b.Loop() {
					timers[rng.below(len(timers))].Reschedule(time.Hour)
				}
			})
			var seeds seeds
			onProcs(b, 2, func(pb *testing.PB) {
				rng := seeds.generator()
				for pb.Next() {
					timers[rng.below(len(timers))].Reschedule(time.Hour)
				}
			})
		})
	}
}

// BenchmarkChurn stops a random timer and arms another one. On two processors both goroutines
// choose from all timers, so half of the timers that one goroutine stops were armed by the other.
func BenchmarkChurn(b *testing.B) {
	for _, size := range sizes {
		b.Run("impl=std/pending="+size.name, func(b *testing.B) { churnStd(b, size.n) })
		b.Run("impl=wheel/pending="+size.name, func(b *testing.B) { churnWheel(b, size.n) })
	}
}

func churnStd(b *testing.B, n int) {
	f := func() {}
	timers := fillStd(b, n)
	b.Run("procs=1", func(b *testing.B) {
		rng := xorshift(2)
		startMeasuring(b)
		for b.Loop() {
			i := rng.below(len(timers))
			timers[i].Stop()
			timers[i] = time.AfterFunc(rng.far(), f)
		}
	})
	places := placesOf(timers)
	var seeds seeds
	onProcs(b, 2, func(pb *testing.PB) {
		rng := seeds.generator()
		for pb.Next() {
			s := take(places, &rng)
			s.timer.Stop()
			s.timer = time.AfterFunc(rng.far(), f)
			s.giveBack()
		}
	})
	for i := range places {
		places[i].timer.Stop()
	}
}

func churnWheel(b *testing.B, n int) {
	f := func() {}
	tw := newBenchWheel(b, Options{})
	timers := fillWheel(tw, n)
	b.Run("procs=1", func(b *testing.B) {
		rng := xorshift(2)
		startMeasuring(b)
		for b.Loop() {
			i := rng.below(len(timers))
			timers[i].Stop()
			timers[i] = tw.AfterFunc(rng.far(), f)
		}
	})
	places := placesOf(timers)
	var seeds seeds
	onProcs(b, 2, func(pb *testing.PB) {
		rng := seeds.generator()
		for pb.Next() {
			s := take(places, &rng)
			s.timer.Stop()
			s.timer = tw.AfterFunc(rng.far(), f)
			s.giveBack()
		}
	})
}

// BenchmarkTouch measures a heartbeat: Touch on a random FuncTimer, and Reset on a random timer of
// package time. FuncTimers are elements of a slice, like fields of connections. Timers of package
// time are pointers. impl=touchat reads the clock once for 256 calls, like a loop over many
// packets.
func BenchmarkTouch(b *testing.B) {
	for _, size := range sizes[:3] {
		b.Run("impl=std/pending="+size.name, func(b *testing.B) {
			timers := fillStd(b, size.n)
			touchRandom(b, timers, func(t **time.Timer, _ time.Time) { (*t).Reset(time.Hour) })
		})
		tw := newBenchWheel(b, Options{})
		timers := make([]FuncTimer, size.n)
		for i := range timers {
			timers[i].Init(tw, time.Hour, closure(i))
		}
		b.Run("impl=wheel/pending="+size.name, func(b *testing.B) {
			touchRandom(b, timers, func(t *FuncTimer, _ time.Time) { t.Touch() })
		})
		b.Run("impl=touchat/pending="+size.name, func(b *testing.B) {
			touchRandom(b, timers, func(t *FuncTimer, now time.Time) { t.TouchFrom(now) })
		})
	}
}

// touchRandom calls touch for random timers, on one processor and on two.
func touchRandom[T any](b *testing.B, timers []T, touch func(t *T, now time.Time)) {
	b.Helper()
	b.Run("procs=1", func(b *testing.B) {
		rng, now := xorshift(2), time.Now()
		startMeasuring(b)
		for n := 0; b.Loop(); n++ {
			if n&0xff == 0 {
				now = time.Now()
			}
			touch(&timers[rng.below(len(timers))], now)
		}
	})
	var seeds seeds
	onProcs(b, 2, func(pb *testing.PB) {
		rng, now := seeds.generator(), time.Now()
		for n := 0; pb.Next(); n++ {
			if n&0xff == 0 {
				now = time.Now()
			}
			touch(&timers[rng.below(len(timers))], now)
		}
	})
}

// BenchmarkRetained arms and stops a million timers whose callbacks refer to 1 KB each. It reports
// the bytes for each timer that remain after one collection, without the handles of the wheel.
// Package time keeps the callback of a stopped timer as long as the program has the handle.
func BenchmarkRetained(b *testing.B) {
	const n = 1_000_000
	run := func(name string, measure func(keep bool) (pending, stopped int64)) {
		for _, handles := range []string{"kept", "dropped"} {
			b.Run("impl="+name+"/handles="+handles, func(b *testing.B) {
				for range b.N {
					pending, stopped := measure(handles == "kept")
					b.ReportMetric(float64(pending)/n, "pending-B/timer")
					b.ReportMetric(float64(stopped)/n, "retained-B/timer")
				}
			})
		}
	}
	run("std", func(keep bool) (pending, stopped int64) { return stopAll(b, n, keep, time.AfterFunc) })
	run("wheel", func(keep bool) (pending, stopped int64) {
		tw := newBenchWheel(b, Options{})
		defer runtime.KeepAlive(tw)
		return stopAll(b, n, keep, tw.AfterFunc)
	})
}
