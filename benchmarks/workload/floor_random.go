package workload

import (
	"sync"
	"testing"
	"time"
)

// The floors of what is done to a random one of many timers: the clock, the lock and the cache misses that no wheel
// with handles of 16 bytes, generations and callbacks can do without, and nothing else. There is no bucket and no queue.

type floorNode struct {
	deadline   time.Duration
	generation uint32
	_          uint32 // as large as ours
}

type floorWheel struct {
	base  time.Time
	mu    sync.Mutex
	nodes []floorNode
	funcs []func()
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

// stop ends the handle and releases the callback.
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

// arm arms a timer in a slot that is free.
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
