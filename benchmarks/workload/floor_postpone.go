package workload

import (
	"sync"
	"testing"
	"time"
)

// The floors of Reset: what none can do without that reads the clock and takes a lock.

type floorNode struct {
	deadline   time.Duration
	generation uint32
	_          uint32 // as large as ours
}

type floorWheel struct {
	base  time.Time
	mu    sync.Mutex
	nodes []floorNode
}

type floorHandle struct {
	wheel             *floorWheel
	index, generation uint32
}

// FloorPostpone writes the deadline of a random one of n timers. With one timer it is the clock and the lock. With very
// many there are two cache misses as well: the handle, and the node with its generation and deadline.
func FloorPostpone(b *testing.B, n int) {
	b.Helper()
	w := &floorWheel{base: time.Now(), nodes: make([]floorNode, n)}
	handles := make([]floorHandle, n)
	for i := range handles {
		w.nodes[i].generation = 1
		handles[i] = floorHandle{w, uint32(i), 1}
	}
	rng, written := xorshift(2), 0
	for b.Loop() {
		h := handles[rng.below(n)]
		at := time.Since(h.wheel.base) + time.Hour
		h.wheel.mu.Lock()
		if node := &h.wheel.nodes[h.index]; node.generation == h.generation {
			node.deadline = at
			written++
		}
		h.wheel.mu.Unlock()
	}
	if written != b.N {
		b.Fatal("the work was optimised away")
	}
}
