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
	// it is set forward, they are due earlier, and leases expire.
	Now func() time.Time
}

// Store holds queues by name. Callers that open the same queue of one store share it, as processes
// share a queue on a server.
type Store struct {
	shared local.Shared

	mu    sync.Mutex
	state *local.State // nil after Close
}

var _ driver.Lister = (*Store)(nil)

// New returns an empty store. Close it when its queues are closed.
func New(options Options) *Store {
	if options.Now == nil {
		options.Now = time.Now
	}
	s := &Store{shared: local.Shared{Name: "memstore", Now: options.Now}}
	s.state, _ = local.Load(local.NewMap(), &s.shared, nil) // an empty map has no errors
	return s
}

// Open opens a queue, and creates it if it does not exist: see [driver.Store]. The limits of dead
// letters in config apply to calls to this backend.
func (s *Store) Open(ctx context.Context, config driver.Config) (driver.Backend, error) {
	return local.Open(ctx, runner{s}, &s.shared, config)
}

// Queues implements [driver.Lister].
func (s *Store) Queues(ctx context.Context) ([]string, error) { return local.Queues(ctx, runner{s}) }

// DeleteQueue implements [driver.Lister].
func (s *Store) DeleteQueue(ctx context.Context, queue string, force bool) error {
	return local.DeleteQueue(ctx, runner{s}, &s.shared, queue, force)
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
