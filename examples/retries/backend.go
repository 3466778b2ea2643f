package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/fault"
)

var (
	errDown   = errors.New("the server is down")
	errFlaky  = errors.New("the server has failed")
	errRefuse = errors.New("the request is malformed")
)

// callTimeout is how long one call may take. A hanging server must not keep a job for ever: backoff
// is no substitute for that.
const callTimeout = 50 * time.Millisecond

// backend is the server, and what it has seen.
type backend struct {
	calls     atomic.Int64
	whileDown atomic.Int64

	tw     *timingwheel.TimingWheel
	cfg    config
	begin  time.Time
	faults *fault.List

	mu  sync.Mutex
	rng *rand.Rand
}

// call is one attempt of a job. Its time is limited by the wheel as well.
func (b *backend) call(ctx context.Context, t *task) error {
	ctx, cancel := b.tw.WithTimeout(ctx, callTimeout)
	defer cancel()
	b.calls.Inc()
	b.faults.Check(t.running.CompareAndSwap(false, true), "job %d: two attempts at the same time", t.id)
	b.faults.Check(t.ends.Load() == 0, "job %d: an attempt after its end", t.id)
	defer t.running.Store(false)
	t.attempts.Inc()

	if t.malformed {
		return Permanent(errRefuse)
	}
	if b.isDown() {
		b.whileDown.Inc()
		return errDown
	}
	dice, latency := b.draw()
	switch {
	case dice < 1: // hangs
		<-ctx.Done()
		return ctx.Err()
	case dice < 1+b.cfg.flaky*0.99:
		return errFlaky
	}
	time.Sleep(latency)
	t.served.Inc()
	return nil
}

func (b *backend) isDown() bool {
	middle := b.begin.Add(b.cfg.arrive / 2)
	now := time.Now()
	return !now.Before(middle.Add(-b.cfg.down/2)) && now.Before(middle.Add(b.cfg.down/2))
}

// draw returns a number from 0 to 100, and how long the call takes.
func (b *backend) draw() (dice float64, latency time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rng.Float64() * 100, time.Duration(b.rng.Int64N(int64(2 * time.Millisecond)))
}
