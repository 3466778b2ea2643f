package workload

import (
	"fmt"

	"github.com/timingwheel-go/timingwheel/benchmarks/impl"
	"github.com/timingwheel-go/timingwheel/internal/bench"
)

// Subject is an implementation with the workloads made for its type of handle.
type Subject struct {
	impl.Traits
	run map[string]func(Params, func(Result)) error
}

// Subjects lists the implementations that are compared.
var Subjects = []Subject{
	of(impl.Std),
	of(impl.Wheel),
	of(impl.Timeouts),
	of(impl.Manual),
	of(impl.GoZero),
	of(impl.Gost),
	of(impl.Siddontang),
	of(impl.RussellLuo),
	of(impl.Antlabs),
	of(impl.Rfyiamcool),
	of(impl.Ouqiang),
}

func of[H any](i impl.Implementation[H]) Subject {
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
		"GC":             single(collect[H]),
		"Burst":          single(burst[H]),
		"BurstBlocking":  single(burstBlocking[H]),
		"Blocked":        single(blocked[H]),
		"Spread":         single(spread[H]),
		"ArmDuringBurst": single(armDuringBurst[H]),
		"Idle":           single(idle[H]),
		"BusyBlocked":    single(busy(bench.BusyBlocked[H])),
		"BusyStream":     single(busy(bench.BusyStream[H])),
		"BusySpread":     single(busy(bench.BusySpread[H])),
		"BusyReschedule": single(busyCalls[H](bench.Calls{Operation: bench.Reschedule, Callers: 1, Rate: 250_000})),
		"BusyRearm":      single(busyCalls[H](bench.Calls{Operation: bench.Rearm, Callers: 1, Rate: 250_000})),
		"BusyCallers":    single(busyCalls[H](bench.Calls{Operation: bench.Rearm, Callers: 16, Rate: 1_000_000})),
		"Exact":          single(exact[H]),
	}}
}

// FindSubject returns the implementation of that name.
func FindSubject(name string) (Subject, bool) {
	for _, s := range Subjects {
		if s.Name == name {
			return s, true
		}
	}
	return Subject{}, false
}

// Run runs a workload on the implementation, in this process, and calls emit for each of its results: one
// for each of p.Procs if the workload is parallel, otherwise one.
func (s Subject) Run(w Workload, p Params, emit func(Result)) error {
	if why := w.Missing(s.Traits, p.Pending); why != "" {
		return fmt.Errorf("%s %s", s.Name, why)
	}
	return s.run[w.Name](p, emit)
}
