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
	errDown      = errors.New("the server is down")
	errFailed    = errors.New("the server has failed")
	errMalformed = errors.New("the request is malformed")
)

// callTimeout limits the time of one call. Backoff alone does not end a call to a server that
// hangs.
const callTimeout = 50 * time.Millisecond

// backend is the server. It counts its calls.
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

// call is one attempt of a job. Its context has a deadline on the wheel.
func (b *backend) call(ctx context.Context, t *task) error {
	ctx, cancel := b.tw.WithTimeout(ctx, callTimeout)
	defer cancel()
	b.calls.Inc()
	b.faults.Check(t.running.CompareAndSwap(false, true), "job %d: concurrent attempts", t.id)
	b.faults.Check(t.ends.Load() == 0, "job %d: an attempt after its end", t.id)
	defer t.running.Store(false)
	t.attempts.Inc()

	if t.malformed {
		return Permanent(errMalformed)
	}
	if b.isDown() {
		b.whileDown.Inc()
		return errDown
	}
	random, latency := b.draw()
	switch {
	case random < 1: // hangs
		<-ctx.Done()
		return ctx.Err()
	case random < 1+b.cfg.flaky*0.99:
		return errFailed
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

// draw returns a random number from 0 to 100 and the time of the call.
func (b *backend) draw() (random float64, latency time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rng.Float64() * 100, time.Duration(b.rng.Int64N(int64(2 * time.Millisecond)))
}
