package workload

import (
	"errors"
	"flag"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/impl"
)

// armStop is a request's timeout: armed, and stopped when the answer has come.
func armStop[H any](i impl.Implementation[H], p Params, emit func(Result)) error {
	pop, err := settle(i, p, false)
	if err != nil {
		return err
	}
	f := func() { pop.ran.Add(1) }
	return pop.repeat(p, emit, func(int, int) func() {
		return func() { pop.Stop(pop.After(30*time.Second, 0, f)) }
	})
}

// postpone is a beat on a connection.
func postpone[H any](i impl.Implementation[H], p Params, emit func(Result)) error {
	pop, err := settle(i, p, true)
	if err != nil {
		return err
	}
	return pop.repeat(p, emit, func(worker, workers int) func() {
		rng, mine := xorshift(2+worker), part(pop.handles, worker, workers)
		return func() { pop.Reset(mine[rng.below(len(mine))], horizon-time.Second) }
	})
}

// churn is a cache whose entries are replaced.
func churn[H any](i impl.Implementation[H], p Params, emit func(Result)) error {
	pop, err := settle(i, p, true)
	if err != nil {
		return err
	}
	f := func() { pop.ran.Add(1) }
	return pop.repeat(p, emit, func(worker, workers int) func() {
		rng, mine := xorshift(2+worker), part(pop.handles, worker, workers)
		return func() {
			victim := rng.below(len(mine))
			pop.Stop(mine[victim])
			mine[victim] = pop.After(rng.far(), uint64(victim), f)
		}
	})
}

// part is the share of one worker, so that no two of them have one handle.
func part[H any](handles []H, worker, workers int) []H {
	return handles[worker*len(handles)/workers : (worker+1)*len(handles)/workers]
}

// repeat runs an operation for p.Time or longer on each number of processors. operation is called for each
// goroutine with its number and with how many there are.
func (pop *population[H]) repeat(p Params, emit func(Result), operation func(worker, workers int) func()) error {
	benchtime(p.Time)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range p.Procs {
		runtime.GOMAXPROCS(procs)
		measured := testing.Benchmark(func(b *testing.B) {
			var worker atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				op := operation(int(worker.Add(1)-1), procs)
				for pb.Next() {
					op()
				}
			})
		})
		if measured.N == 0 {
			return errors.New("the benchmark failed")
		}
		r := Result{Procs: procs, N: measured.N}
		r.add(float64(measured.T)/float64(measured.N), "ns/op")
		r.add(float64(measured.AllocedBytesPerOp()), "B/op")
		r.add(float64(measured.AllocsPerOp()), "allocs/op")
		pop.addEarly(&r)
		emit(r)
	}
	return nil
}

// benchtime tells package testing how long to measure.
func benchtime(d time.Duration) {
	testing.Init()
	if err := flag.Set("test.benchtime", d.String()); err != nil {
		panic(err) // the flag exists and takes a duration
	}
}
