// Package memstore keeps durable queues in memory: for tests, for examples, and as the reference of
// a store. The queues end with the process.
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
	// Now is the clock of the store. It may be called from several goroutines. Nil stands for
	// time.Now, the wall clock of the process. If the clock is set back, all messages are due later
	// by that time. If it is set ahead, they are due earlier, and leases end.
	Now func() time.Time
}

// Store holds queues by their names. Callers that open the same queue of one store share it, as
// processes share a queue on a server.
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

// Open makes a queue or joins one that exists, see [driver.Store]. The bounds of dead letters in
// config hold for calls of this backend. A config that is out of range is [driver.ErrInvalid].
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
		return nil, fmt.Errorf("memstore: %w: queue %q has %d, %d were asked for", driver.ErrPartitions,
			config.Queue, len(q.partitions), config.Partitions)
	}
	return &backend{store: s, queue: q, limits: local.NewDeadLimits(&config)}, nil
}

// Close drops all queues. Closing a store again does nothing.
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

// usable returns the error of a call that must not be made.
func (s *Store) usable(ctx context.Context) error {
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
