package bench

import (
	"sync/atomic"
	"time"
)

// Roll counts how often the callback of each timer has run.
type Roll struct {
	Early atomic.Int64 // callbacks that ran before their deadline; the workload counts them

	calls []atomic.Uint32
	left  atomic.Int64
	done  chan struct{} // closed when as many have run as there are timers
}

// NewRoll returns a roll of n timers; n is positive.
func NewRoll(n int) *Roll {
	r := &Roll{calls: make([]atomic.Uint32, n), done: make(chan struct{})}
	r.left.Store(int64(n))
	return r
}

// Call counts a call of the callback of timer id.
func (r *Roll) Call(id uint64) {
	r.calls[id].Add(1)
	if r.left.Add(-1) == 0 {
		close(r.done)
	}
}

// Left returns how many calls are missing.
func (r *Roll) Left() int { return int(max(0, r.left.Load())) }

// Wait returns when all callbacks have run, or none has for grace.
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

// MistakeUnits are the units of figures that count mistakes.
var MistakeUnits = []string{"early", "lost", "twice"}

// Mistakes returns what went wrong, once every callback has run that should: how many timers ran
// early, never and twice.
func (r *Roll) Mistakes() []Figure {
	time.Sleep(20 * time.Millisecond) // for calls that should not come
	lost, twice := 0, 0
	for id := range r.calls {
		switch r.calls[id].Load() {
		case 0:
			lost++
		case 1:
		default:
			twice++
		}
	}
	return []Figure{{float64(r.Early.Load()), "early"}, {float64(lost), "lost"}, {float64(twice), "twice"}}
}
