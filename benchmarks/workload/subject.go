package workload

import (
	"fmt"

	"github.com/timingwheel-go/timingwheel/benchmarks/impl"
)

// Subject is an implementation with the workloads made for its type of handle.
type Subject struct {
	impl.Traits
	run map[string]func(Params) (Result, error)
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
}

func of[H any](i impl.Implementation[H]) Subject {
	bind := func(run func(impl.Implementation[H], Params) (Result, error)) func(Params) (Result, error) {
		return func(p Params) (Result, error) { return run(i, p) }
	}
	return Subject{i.Traits, map[string]func(Params) (Result, error){
		"ArmStop":        bind(armStop[H]),
		"Postpone":       bind(postpone[H]),
		"Churn":          bind(churn[H]),
		"Fill":           bind(fill[H]),
		"GC":             bind(collect[H]),
		"Burst":          bind(burst[H]),
		"BurstBlocking":  bind(burstBlocking[H]),
		"Blocked":        bind(blocked[H]),
		"Spread":         bind(spread[H]),
		"ArmDuringBurst": bind(armDuringBurst[H]),
		"Idle":           bind(idle[H]),
		"Exact":          bind(exact[H]),
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

// Run runs a workload on the implementation, in this process and on the processors that it has.
func (s Subject) Run(w Workload, p Params) (Result, error) {
	if why := w.Missing(s.Traits, p.Pending); why != "" {
		return Result{}, fmt.Errorf("%s %s", s.Name, why)
	}
	return s.run[w.Name](p)
}
