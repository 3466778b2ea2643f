package workload

import (
	"flag"
	"sync"
	"testing"
	"time"
)

// Floor measures what no timer can do without if arming and stopping it each read the clock at most once
// and take a lock: one clock read and two uncontended lock pairs.
func Floor(b *testing.B) {
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

// RunFloor runs Floor for d.
func RunFloor(d time.Duration) Result {
	testing.Init()
	if err := flag.Set("test.benchtime", d.String()); err != nil {
		panic(err) // the flag exists and takes a duration
	}
	measured := testing.Benchmark(Floor)
	r := Result{N: measured.N}
	r.add(float64(measured.T)/float64(measured.N), "ns/op")
	return r
}
