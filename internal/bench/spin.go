package bench

import (
	"sync"
	"sync/atomic"
)

// Spin starts n goroutines that compute without a pause and keep the processors busy. It returns
// once each of them has run. They are ordinary Go code, so the scheduler preempts each at the end
// of its time slice. stop ends the goroutines and waits for them. It may be called more than once.
func Spin(n int) (stop func()) {
	var ended atomic.Bool
	var began, running sync.WaitGroup
	began.Add(n)
	for i := range n {
		running.Go(func() {
			began.Done()
			state := uint64(i + 1)
			for !ended.Load() {
				for range 100 {
					state ^= state << 13
					state ^= state >> 7
					state ^= state << 17
				}
			}
			spun.Add(state)
		})
	}
	began.Wait()
	return func() {
		ended.Store(true)
		running.Wait()
	}
}

// spun keeps the compiler from removing the computation of Spin.
var spun atomic.Uint64
