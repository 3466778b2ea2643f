package workload

import (
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/impl"
	"github.com/timingwheel-go/timingwheel/internal/bench"
)

// Percentiles are those of lateness that Spread reports, as "p50-ms" and so on.
var Percentiles = []float64{0.1, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100}

// PercentileUnit is the unit of a percentile of Spread.
func PercentileUnit(p float64) string { return "p" + strconv.FormatFloat(p, 'f', -1, 64) + "-ms" }

// spread has timers due at random over two seconds. It measures processor time for each, from arming to
// firing, and how late every eighth is.
func spread[H any](i impl.Implementation[H], p Params) (Result, error) {
	const first, over = time.Second, 2 * time.Second
	n := p.Pending
	all := bench.NewRoll(n)
	due := make([]time.Time, (n+sample-1)/sample)
	late := make([]time.Duration, len(due))
	fire := func(id uint64) {
		if id%sample == 0 {
			late[id/sample] = time.Since(due[id/sample])
		}
		all.Call(id)
	}
	fs := functions(n, i.Values, fire)
	timers, err := i.Open(impl.Config{Horizon: first + over + time.Second, Fire: fire})
	if err != nil {
		return Result{}, err
	}
	p.phase("arming %d timers", n)
	runtime.GC()
	rng := xorshift(3)
	before, known := processorTime()
	for id, f := range fs {
		delay := first + time.Duration(rng.below(int(over/time.Microsecond)))*time.Microsecond
		if id%sample == 0 {
			due[id/sample] = time.Now().Add(delay)
		}
		timers.After(delay, uint64(id), f)
	}
	p.phase("waiting until %d callbacks have run", n)
	all.Wait(first + p.Grace)
	used, _ := processorTime()
	r := Result{N: n}
	if known {
		r.add(float64(used-before)/float64(n), "cpu-ns/timer")
	}
	if all.Left() == 0 {
		addLateness(&r, all, late)
	}
	r.addFigures(all.Mistakes())
	timers.Close()
	return r, nil
}

func addLateness(r *Result, all *bench.Roll, late []time.Duration) {
	slices.Sort(late)
	for _, p := range Percentiles {
		r.add(bench.Quantile(late, p/100).Seconds()*1e3, PercentileUnit(p))
	}
	early, _ := slices.BinarySearch(late, 0)
	all.Early.Store(int64(early))
}
