package bench_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/bench"
)

// Benchmarks on a busy machine, named BenchmarkBusyX/impl=…/busy=…. While the workload runs, the
// given number of goroutines compute without a pause on two processors. A benchmark on an idle
// machine makes a timer library look too good, because the machines of its users are busy. One
// iteration takes some seconds, and a fraction of a second with -short.

// stdTimers and wheelTimers are the implementations that the benchmarks compare.
type stdTimers struct{}

func (stdTimers) After(d time.Duration, _ uint64, f func()) *time.Timer { return time.AfterFunc(d, f) }
func (stdTimers) Stop(t *time.Timer) bool                               { return t.Stop() }
func (stdTimers) Reset(t *time.Timer, d time.Duration) bool             { return t.Reset(d) }
func (stdTimers) Close()                                                {}

type wheelTimers struct{ tw *timingwheel.TimingWheel }

func (w wheelTimers) After(d time.Duration, _ uint64, f func()) timingwheel.Timer {
	return w.tw.AfterFunc(d, f)
}
func (wheelTimers) Stop(t timingwheel.Timer) bool                   { return t.Stop() }
func (wheelTimers) Reset(t timingwheel.Timer, d time.Duration) bool { return t.Reschedule(d) }
func (w wheelTimers) Close()                                        { w.tw.Stop() }

func openStd(time.Duration, func(uint64)) (bench.Timers[*time.Timer], error) { return stdTimers{}, nil }

func openWheel(time.Duration, func(uint64)) (bench.Timers[timingwheel.Timer], error) {
	tw, err := timingwheel.New(timingwheel.Options{})
	return wheelTimers{tw}, err
}

// busyWorkload is a workload of internal/bench.
type busyWorkload[H any] func(bench.Open[H], bench.Config) ([]bench.Figure, error)

// BenchmarkBusyBlocked measures how late a quick callback is that is due immediately after 2,000
// callbacks that block.
func BenchmarkBusyBlocked(b *testing.B) {
	busyPair(b, bench.Config{N: 2_000, Rounds: max(1, shorter(10))}, bench.BusyBlocked[*time.Timer], bench.BusyBlocked[timingwheel.Timer])
}

// BenchmarkBusyBlockedWaking is BenchmarkBusyBlocked, but each callback wakes another goroutine
// before it blocks.
func BenchmarkBusyBlockedWaking(b *testing.B) {
	busyPair(b, bench.Config{N: 2_000, Rounds: max(1, shorter(10))}, bench.BusyBlockedWaking[*time.Timer], bench.BusyBlockedWaking[timingwheel.Timer])
}

// BenchmarkBusyStream runs 10,000 callbacks per second for two seconds, which sleep for 5 ms each.
func BenchmarkBusyStream(b *testing.B) {
	busyPair(b, bench.Config{N: shorter(20_000)}, bench.BusyStream[*time.Timer], bench.BusyStream[timingwheel.Timer])
}

// BenchmarkBusySpread runs 100,000 quick callbacks per second for two seconds.
func BenchmarkBusySpread(b *testing.B) {
	busyPair(b, bench.Config{N: shorter(200_000)}, bench.BusySpread[*time.Timer], bench.BusySpread[timingwheel.Timer])
}

// BenchmarkBusyCalls measures single calls while timers expire: 250,000 per second for two seconds
// with one caller, and a million per second for one second with 16 callers. bench.BusyCalls
// explains how it distinguishes a call that waits from a call whose goroutine is preempted.
// impl=none makes no calls and shows the figures of the method itself.
func BenchmarkBusyCalls(b *testing.B) {
	for _, v := range []struct {
		name  string
		n     int
		calls bench.Calls
	}{
		{"/call=reschedule/callers=1", 500_000, bench.Calls{Operation: bench.Reschedule, Callers: 1, Rate: 250_000}},
		{"/call=rearm/callers=1", 500_000, bench.Calls{Operation: bench.Rearm, Callers: 1, Rate: 250_000}},
		{"/call=rearm/callers=16", 1_000_000, bench.Calls{Operation: bench.Rearm, Callers: 16, Rate: 1_000_000}},
	} {
		none := v.calls
		none.Operation = bench.Nothing
		for _, busy := range busyLevels {
			c := bench.Config{N: shorter(v.n), Busy: busy}
			runBusy(b, "std", v.name, c, openStd, busyCalls[*time.Timer](v.calls))
			runBusy(b, "wheel", v.name, c, openWheel, busyCalls[timingwheel.Timer](v.calls))
			runBusy(b, "none", v.name, c, openStd, busyCalls[*time.Timer](none))
		}
	}
}

func busyCalls[H any](calls bench.Calls) busyWorkload[H] {
	return func(open bench.Open[H], c bench.Config) ([]bench.Figure, error) {
		return bench.BusyCalls(open, c, calls)
	}
}

// busyLevels are the numbers of computing goroutines. 0 is the reference.
var busyLevels = []int{0, 4, 16}

// shorter returns n, or a twentieth of n with -short.
func shorter(n int) int {
	if testing.Short() {
		return n / 20
	}
	return n
}

// busyPair runs a workload on package time and on the wheel.
func busyPair(b *testing.B, c bench.Config, std busyWorkload[*time.Timer], wheel busyWorkload[timingwheel.Timer]) {
	b.Helper()
	for _, busy := range busyLevels {
		c.Busy = busy
		runBusy(b, "std", "", c, openStd, std)
		runBusy(b, "wheel", "", c, openWheel, wheel)
	}
}

// runBusy reports the means of a workload's figures. It fails on any mistake of an implementation.
func runBusy[H any](b *testing.B, impl, suffix string, c bench.Config, open bench.Open[H], run busyWorkload[H]) {
	b.Helper()
	c.Grace = time.Minute
	b.Run(fmt.Sprintf("impl=%s/busy=%d%s", impl, c.Busy, suffix), func(b *testing.B) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(min(2, runtime.NumCPU())))
		total := map[string]float64{}
		for range b.N {
			runtime.GC()
			figures, err := run(open, c)
			if err != nil {
				b.Fatal(err)
			}
			for _, f := range figures {
				if slices.Contains(bench.MistakeUnits, f.Unit) && f.Value > 0 {
					b.Fatalf("%v timers: %s", f.Value, f.Unit)
				}
				total[f.Unit] += f.Value
			}
		}
		b.ReportMetric(0, "ns/op") // hidden, because it would include arming and waiting
		for unit, sum := range total {
			if !slices.Contains(bench.MistakeUnits, unit) {
				b.ReportMetric(sum/float64(b.N), unit)
			}
		}
	})
}
