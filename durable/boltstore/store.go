package boltstore

import (
	"context"
	"errors"
	"fmt"
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
	file    *file
	commits committer
	server  *server // nil without Options.Socket

	// view is entered by those who read file and memory together, and held by a commit while it changes
	// both. It is taken before partition.mu.
	view gate

	copies gate // entered by backups, and held by Close

	writing sync.Mutex // held for a write transaction, and for finding out whether one that has failed can be seen
	closed  atomic.Bool
	failed  atomic.Pointer[error] // why the store cannot be used any more; it does not change

	mu     sync.Mutex
	queues map[string]*queue
}

var _ driver.Store = (*Store)(nil)

// Open opens the file of a store, and makes it if there is none; its directory must exist. A path that no
// file of a store can have is [driver.ErrInvalid], one that another process or another Store has open
// [driver.ErrLocked], a file of another kind, or written by a newer version, [driver.ErrVersion], and a
// damaged one [ErrCorrupt]. After an error the file is neither open nor locked.
//
// Open reads the pages of an existing file, see Options.SkipCheck. It is O(n) in the pages that are in use.
func Open(path string, options Options) (*Store, error) {
	o, err := options.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("boltstore: open %q: %w", path, err)
	}
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute // errors name it, and the working directory may change
	}
	f, err := openFile(path, o)
	if err != nil {
		return nil, fmt.Errorf("boltstore: open %q: %w", path, err)
	}
	s := &Store{path: path, options: o, file: f, queues: make(map[string]*queue)}
	s.commits.start(s)
	if o.Socket {
		if s.server, err = listen(s); err != nil {
			return nil, fmt.Errorf("boltstore: open %q: %w", path, errors.Join(err, s.Close()))
		}
	}
	return s, nil
}

// Close waits for the commit under way and what waits for the next one, and closes the file. What was
// claimed is free again when the file is opened the next time. To close a store again does nothing.
//
// Close does not wait for a commit that has been under way for a minute, or for a call that reads, such as
// Backup, and does not end within a minute. It returns [driver.ErrBroken] then, and the file stays locked until the process ends.
func (s *Store) Close() error {
	again := s.closed.Swap(true)
	if s.server != nil {
		s.server.close()
	}
	stopped := s.commits.stop()
	if again {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		q.hints.Stop()
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), s.options.stall, errReading)
	defer cancel()
	if err := errors.Join(stopped, s.view.lock(ctx), s.copies.lock(ctx)); err != nil { // no reader is left
		return fmt.Errorf("boltstore: close %q: %w; the file stays locked until the process ends", s.path, err)
	}
	defer s.view.unlock()
	if err := s.file.close(); err != nil {
		return fmt.Errorf("boltstore: close %q: %w", s.path, err)
	}
	return nil
}

var errReading = fmt.Errorf("%w: a call that reads does not end", driver.ErrBroken)

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

// fail ends all use of the store: the file and the memory may differ, or the file cannot be written.
func (s *Store) fail(cause error) {
	err := fmt.Errorf("boltstore: %w: close the store and open %q again, in a new process if it stays locked: %w",
		driver.ErrBroken, s.path, cause)
	s.failed.CompareAndSwap(nil, &err)
}

// read makes a transaction that sees the file as of the last commit that is safe, and the memory at the same moment.
func (s *Store) read(ctx context.Context, f func(tx *bolt.Tx) error) error {
	if err := s.view.enter(ctx, s.commits.stalled); err != nil {
		return errors.Join(s.usable(ctx), err)
	}
	defer s.view.leave()
	if err := s.usable(ctx); err != nil {
		return err
	}
	err := s.file.view(f)
	if s.file.stuck.Load() || ofSystem(err) {
		s.fail(err)
		return *s.failed.Load()
	}
	return err
}

// ofSystem reports whether the system has refused to read or write the file, for another reason than space.
func ofSystem(err error) bool { return errors.Is(err, driver.ErrBroken) && !errors.Is(err, ErrCorrupt) }

// update makes a transaction of its own, without the committer; for what is not under way yet. An error of f
// is returned; every other one but [driver.ErrFull] ends the use of the store, unless the file is damaged.
func (s *Store) update(f func(tx *bolt.Tx) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	var refused error
	_, err := s.file.update(func(tx *bolt.Tx) error {
		if refused = f(tx); refused != nil {
			return refused
		}
		return tx.Commit()
	})
	err = classify(err)
	if s.file.stuck.Load() || refused == nil && ofSystem(err) {
		s.fail(err)
		return *s.failed.Load()
	}
	return err
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

// gate is a lock that readers share, and that a reader waits for no longer than its context. The zero
// value is open.
type gate struct {
	mu      sync.Mutex
	readers int
	writer  chan struct{} // closed by unlock; nil: the gate is open
	empty   chan struct{} // closed when the last reader leaves; nil: no writer waits for it
}

// enter enters as a reader, which leave ends. It is an error if ctx ends, or the writer has stalled.
func (g *gate) enter(ctx context.Context, stalled <-chan struct{}) error {
	for {
		g.mu.Lock()
		writer := g.writer
		if writer == nil {
			g.readers++
			g.mu.Unlock()
			return nil
		}
		g.mu.Unlock()
		select {
		case <-writer:
		case <-stalled:
			return errStalled
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.readers--; g.readers == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// lock closes the gate and waits until all readers have left; unlock opens it. One goroutine at a time may
// lock. If ctx ends before, the gate stays closed.
func (g *gate) lock(ctx context.Context) error {
	g.mu.Lock()
	g.writer = make(chan struct{})
	empty := make(chan struct{})
	if g.readers == 0 {
		g.mu.Unlock()
		return nil
	}
	g.empty = empty
	g.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *gate) unlock() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.writer)
	g.writer = nil
}
