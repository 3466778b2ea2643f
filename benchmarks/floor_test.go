package benchmarks

import (
	"sync"
	"testing"
	"time"
)

// BenchmarkFloor measures what no timer can do without if arming and stopping it each read the clock
// at most once and take a lock: one clock read and two uncontended lock pairs. The ratio of ArmStop to it
// says how much of its time is our own.
func BenchmarkFloor(b *testing.B) {
	var (
		base = time.Now()
		mu   sync.Mutex
		last time.Duration
		held int
	)
	for range b.N {
		now := time.Since(base)
		mu.Lock()
		last = now
		mu.Unlock()
		mu.Lock()
		held++
		mu.Unlock()
	}
	if held != b.N || last < 0 {
		b.Fatal("the work was optimised away")
	}
}
