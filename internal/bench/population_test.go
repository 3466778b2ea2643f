package bench_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// The benchmarks of this package use the wheel as a program does. Benchmarks of single operations
// are in bench_test.go of the root package, with the same populations.

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

func newBenchWheel(b *testing.B, opts timingwheel.Options) *timingwheel.TimingWheel {
	b.Helper()
	tw, err := timingwheel.New(opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(tw.Stop)
	return tw
}

func fillWheel(tw *timingwheel.TimingWheel, n int) []timingwheel.Timer {
	rng := xorshift(1)
	timers := make([]timingwheel.Timer, n)
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

// startMeasuring collects the garbage of the preparation and resets the timer of the benchmark.
func startMeasuring(b *testing.B) {
	b.Helper()
	runtime.GC()
	b.ReportAllocs()
	b.ResetTimer()
}
