package workload

import (
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/impl"
	"github.com/timingwheel-go/timingwheel/internal/bench"
)

// Subject is an implementation with the workloads instantiated for its type of handle.
type Subject struct {
	impl.Traits
	run map[string]func(Params, func(Result)) error
}

// Subjects are the implementations that are compared.
var Subjects = []Subject{
	newSubject(impl.Std),
	newSubject(impl.Wheel),
	newSubject(impl.Wheel.AtCoarseTick()),
	newSubject(impl.Timeouts),
	newSubject(impl.Manual),
	newSubject(impl.GoZero),
	newSubject(impl.GoZero.AtCoarseTick()),
	newSubject(impl.Gost),
	newSubject(impl.Siddontang),
	newSubject(impl.Siddontang.AtCoarseTick()),
	newSubject(impl.RussellLuo),
	newSubject(impl.RussellLuo.AtCoarseTick()),
	newSubject(impl.Antlabs),
	newSubject(impl.Rfyiamcool),
	newSubject(impl.Rfyiamcool.AtCoarseTick()),
	newSubject(impl.Ouqiang),
}

func newSubject[H any](i impl.Implementation[H]) Subject {
	parallel := func(run func(impl.Implementation[H], Params, func(Result)) error) func(Params, func(Result)) error {
		return func(p Params, emit func(Result)) error { return run(i, p, emit) }
	}
	single := func(run func(impl.Implementation[H], Params) (Result, error)) func(Params, func(Result)) error {
		return func(p Params, emit func(Result)) error {
			r, err := run(i, p)
			if err == nil {
				emit(r)
			}
			return err
		}
	}
	return Subject{i.Traits, map[string]func(Params, func(Result)) error{
		"ArmStop":        parallel(armStop[H]),
		"Postpone":       parallel(postpone[H]),
		"Churn":          parallel(churn[H]),
		"Fill":           single(fill[H]),
		"GC":             single(gc[H]),
		"Burst":          single(burst[H]),
		"BurstBlocking":  single(burstBlocking[H]),
		"Blocked":        single(blocked[H]),
		"Spread":         single(spread[H]),
		"ArmDuringBurst": single(armDuringBurst[H]),
		"Idle":           single(idle[H]),
		"BusyBlocked":    single(busy(bench.BusyBlocked[H], false)),
		"BusyStream":     single(busy(bench.BusyStream[H], false)),
		"BusySpread":     single(busy(bench.BusySpread[H], false)),
		"BusyReschedule": single(busyCalls[H](bench.Calls{Operation: bench.Reschedule, Callers: 1, Rate: 250_000}, true)),
		"BusyRearm":      single(busyCalls[H](bench.Calls{Operation: bench.Rearm, Callers: 1, Rate: 250_000}, false)),
		"BusyCallers":    single(busyCalls[H](bench.Calls{Operation: bench.Rearm, Callers: 16, Rate: 1_000_000}, false)),
		"Exact":          single(exact[H]),
	}}
}

// FindSubject returns the implementation with this name.
func FindSubject(name string) (Subject, bool) {
	for _, s := range Subjects {
		if s.Name == name {
			return s, true
		}
	}
	return Subject{}, false
}

// Run runs a workload on the implementation, in this process, and calls emit for each result. A
// parallel workload has a result for each of p.Procs, another workload has one.
func (s Subject) Run(w Workload, p Params, emit func(Result)) error {
	if why := w.Missing(s.Traits); why != "" {
		return fmt.Errorf("%s %s", s.Name, why)
	}
	return s.run[w.Name](p, emit)
}

// blockedRounds is how often BusyBlocked waits for its quick callback.
const blockedRounds = 3

// busy adapts a workload of package bench. p.Busy goroutines keep the processors busy meanwhile.
func busy[H any](run func(bench.Open[H], bench.Config) ([]bench.Figure, error), resets bool) func(impl.Implementation[H], Params) (Result, error) {
	return func(i impl.Implementation[H], p Params) (Result, error) {
		open := func(horizon time.Duration, fire func(id uint64)) (bench.Timers[H], error) {
			return i.Open(impl.Config{Tick: i.Tick, Horizon: horizon, Resets: resets, Fire: fire})
		}
		r := Result{N: p.Pending}
		figures, err := run(open, bench.Config{N: p.Pending, Rounds: blockedRounds, Busy: p.Busy, Grace: p.Grace,
			KeepGarbage: p.KeepGarbage, Phase: p.phase})
		r.addFigures(figures)
		return r, err
	}
}

func busyCalls[H any](calls bench.Calls, resets bool) func(impl.Implementation[H], Params) (Result, error) {
	return busy(func(open bench.Open[H], c bench.Config) ([]bench.Figure, error) {
		return bench.BusyCalls(open, c, calls)
	}, resets)
}
