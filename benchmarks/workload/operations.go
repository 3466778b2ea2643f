package workload

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/impl"
)

// armStop is a request's timeout: armed, and stopped when the answer has come.
func armStop[H any](i impl.Implementation[H], p Params, emit func(Result)) error {
	pop, err := settle(i, p, false)
	if err != nil {
		return err
	}
	defer pop.Close()
	f := func() { pop.ran.Add(1) }
	return pop.repeat(p, emit, func(int) func() {
		return func() { pop.Stop(pop.After(30*time.Second, 0, f)) }
	})
}

// postpone is a beat on a connection. All goroutines draw from the whole population.
func postpone[H any](i impl.Implementation[H], p Params, emit func(Result)) error {
	pop, err := settle(i, p, true)
	if err != nil {
		return err
	}
	defer pop.Close()
	return pop.repeat(p, emit, func(worker int) func() {
		rng := xorshift(2 + worker)
		return func() { pop.Reset(pop.handles[rng.below(len(pop.handles))].handle, horizon-time.Second) }
	})
}

// churn is a cache whose entries are replaced. All goroutines draw from the whole population, and
// one takes a timer's place while it replaces the timer.
func churn[H any](i impl.Implementation[H], p Params, emit func(Result)) error {
	pop, err := settle(i, p, true)
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
			victim := &pop.handles[id]
			pop.Stop(victim.handle)
			victim.handle = pop.After(rng.far(), uint64(id), f)
			victim.taken.Store(false)
		}
	})
}

// repeat runs an operation for p.Time or longer on each number of processors. operation is called for each
// goroutine with its number.
func (pop *population[H]) repeat(p Params, emit func(Result), operation func(worker int) func()) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for i, procs := range p.Procs {
		runtime.GOMAXPROCS(procs)
		ops := make([]func(), procs)
		for worker := range ops {
			ops[worker] = operation(worker)
		}
		if i > 0 {
			runtime.GC() // what the last one has left; settle did it for the first
		}
		run(ops, p.Time/10) // to warm up
		emit(pop.measure(ops, p.Time))
	}
	return nil
}

// measure runs each of ops on a goroutine of its own. Package testing would find out by trial how often,
// with a collection before each trial, which is most of the time where ten million timers are pending.
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

// So many operations run between two looks at the clock.
const batch = 64

// run repeats each of ops on a goroutine of its own until span is over, and returns how often all of them
// together have run and how long it took.
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
