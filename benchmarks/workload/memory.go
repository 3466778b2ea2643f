package workload

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/impl"
)

// Small populations are armed several times over, so that the clock can tell how long it takes; but not
// for long, if what is around takes longer.
const patience = 3

// fill measures adds on an empty wheel, and the memory of each timer: the growth of the live heap and of
// the stacks, without the closures and the array of handles, which exist before.
func fill[H any](i impl.Implementation[H], p Params) (Result, error) {
	var ran atomic.Int64
	fs := functions(p.Pending, i.Values, func(uint64) { ran.Add(1) })
	handles := make([]H, p.Pending)
	var took time.Duration
	var first cost // later there is more that comes and goes
	rounds := 0
	start := time.Now()
	for rounds == 0 || took < p.Time && time.Since(start) < patience*p.Time {
		timers, err := i.Open(impl.Config{Horizon: horizon, Fire: func(uint64) { ran.Add(1) }})
		if err != nil {
			return Result{}, err
		}
		p.phase("arming %d timers", p.Pending)
		c := armAll(timers, handles, fs)
		took += c.took
		if rounds == 0 {
			first = c
		}
		rounds++
		release(i, timers, handles)
	}
	r := Result{N: rounds * p.Pending}
	r.add(float64(took)/float64(r.N), "ns/op")
	r.add(float64(first.grown)/float64(p.Pending), "B/timer")
	r.add(float64(first.allocs/uint64(p.Pending)), "allocs/op")
	if time.Since(start) < nearest {
		r.add(float64(ran.Load()), "early")
	}
	runtime.KeepAlive(fs)
	return r, nil
}

// cost is what it takes to arm a population.
type cost struct {
	took          time.Duration
	allocs, grown uint64
}

func armAll[H any](timers impl.Timers[H], handles []H, fs []func()) cost {
	before := memory()
	rng := xorshift(1)
	begin := time.Now()
	for id, f := range fs {
		handles[id] = timers.After(rng.far(), uint64(id), f)
	}
	took := time.Since(begin)
	after := memory()
	return cost{took, after.Mallocs - before.Mallocs, max(inUse(after), inUse(before)) - inUse(before)}
}

// memory collects the garbage and reads what is left.
func memory() runtime.MemStats {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}

func inUse(m runtime.MemStats) uint64 { return m.HeapAlloc + m.StackInuse }

func release[H any](i impl.Implementation[H], timers impl.Timers[H], handles []H) {
	if i.Stop == impl.Exact { // others may take their time, and Close drops what they hold
		for _, h := range handles {
			timers.Stop(h)
		}
	}
	timers.Close()
}

// collect measures a full collection while the population is pending.
func collect[H any](i impl.Implementation[H], p Params) (Result, error) {
	pop, err := settle(i, p, false)
	if err != nil {
		return Result{}, err
	}
	defer pop.Close()
	const least = 3
	rounds := 0
	begin := time.Now()
	for rounds < least || time.Since(begin) < p.Time {
		runtime.GC()
		rounds++
	}
	took := time.Since(begin)
	r := Result{N: rounds}
	r.add(took.Seconds()*1e3/float64(rounds), "gc-ms")
	pop.addEarly(&r)
	return r, nil
}
