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
	handles []place[H] // nil unless they are kept
	ran     atomic.Int64
	armed   time.Time
}

// place holds a handle, which belongs to the goroutine that has taken the place.
type place[H any] struct {
	taken  atomic.Bool
	handle H
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
		pop.handles = make([]place[H], p.Pending)
	}
	rng := xorshift(1)
	for id := range p.Pending {
		var f func()
		if !i.Values {
			f = func() { pop.ran.Add(1) }
		}
		h := timers.After(rng.far(), uint64(id), f)
		if keep {
			pop.handles[id].handle = h
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

// functions returns n closures that call f with their number, or n times nil for an implementation
// that keeps values.
func functions(n int, values bool, f func(id uint64)) []func() {
	fs := make([]func(), n)
	for id := range fs {
		if !values {
			fs[id] = func() { f(uint64(id)) }
		}
	}
	return fs
}
