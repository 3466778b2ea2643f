// Package memstore keeps durable queues in memory. It is meant for tests and examples. The queues
// are lost with the process.
package memstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// Options configures [New]. The zero value is ready to use.
type Options struct {
	// Now is the store's clock. It must be safe for concurrent use. Nil means time.Now, the wall
	// clock of the process. If the clock is set back, all messages are due later by that amount. If
	// it is set forward, they are due earlier, and leases expire earlier.
	Now func() time.Time
}

// Store holds queues by name. Callers that open the same queue in one store share it, as processes
// share a queue on a server. Store implements [driver.Store] and [driver.Lister].
type Store struct {
	queues

	mu    sync.Mutex
	state *local.State // nil after Close
}

type queues = local.Store

// New returns an empty store. Close it after closing its queues.
func New(options Options) *Store {
	if options.Now == nil {
		options.Now = time.Now
	}
	s, shared := new(Store), &local.Shared{Name: "memstore", Now: options.Now}
	s.queues = local.NewStore(runner{s}, shared)
	s.state, _ = local.Load(new(local.Map), shared, nil) // an empty map has no errors
	return s
}

// Close discards all queues. Later calls to the store and its backends return [driver.ErrClosed].
// Closing a store again has no effect. The error is always nil.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = nil
	return nil
}

// runner is a [local.Runner]. It runs the calls to a store one at a time, under its lock.
type runner struct{ s *Store }

func (r runner) Run(ctx context.Context, call *local.Call) error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.s.state == nil {
		return fmt.Errorf("memstore: the store is %w", driver.ErrClosed)
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return call.Do(r.s.state)
}
