package bench

import (
	"sync/atomic"
	"time"
)

// Roll counts the calls to the callback of each timer.
type Roll struct {
	Early atomic.Int64 // callbacks that ran before their deadline, counted by the workload

	calls []atomic.Uint32
	left  atomic.Int64
	done  chan struct{} // closed when the number of calls reaches the number of timers
}

// NewRoll returns a Roll for n timers. n must be positive.
func NewRoll(n int) *Roll {
	r := &Roll{calls: make([]atomic.Uint32, n), done: make(chan struct{})}
	r.left.Store(int64(n))
	return r
}

// Call counts a call to the callback of timer id.
func (r *Roll) Call(id uint64) {
	r.calls[id].Add(1)
	if r.left.Add(-1) == 0 {
		close(r.done)
	}
}

// Left returns the number of missing calls.
func (r *Roll) Left() int { return int(max(0, r.left.Load())) }

// Wait waits until all callbacks have run, or until no callback has run for grace.
func (r *Roll) Wait(grace time.Duration) {
	for before := r.left.Load(); ; {
		select {
		case <-r.done:
			return
		case <-time.After(grace):
			now := r.left.Load()
			if now == before {
				return
			}
			before = now
		}
	}
}

// MistakeUnits has the units of figures that count mistakes.
var MistakeUnits = []string{"early", "not-run", "twice"}

// Mistakes returns the numbers of timers that ran early, never, and twice or more. It must be
// called after Wait.
func (r *Roll) Mistakes() []Figure {
	time.Sleep(20 * time.Millisecond) // allows unwanted calls to arrive
	var timers [3]int                 // by number of calls, at most 2
	for id := range r.calls {
		timers[min(2, r.calls[id].Load())]++
	}
	return []Figure{{float64(r.Early.Load()), "early"}, {float64(timers[0]), "not-run"}, {float64(timers[2]), "twice"}}
}
