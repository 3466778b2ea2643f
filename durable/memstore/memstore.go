// Package memstore keeps durable queues in memory. It is meant for tests and examples, and is the
// reference implementation of a store. The queues are lost with the process.
package memstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
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
	now    func() time.Time
	closed atomic.Bool

	mu     sync.Mutex
	queues map[string]*queue
}

var _ driver.Store = (*Store)(nil)

// New returns an empty store. Close it when its queues are closed.
func New(options Options) *Store {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Store{now: options.Now, queues: make(map[string]*queue)}
}

// Open opens a queue and creates it if it does not exist: see [driver.Store]. The limits of dead
// letters in config apply to calls to this backend. Open returns [driver.ErrInvalid] for a config
// that is out of range, [driver.ErrPartitions] for a different number of partitions,
// [driver.ErrNoQueue] if config.Existing is set and the queue does not exist, and
// [driver.ErrClosed] after Close.
func (s *Store) Open(ctx context.Context, config driver.Config) (driver.Backend, error) {
	if err := s.checkOpen(ctx); err != nil {
		return nil, err
	}
	if err := config.Check(); err != nil {
		return nil, fmt.Errorf("memstore: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[config.Queue]
	switch {
	case s.closed.Load():
		return nil, errClosed()
	case q == nil && config.Existing:
		return nil, fmt.Errorf("memstore: %w: %q", driver.ErrNoQueue, config.Queue)
	case q == nil:
		n := config.Partitions
		if n == 0 {
			n = driver.DefaultPartitions
		}
		q = newQueue(n)
		s.queues[config.Queue] = q
	case config.Partitions != 0 && config.Partitions != len(q.partitions):
		return nil, fmt.Errorf("memstore: %w: queue %q has %d, %d were requested", driver.ErrPartitions,
			config.Queue, len(q.partitions), config.Partitions)
	}
	return &backend{store: s, queue: q, limits: local.NewDeadLimits(&config)}, nil
}

// Close discards all queues. Later calls to the store and its backends return [driver.ErrClosed].
// Closing a store again has no effect. The error is always nil.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		q.hints.Stop()
	}
	s.queues = nil
	return nil
}

// checkOpen returns an error if the store is closed or ctx has ended.
func (s *Store) checkOpen(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed()
	}
	return context.Cause(ctx)
}

func errClosed() error { return fmt.Errorf("memstore: the store is %w", driver.ErrClosed) }

// queue is shared by all backends of one queue.
type queue struct {
	partitions []*partition
	members    local.Members
	hints      local.Hints
}

func newQueue(n int) *queue {
	q := &queue{partitions: make([]*partition, n)}
	for i := range q.partitions {
		q.partitions[i] = newPartition(i, &q.hints)
	}
	return q
}
