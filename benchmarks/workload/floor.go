package workload

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// Floor measures what no timer can do without if arming and stopping it each read the clock at most once
// and take a lock: one clock read and two uncontended lock pairs.
func Floor(b *testing.B) {
	if held := floor(b.N); held != b.N {
		b.Fatal("the work was optimised away")
	}
}

// floor does it n times and returns n.
func floor(n int) int {
	var (
		base = time.Now()
		mu   sync.Mutex
		last time.Duration
		held int
	)
	for range n {
		now := time.Since(base)
		mu.Lock()
		last = now
		mu.Unlock()
		mu.Lock()
		held++
		mu.Unlock()
	}
	if last < 0 {
		return -1
	}
	return held
}

// RunFloor runs Floor for p.Time on each number of processors. Nothing is shared, so if two processors are
// not twice as fast as one, the machine has other things to do, and no other figure for two says much.
func RunFloor(p Params, emit func(Result)) {
	const at = 64 // a time, so that the call costs nothing
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range p.Procs {
		runtime.GOMAXPROCS(procs)
		ops := make([]func(), procs)
		for i := range ops {
			ops[i] = func() { floor(at) }
		}
		n, took := run(ops, p.Time)
		r := Result{Procs: procs, N: n * at}
		r.add(float64(took)/float64(r.N), "ns/op")
		emit(r)
	}
}
