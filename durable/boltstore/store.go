package boltstore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Store is a file of queues. All who open the same queue of it share it.
type Store struct {
	path    string
	options Options
	db      *bolt.DB
	file    *os.File // that db has open
	metaEnd int64    // where its pages of meta data end
	commits committer

	// view is held for reading by those who read file and memory together, and for writing while a commit changes both.
	// It is taken before partition.mu.
	view sync.RWMutex

	writing sync.Mutex // held for a write transaction, and for finding out whether one that has failed can be seen
	closed  atomic.Bool
	failed  atomic.Pointer[error] // what has made the state of the file unknown; it does not change any more

	mu     sync.Mutex
	queues map[string]*queue
}

var _ driver.Store = (*Store)(nil)

// Open opens the file of a store, and makes it if there is none; its directory must exist. A file that another process or another Store has open is
// [driver.ErrLocked]; one of another kind, or written by a newer version, [driver.ErrVersion]; a damaged one [ErrCorrupt].
func Open(path string, options Options) (*Store, error) {
	o, err := options.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("boltstore: open %q: %w", path, err)
	}
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute // errors name it, and the working directory may change
	}
	db, file, err := openFile(path, o)
	if err != nil {
		return nil, fmt.Errorf("boltstore: open %q: %w", path, err)
	}
	s := &Store{path: path, options: o, db: db, file: file, metaEnd: 2 * int64(db.Info().PageSize), queues: make(map[string]*queue)}
	s.commits.start(s)
	return s, nil
}

// Close waits for the commit under way and what waits for the next one, and closes the file. What was claimed is free again when it is
// opened the next time. To close a store again does nothing.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		s.commits.wait()
		return nil
	}
	s.commits.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		q.hints.Stop()
	}
	s.view.Lock() // no reader is left
	defer s.view.Unlock()
	err := guard("close", s.db.Close)
	if err != nil {
		return fmt.Errorf("boltstore: close %q: %w", s.path, err)
	}
	return nil
}

// usable tells why nothing can be done, if that is so.
func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed()
	}
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return context.Cause(ctx)
}

func errClosed() error { return fmt.Errorf("boltstore: the store is %w", driver.ErrClosed) }

// fail ends all use of the store: the file and the memory may differ.
func (s *Store) fail(cause error) {
	err := fmt.Errorf("boltstore: %w: file %q must be closed and opened again, as it is unknown whether a commit has taken place: %w",
		driver.ErrUnavailable, s.path, cause)
	s.failed.CompareAndSwap(nil, &err)
}

// read makes a transaction that sees the file as of the last commit that is safe, and the memory at the same moment.
func (s *Store) read(ctx context.Context, f func(tx *bolt.Tx) error) error {
	s.view.RLock()
	defer s.view.RUnlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	return guard("read", func() error { return s.see(f) })
}

// update makes a transaction of its own, without the committer; for what is not under way yet.
func (s *Store) update(f func(tx *bolt.Tx) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return guard("write", func() error {
		if err := s.meta(); err != nil {
			return err
		}
		return classify(s.db.Update(f))
	})
}

// Open makes a queue or joins one that exists, see [driver.Store]. The limits of dead letters in config hold for what is done through this
// backend. What had begun when a process crashed counts one crash more when its queue is opened. Takes a few commits where the queue is not open
// yet, and time for each of its partitions and for each message that had begun, none for others.
func (s *Store) Open(ctx context.Context, config driver.Config) (driver.Backend, error) {
	if err := config.Check(); err != nil {
		return nil, fmt.Errorf("boltstore: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	q := s.queues[config.Queue]
	if q == nil {
		q = &queue{store: s, name: config.Queue}
		if err := q.load(config.Partitions); err != nil {
			return nil, fmt.Errorf("boltstore: open queue %q in %q: %w", config.Queue, s.path, err)
		}
		s.queues[config.Queue] = q
	}
	if n := len(q.partitions); config.Partitions != 0 && config.Partitions != n {
		return nil, partitionsError(config.Queue, n, config.Partitions)
	}
	return &backend{store: s, queue: q, limits: deadLimits{config.DeadLimit, config.DeadBytes, config.DeadAge}}, nil
}

func partitionsError(queue string, has, asked int) error {
	return fmt.Errorf("%w: queue %q has %d, %d were asked for", driver.ErrPartitions, queue, has, asked)
}
