package workload

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/impl"
)

// armStop is the timeout of a request that is answered.
func armStop[H any](i impl.Implementation[H], p Params, emit func(Result)) error {
	pop, err := newPopulation(i, p, false, false)
	if err != nil {
		return err
	}
	defer pop.Close()
	f := func() { pop.ran.Add(1) }
	return pop.repeat(p, emit, func(int) func() {
		return func() { pop.Stop(pop.After(30*time.Second, 0, f)) }
	})
}

// postpone is a heartbeat on a connection. All goroutines draw from the whole population.
func postpone[H any](i impl.Implementation[H], p Params, emit func(Result)) error {
	pop, err := newPopulation(i, p, false, true)
	if err != nil {
		return err
	}
	defer pop.Close()
	return pop.repeat(p, emit, func(worker int) func() {
		rng := xorshift(2 + worker)
		return func() { pop.Reset(pop.handles[rng.below(len(pop.handles))].handle, horizon-time.Second) }
	})
}

// churn is a cache whose entries are replaced. All goroutines draw from the whole population. A
// goroutine takes a handle while it replaces the timer.
func churn[H any](i impl.Implementation[H], p Params, emit func(Result)) error {
	pop, err := newPopulation(i, p, true, false)
	if err != nil {
		return err
	}
	defer pop.Close()
	f := func() { pop.ran.Add(1) }
	return pop.repeat(p, emit, func(worker int) func() {
		rng := xorshift(2 + worker)
		return func() {
			id := rng.below(len(pop.handles))
			for !pop.handles[id].taken.CompareAndSwap(false, true) {
				id = rng.below(len(pop.handles))
			}
			h := &pop.handles[id]
			pop.Stop(h.handle)
			h.handle = pop.After(rng.far(), uint64(id), f)
			h.taken.Store(false)
		}
	})
}

// repeat runs an operation for at least p.Time on each number of processors. It calls operation for
// each goroutine, with the index of the goroutine.
func (pop *population[H]) repeat(p Params, emit func(Result), operation func(worker int) func()) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for i, procs := range p.Procs {
		runtime.GOMAXPROCS(procs)
		ops := make([]func(), procs)
		for worker := range ops {
			ops[worker] = operation(worker)
		}
		if i > 0 {
			p.collectGarbage() // newPopulation does so for the first
		}
		run(ops, p.Time/10) // warm up
		emit(pop.measure(ops, p.Time))
	}
	return nil
}

// measure runs each of ops on its own goroutine. Package testing would determine the number of
// iterations by trial, with a garbage collection before each trial. With ten million pending timers
// that would take most of the time.
func (pop *population[H]) measure(ops []func(), span time.Duration) Result {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n, took := run(ops, span)
	runtime.ReadMemStats(&after)
	r := Result{Procs: len(ops), N: n}
	r.add(float64(took)/float64(n), "ns/op")
	r.add(float64((after.TotalAlloc-before.TotalAlloc)/uint64(n)), "B/op")
	r.add(float64((after.Mallocs-before.Mallocs)/uint64(n)), "allocs/op")
	pop.addEarly(&r)
	return r
}

// batch is the number of operations between two readings of the clock.
const batch = 64

// run repeats each of ops on its own goroutine until span has passed. It returns the number of
// operations of all goroutines together and the time that they took.
func run(ops []func(), span time.Duration) (n int, took time.Duration) {
	var running sync.WaitGroup
	var total atomic.Int64
	begin := time.Now()
	for _, op := range ops {
		running.Go(func() {
			mine := 0
			for mine == 0 || time.Since(begin) < span {
				for range batch {
					op()
				}
				mine += batch
			}
			total.Add(int64(mine))
		})
	}
	running.Wait()
	return int(total.Load()), time.Since(begin)
}
