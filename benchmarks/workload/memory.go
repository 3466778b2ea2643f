package workload

import (
	"runtime"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/impl"
	"go.uber.org/atomic"
)

// Small populations are armed several times over, so that the clock can tell how long it takes; but not
// for long, if what is around takes longer.
const patience = 3

// fill measures adds on an empty wheel, and the memory of each timer: the growth of the live heap and of
// the stacks, without the closures and the array of handles, which exist before.
func fill[H any](i impl.Implementation[H], p Params) (Result, error) {
	var ran atomic.Int64
	handles := make([]H, p.Pending)
	fs := make([]func(), p.Pending)
	if !i.Values {
		for id := range fs {
			fs[id] = func() { ran.Inc() }
		}
	}
	var took time.Duration
	var armed int
	var allocs, grown uint64
	start := time.Now()
	for round := 0; round == 0 || took < p.Time && time.Since(start) < patience*p.Time; round++ {
		timers, err := i.Open(impl.Config{Horizon: horizon, Fire: func(uint64) { ran.Inc() }})
		if err != nil {
			return Result{}, err
		}
		p.phase("arming %d timers", p.Pending)
		before := memory()
		rng := xorshift(1)
		begin := time.Now()
		for id := range handles {
			handles[id] = timers.After(rng.far(), uint64(id), fs[id])
		}
		took += time.Since(begin)
		after := memory()
		armed += len(handles)
		if round == 0 { // later there is more that comes and goes
			allocs = after.Mallocs - before.Mallocs
			grown = max(inUse(after), inUse(before)) - inUse(before)
		}
		release(i, timers, handles)
	}
	r := Result{N: armed}
	r.add(float64(took)/float64(armed), "ns/op")
	r.add(float64(grown)/float64(p.Pending), "B/timer")
	r.add(float64(allocs/uint64(p.Pending)), "allocs/op")
	if time.Since(start) < nearest {
		r.add(float64(ran.Load()), "early")
	}
	runtime.KeepAlive(fs)
	return r, nil
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
	runtime.KeepAlive(pop)
	return r, nil
}
