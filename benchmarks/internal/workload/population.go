package workload

import (
	"errors"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/impl"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/process"
)

// The deadlines of a population lie between nearest and horizon ahead, so that no timer is due
// during the run.
const (
	nearest = time.Minute
	horizon = time.Hour
)

// population is a set of pending timers of which none is due during the run.
type population[H any] struct {
	impl.Timers[H]
	handles []ownedHandle[H] // nil if the workload does not keep them
	ran     atomic.Int64
	armed   time.Time
}

// ownedHandle is a handle that belongs to the goroutine that has set taken.
type ownedHandle[H any] struct {
	taken  atomic.Bool
	handle H
}

// newPopulation arms p.Pending timers, each with its own closure, and runs a garbage collection. It
// keeps the handles for a workload that stops or resets these timers.
func newPopulation[H any](i impl.Implementation[H], p Params, stops, resets bool) (*population[H], error) {
	pop := &population[H]{armed: time.Now()}
	timers, err := i.Open(impl.Config{Tick: i.Tick, Horizon: horizon, Resets: resets, Fire: func(uint64) { pop.ran.Add(1) }})
	if err != nil {
		return nil, err
	}
	pop.Timers = timers
	p.phase("arming %d timers", p.Pending)
	if stops || resets {
		pop.handles = make([]ownedHandle[H], p.Pending)
	}
	rng := xorshift(1)
	for id := range p.Pending {
		var f func()
		if !i.Values {
			f = func() { pop.ran.Add(1) }
		}
		h := timers.After(rng.far(), uint64(id), f)
		if pop.handles != nil {
			pop.handles[id].handle = h
		}
	}
	p.collectGarbage()
	p.phase("measuring")
	return pop, nil
}

// addEarly adds the number of callbacks that have run, unless some deadlines have passed.
func (pop *population[H]) addEarly(r *Result) {
	if time.Since(pop.armed) < nearest {
		r.add(float64(pop.ran.Load()), "early")
	}
}

// functions returns n closures that call f with their index. For an implementation that keeps
// values they are nil.
func functions(n int, values bool, f func(id uint64)) []func() {
	fs := make([]func(), n)
	for id := range fs {
		if !values {
			fs[id] = func() { f(uint64(id)) }
		}
	}
	return fs
}

// xorshift is a random generator. Its cost is small and the same for every implementation.
type xorshift uint64

func (x *xorshift) next() uint64 {
	v := *x
	v ^= v << 13
	v ^= v >> 7
	v ^= v << 17
	*x = v
	return uint64(v)
}

func (x *xorshift) below(n int) int { return int((x.next() >> 32) * uint64(n) >> 32) }

// far returns a random delay for a timer of a population.
func (x *xorshift) far() time.Duration {
	return nearest + time.Duration(x.below(int((horizon-nearest)/time.Millisecond)))*time.Millisecond
}

// maxFillTime limits fill to this multiple of p.Time, preparation included.
const maxFillTime = 3

// fill measures adds on an empty wheel, and the memory of each timer: the growth of the live heap
// and of the stacks. The closures and the array of handles exist before and do not count. fill
// repeats small populations, because arming one takes too little time for the clock.
func fill[H any](i impl.Implementation[H], p Params) (Result, error) {
	var ran atomic.Int64
	fs := functions(p.Pending, i.Values, func(uint64) { ran.Add(1) })
	handles := make([]H, p.Pending)
	var took time.Duration
	var first armCost // memory counts in the first round only, before anything has been freed
	rounds := 0
	start := time.Now()
	for rounds == 0 || took < p.Time && time.Since(start) < maxFillTime*p.Time {
		timers, err := i.Open(impl.Config{Tick: i.Tick, Horizon: horizon, Fire: func(uint64) { ran.Add(1) }})
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

// armCost is the cost of arming a population.
type armCost struct {
	took          time.Duration
	allocs, grown uint64
}

func armAll[H any](timers impl.Timers[H], handles []H, fs []func()) armCost {
	before := memory()
	rng := xorshift(1)
	begin := time.Now()
	for id, f := range fs {
		handles[id] = timers.After(rng.far(), uint64(id), f)
	}
	took := time.Since(begin)
	after := memory()
	return armCost{took, after.Mallocs - before.Mallocs, max(inUse(after), inUse(before)) - inUse(before)}
}

// memory returns the statistics after a garbage collection.
func memory() runtime.MemStats {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}

func inUse(m runtime.MemStats) uint64 { return m.HeapAlloc + m.StackInuse }

// release stops all timers of an implementation with an exact Stop and closes it. To stop the
// timers of others may take long, and Close releases their timers too.
func release[H any](i impl.Implementation[H], timers impl.Timers[H], handles []H) {
	if i.Stop == impl.Exact {
		for _, h := range handles {
			timers.Stop(h)
		}
	}
	timers.Close()
}

// gc measures a full garbage collection while a population is pending.
func gc[H any](i impl.Implementation[H], p Params) (Result, error) {
	pop, err := newPopulation(i, p, false, false)
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

// Idle reports the wake-ups in idleSpan. It counts at most for idleFactor times p.Time.
const (
	idleSpan   = 5 * time.Second
	idleFactor = 50
)

// idle counts the wake-ups of a process that holds a population, while nothing is due.
func idle[H any](i impl.Implementation[H], p Params) (Result, error) {
	pop, err := newPopulation(i, p, false, false)
	if err != nil {
		return Result{}, err
	}
	defer pop.Close()
	span := min(idleSpan, idleFactor*p.Time)
	debug.FreeOSMemory() // otherwise the runtime returns memory gradually during the measurement
	time.Sleep(span / 5) // until the helpers of the runtime are idle
	before, known := process.ContextSwitches()
	if !known {
		return Result{}, errors.New("this system does not count context switches")
	}
	time.Sleep(span)
	after, _ := process.ContextSwitches()
	r := Result{N: 1}
	r.add(float64(after-before)*float64(idleSpan)/float64(span), "wakeups")
	pop.addEarly(&r)
	return r, nil
}
