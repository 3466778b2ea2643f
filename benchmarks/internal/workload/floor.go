package workload

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// Floor measures the least cost of arming and stopping a timer, if each reads the clock at most
// once and takes a lock: one clock reading and two uncontended pairs of lock and unlock.
func Floor(b *testing.B) {
	if held := floor(b.N); held != b.N {
		b.Fatal("the compiler removed the measured code")
	}
}

// floor repeats it n times and returns n.
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

// RunFloor runs Floor for p.Time on each number of processors. The goroutines share nothing. If two
// processors are not twice as fast as one, the machine has other load, and no figure for two
// processors is reliable.
func RunFloor(p Params, emit func(Result)) {
	const at = 64 // repetitions for each call, so that the cost of the call is negligible
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

// floorWheel has the least cost of an operation on a random one of many timers: the clock reading,
// the lock and the cache misses of any wheel with handles of 16 bytes, generations and callbacks.
// It has no bucket and no queue.
type floorWheel struct {
	base  time.Time
	mu    sync.Mutex
	nodes []floorNode
	funcs []func()
}

type floorNode struct {
	deadline   time.Duration
	generation uint32
	_          uint32 // the size of a node of timingwheel
}

type floorHandle struct {
	wheel             *floorWheel
	index, generation uint32
}

func newFloorWheel(n int) (*floorWheel, []floorHandle) {
	w := &floorWheel{base: time.Now(), nodes: make([]floorNode, n), funcs: make([]func(), n)}
	handles := make([]floorHandle, n)
	for i := range handles {
		w.nodes[i].generation = 1
		w.funcs[i] = func() {}
		handles[i] = floorHandle{w, uint32(i), 1}
	}
	return w, handles
}

// reset writes the deadline.
func (h floorHandle) reset(d time.Duration) (pending bool) {
	w := h.wheel
	at := time.Since(w.base) + d
	w.mu.Lock()
	if node := &w.nodes[h.index]; node.generation == h.generation {
		node.deadline = at
		pending = true
	}
	w.mu.Unlock()
	return pending
}

// stop makes the handle stale and releases the callback.
func (h floorHandle) stop() (pending bool) {
	w := h.wheel
	w.mu.Lock()
	if node := &w.nodes[h.index]; node.generation == h.generation {
		node.generation++
		w.funcs[h.index] = nil
		pending = true
	}
	w.mu.Unlock()
	return pending
}

// arm arms a timer in a free slot.
func (w *floorWheel) arm(index uint32, d time.Duration, f func()) floorHandle {
	at := time.Since(w.base) + d
	w.mu.Lock()
	node := &w.nodes[index]
	node.deadline = at
	w.funcs[index] = f
	h := floorHandle{w, index, node.generation}
	w.mu.Unlock()
	return h
}

// FloorPostpone resets a random one of n timers.
func FloorPostpone(b *testing.B, n int) {
	b.Helper()
	_, handles := newFloorWheel(n)
	rng := xorshift(2)
	for b.Loop() {
		if !handles[rng.below(n)].reset(time.Hour) {
			b.Fatal("a handle is stale")
		}
	}
}

// FloorChurn stops a random one of n timers and arms another one.
func FloorChurn(b *testing.B, n int) {
	b.Helper()
	w, handles := newFloorWheel(n)
	rng, f := xorshift(2), func() {}
	for b.Loop() {
		h := &handles[rng.below(n)]
		if !h.stop() {
			b.Fatal("a handle is stale")
		}
		*h = w.arm(h.index, rng.far(), f)
	}
}
