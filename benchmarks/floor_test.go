package benchmarks

import (
	"sync"
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/workload"
)

// BenchmarkFloor is what no timer can do without. The ratio of ArmStop to it says how much of its time is
// our own.
func BenchmarkFloor(b *testing.B) { workload.Floor(b) }

// BenchmarkFloorPostpone is what no Reset can do without that reads the clock and takes a lock.
func BenchmarkFloorPostpone(b *testing.B) {
	var (
		base = time.Now()
		mu   sync.Mutex
		last time.Duration
	)
	for b.Loop() {
		now := time.Since(base)
		mu.Lock()
		last = now
		mu.Unlock()
	}
	if last < 0 {
		b.Fatal("the work was optimised away")
	}
}
