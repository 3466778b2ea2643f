package workload

import (
	"sync/atomic"
	"time"
)

// roll counts how often each timer's callback has run.
type roll struct {
	calls []atomic.Uint32
	left  atomic.Int64
	early atomic.Int64
	done  chan struct{} // closed when as many have run as there are timers
}

func newRoll(n int) *roll {
	r := &roll{calls: make([]atomic.Uint32, n), done: make(chan struct{})}
	r.left.Store(int64(n))
	return r
}

func (r *roll) call(id uint64) {
	r.calls[id].Add(1)
	if r.left.Add(-1) == 0 {
		close(r.done)
	}
}

// wait returns when all have run, or none has for grace.
func (r *roll) wait(grace time.Duration) {
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

// addCounters adds what went wrong, once everything has run that should.
func (r *roll) addCounters(to *Result) {
	time.Sleep(20 * time.Millisecond) // for calls that nobody expects
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
	to.add(float64(r.early.Load()), "early")
	to.add(float64(lost), "lost")
	to.add(float64(twice), "twice")
}

// functions returns n closures that call f with their number, or n times nil for an implementation that
// keeps values.
func functions(n int, values bool, f func(id uint64)) []func() {
	fs := make([]func(), n)
	for id := range fs {
		if !values {
			fs[id] = func() { f(uint64(id)) }
		}
	}
	return fs
}
