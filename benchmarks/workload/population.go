package workload

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/impl"
)

// population is many pending timers of which none is due during the run.
type population[H any] struct {
	impl.Timers[H]
	handles []H // nil unless they are kept
	ran     atomic.Int64
	armed   time.Time
}

// settle arms p.Pending timers, each with a closure of its own, and collects the garbage.
func settle[H any](i impl.Implementation[H], p Params, keep bool) (*population[H], error) {
	pop := &population[H]{armed: time.Now()}
	timers, err := i.Open(impl.Config{Horizon: horizon, Fire: func(uint64) { pop.ran.Add(1) }})
	if err != nil {
		return nil, err
	}
	pop.Timers = timers
	p.phase("arming %d timers", p.Pending)
	if keep {
		pop.handles = make([]H, p.Pending)
	}
	rng := xorshift(1)
	for id := range p.Pending {
		var f func()
		if !i.Values {
			f = func() { pop.ran.Add(1) }
		}
		h := timers.After(rng.far(), uint64(id), f)
		if keep {
			pop.handles[id] = h
		}
	}
	runtime.GC()
	p.phase("measuring")
	return pop, nil
}

// addEarly adds how many callbacks have run, if none should have by now.
func (pop *population[H]) addEarly(r *Result) {
	if time.Since(pop.armed) < nearest {
		r.add(float64(pop.ran.Load()), "early")
	}
}
