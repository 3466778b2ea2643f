// Package memstore keeps durable queues in memory: for tests, for examples, and as the reference of what a store does. What it holds
// ends with the process.
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

// Options are those of [New].
type Options struct {
	// Now is the clock of the store; it may be called from many goroutines. Nil: time.Now, the wall clock of the process. A clock that is set
	// back makes everything due later by as much; one that is set ahead makes it due earlier, and ends leases.
	Now func() time.Time
}

// Store holds queues by their names. All who open the same queue of one store share it, as processes do that use the same server.
type Store struct {
	now    func() time.Time
	closed atomic.Bool

	mu     sync.Mutex
	queues map[string]*queue
}

var _ driver.Store = (*Store)(nil)

// New makes an empty store.
func New(options Options) *Store {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Store{now: options.Now, queues: make(map[string]*queue)}
}

// Open makes a queue or joins one that exists, see [driver.Store]. The limits of dead letters in config hold for what is done through this
// backend. A config that is out of range is [driver.ErrInvalid].
func (s *Store) Open(ctx context.Context, config driver.Config) (driver.Backend, error) {
	if err := s.usable(ctx); err != nil {
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
	case q == nil:
		n := config.Partitions
		if n == 0 {
			n = driver.DefaultPartitions
		}
		q = newQueue(n)
		s.queues[config.Queue] = q
	case config.Partitions != 0 && config.Partitions != len(q.partitions):
		return nil, fmt.Errorf("memstore: %w: queue %q has %d, %d were asked for", driver.ErrPartitions,
			config.Queue, len(q.partitions), config.Partitions)
	}
	return &backend{store: s, queue: q, limits: local.NewDeadLimits(&config)}, nil
}

// Close drops all queues. To close a store again does nothing.
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

// usable tells why nothing can be done, if that is so.
func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed()
	}
	return context.Cause(ctx)
}

func errClosed() error { return fmt.Errorf("memstore: the store is %w", driver.ErrClosed) }

// queue is what all backends of one queue share.
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
