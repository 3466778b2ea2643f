package workload

import (
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/impl"
	"github.com/timingwheel-go/timingwheel/internal/bench"
)

// How often the quick callback of BusyBlocked is awaited.
const blockedRounds = 3

// busy makes a workload of one of package bench, whose processors p.Busy goroutines keep busy.
func busy[H any](run func(bench.Open[H], bench.Config) ([]bench.Figure, error)) func(impl.Implementation[H], Params) (Result, error) {
	return func(i impl.Implementation[H], p Params) (Result, error) {
		open := func(horizon time.Duration, fire func(id uint64)) (bench.Timers[H], error) {
			return i.Open(impl.Config{Horizon: horizon, Fire: fire})
		}
		r := Result{N: p.Pending}
		figures, err := run(open, bench.Config{N: p.Pending, Rounds: blockedRounds, Busy: p.Busy, Grace: p.Grace, Phase: p.phase})
		r.addFigures(figures)
		return r, err
	}
}

func busyCalls[H any](calls bench.Calls) func(impl.Implementation[H], Params) (Result, error) {
	return busy(func(open bench.Open[H], c bench.Config) ([]bench.Figure, error) {
		return bench.BusyCalls(open, c, calls)
	})
}
