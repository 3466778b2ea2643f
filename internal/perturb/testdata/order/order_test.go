// Package order has a fault that the ordinary runtime hides and perturb must find.
package order

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// The goroutine announces the result before it stores it. The ordinary runtime lets the goroutine
// continue, so the result is stored before the receiver runs.
func TestResultIsStoredBeforeItIsAnnounced(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for range 1000 {
		var result atomic.Int32
		announced := make(chan struct{})
		go func() {
			close(announced)
			result.Store(1)
		}()
		<-announced
		if result.Load() == 0 {
			t.Fatal("announced before it was stored")
		}
	}
}
