package boltstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// Store is a file of queues, opened by [Open]. Backends of the same queue share its state. A Store
// is safe for concurrent use.
type Store struct {
	path    string
	options Options
	file    *file
	commits committer
	server  *server // nil without Options.Socket

	// view is held for reading by readers of file and memory, and for writing by a commit while it
	// changes both. view is taken before partition.mu.
	view sharedLock

	inUse sharedLock // held for reading by backups and openings of queues; Close locks it

	writing sync.Mutex // held for a write transaction, and while a failed one is verified
	closed  atomic.Bool
	failed  atomic.Pointer[error] // why the store has failed; set once

	mu       sync.Mutex // not held during a transaction
	queues   map[string]*queue
	openings map[string]*opening
}

// opening is the loading of a queue, which runs to its end even if all its callers give up.
type opening struct {
	done chan struct{}
	err  error
}

var _ driver.Store = (*Store)(nil)

// Open opens the file of a store, and creates the file if there is none. Its directory must exist.
//
// Open returns [driver.ErrInvalid] if an option or the path is not accepted, [driver.ErrLocked] if
// another process or another Store has the file open, [driver.ErrVersion] if the file is of another
// kind or format version, and [ErrCorrupt] if it is damaged. After an error the file is neither
// open nor locked.
//
// Open reads the pages of an existing file, see Options.SkipCheck, in O(n) for n pages in use.
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
	s := &Store{path: path, options: o, file: f, queues: make(map[string]*queue), openings: make(map[string]*opening)}
	s.commits.start(s)
	if o.Socket {
		if s.server, err = listen(s); err != nil {
			return nil, fmt.Errorf("boltstore: open %q: %w", path, errors.Join(err, s.Close()))
		}
	}
	return s, nil
}

// Close waits for the commit under way and for the requests waiting for the next one, and closes
// the file. Later calls return [driver.ErrClosed]. Claimed messages are scheduled again when the
// file is next opened. A second Close waits for the same commits and returns nil.
//
// Close gives up if a commit has been under way for a minute, or if a call that reads or opens a
// queue, such as Backup, does not end within a minute. Close then returns [driver.ErrBroken], and
// the file stays locked until the process ends.
func (s *Store) Close() error {
	again := s.closed.Swap(true)
	if s.server != nil {
		s.server.close()
	}
	stopped := s.commits.stop()
	if again {
		return nil
	}
	s.mu.Lock() // no opening starts once closed is set and mu was taken
	for _, q := range s.queues {
		q.hints.Stop()
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(context.Background(), s.options.stall, errReading)
	defer cancel()
	// No reader is left once both locks are held.
	if err := errors.Join(stopped, s.view.lock(ctx), s.inUse.lock(ctx)); err != nil {
		return fmt.Errorf("boltstore: close %q: %w; the file stays locked until the process ends",
			s.path, err)
	}
	defer s.view.unlock()
	if err := s.file.close(); err != nil {
		return fmt.Errorf("boltstore: close %q: %w", s.path, err)
	}
	return nil
}

var errReading = fmt.Errorf("%w: a call that reads or opens a queue does not return", driver.ErrBroken)

// usable returns the reason why the store cannot be used, or nil.
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

// fail makes all later calls return [driver.ErrBroken], because file and memory may differ or the
// file cannot be written.
func (s *Store) fail(cause error) {
	err := fmt.Errorf("boltstore: %w: close the store and open %q again, in a new process if it stays locked: %w",
		driver.ErrBroken, s.path, cause)
	s.failed.CompareAndSwap(nil, &err)
}

// read runs f in a transaction that sees the file as of the last synced commit, and the memory of
// the same commit.
func (s *Store) read(ctx context.Context, f func(tx *bolt.Tx) error) error {
	if err := s.view.rLock(ctx, s.commits.stalled); err != nil {
		return errors.Join(s.usable(ctx), err)
	}
	defer s.view.rUnlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	err := s.file.view(f)
	if s.file.stuck.Load() || isSystemError(err) {
		s.fail(err)
		return *s.failed.Load()
	}
	return err
}

// isSystemError reports whether the system has refused to read or write the file for a reason other
// than lack of space.
func isSystemError(err error) bool {
	return errors.Is(err, driver.ErrBroken) && !errors.Is(err, ErrCorrupt)
}

// update runs f in a write transaction of its own, without the committer. It is for work that
// concerns no open queue. update returns an error of f as it is. Any other error except
// [driver.ErrFull] ends the use of the store, unless the file is damaged.
func (s *Store) update(f func(tx *bolt.Tx) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	defer time.AfterFunc(s.options.stall, s.commits.stall).Stop()
	var refused error
	_, err := s.file.update(func(tx *bolt.Tx) error {
		if refused = f(tx); refused != nil {
			return refused
		}
		return tx.Commit()
	})
	err = classify(err)
	if s.file.stuck.Load() || refused == nil && isSystemError(err) {
		s.fail(err)
		return *s.failed.Load()
	}
	return err
}

// Open creates a queue or joins an existing one, see [driver.Store]. The limits of dead letters in
// config apply to the calls to this backend. Opening a queue counts one more crash of each message
// that had begun when a process crashed or closed the store.
//
// If the queue is not open yet, Open takes a few commits, and time for each partition and for each
// message that had begun, but not for other messages. If ctx ends first, Open returns its cause,
// and loading the queue continues in the background. Open returns [driver.ErrInvalid] for a config
// that is not accepted, [driver.ErrNoQueue] if config.Existing is true and the file has no such
// queue, [driver.ErrPartitions] if the queue has another number of partitions, [driver.ErrFull] if
// the file cannot grow, and [ErrCorrupt] if it is damaged.
func (s *Store) Open(ctx context.Context, config driver.Config) (driver.Backend, error) {
	if err := config.Check(); err != nil {
		return nil, fmt.Errorf("boltstore: %w", err)
	}
	q, err := s.queue(ctx, config)
	if err != nil {
		return nil, err
	}
	if n := len(q.partitions); config.Partitions != 0 && config.Partitions != n {
		return nil, partitionsError(config.Queue, n, config.Partitions)
	}
	return &backend{store: s, queue: q, limits: local.NewDeadLimits(&config)}, nil
}

// queue returns an open queue, and opens it if necessary. Concurrent callers for the same queue
// wait for the first one, and try again themselves if it fails. If ctx ends first, loading the
// queue continues.
func (s *Store) queue(ctx context.Context, config driver.Config) (*queue, error) {
	for {
		q, o, mine, err := s.join(ctx, config)
		if q != nil || err != nil {
			return q, err
		}
		select {
		case <-o.done:
		case <-s.commits.stalled:
			return nil, *s.failed.Load()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if mine && o.err != nil {
			return nil, o.err
		}
	}
}

// join returns an open queue, or its opening. If there is neither, join starts an opening, and mine
// is true.
func (s *Store) join(ctx context.Context, config driver.Config) (q *queue, o *opening, mine bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, nil, false, err
	}
	q, o = s.queues[config.Queue], s.openings[config.Queue]
	if q != nil || o != nil {
		return q, o, false, nil
	}
	if err := s.inUse.rLock(ctx, s.commits.stalled); err != nil { // open until s is closed
		return nil, nil, false, err
	}
	o = &opening{done: make(chan struct{})}
	s.openings[config.Queue] = o
	go s.load(config, o)
	return nil, o, true, nil
}

func (s *Store) load(config driver.Config, o *opening) {
	defer s.inUse.rUnlock()
	q := &queue{store: s, name: config.Queue}
	err := q.load(config)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		o.err = fmt.Errorf("boltstore: open queue %q in %q: %w", config.Queue, s.path, err)
	} else {
		s.queues[config.Queue] = q
	}
	delete(s.openings, config.Queue)
	close(o.done)
}

func partitionsError(queue string, has, asked int) error {
	return fmt.Errorf("%w: queue %q has %d, %d were asked for",
		driver.ErrPartitions, queue, has, asked)
}

// sharedLock is a lock with one writer and many readers. A reader stops waiting when its context
// ends. The zero value is unlocked.
type sharedLock struct {
	mu      sync.Mutex
	readers int
	writer  chan struct{} // closed by unlock; nil if there is no writer
	empty   chan struct{} // closed when the last reader leaves; nil if no writer waits for it
}

// rLock adds a reader, which rUnlock removes. It returns an error if ctx ends or the writer stalls.
func (l *sharedLock) rLock(ctx context.Context, stalled <-chan struct{}) error {
	for {
		l.mu.Lock()
		writer := l.writer
		if writer == nil {
			l.readers++
			l.mu.Unlock()
			return nil
		}
		l.mu.Unlock()
		select {
		case <-writer:
		case <-stalled:
			return errStalled
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (l *sharedLock) rUnlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readers--; l.readers == 0 && l.empty != nil {
		close(l.empty)
		l.empty = nil
	}
}

// lock keeps new readers out and waits until all readers have left; unlock admits readers again.
// Only one goroutine at a time may call lock. If ctx ends first, lock returns its cause and readers
// stay locked out.
func (l *sharedLock) lock(ctx context.Context) error {
	l.mu.Lock()
	l.writer = make(chan struct{})
	empty := make(chan struct{})
	if l.readers == 0 {
		l.mu.Unlock()
		return nil
	}
	l.empty = empty
	l.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *sharedLock) unlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.writer)
	l.writer = nil
}

// Options are the options of [Open]. The zero value of each field means its default.
type Options struct {
	// Now returns the time of the clock, and must be safe for concurrent use. Nil means time.Now.
	Now func() time.Time

	// LockTimeout is how long Open waits for another process that has the file open. Zero means one
	// second. If LockTimeout is negative, Open does not wait.
	LockTimeout time.Duration

	// NoSync leaves out every fsync, for tests. If the machine stops, stored messages may be lost
	// and the file may be damaged beyond repair. A crash of the process alone loses nothing.
	NoSync bool

	// FileMode is the mode of a new file, before the umask. Zero means 0600. Open returns
	// [driver.ErrInvalid] for a mode that does not let the owner read and write, or has bits other
	// than permission bits.
	FileMode fs.FileMode

	// SkipCheck leaves out the check of the pages in Open. The check reads the file once: it takes
	// about 0.1 s for a million messages in the page cache, otherwise as long as the disk needs to
	// read the file. Without the check, a damaged file may end the process (bbolt recurses until
	// the stack overflows) or exhaust its memory.
	SkipCheck bool

	// Socket serves the queues to other processes on a Unix socket. The path of the socket is the
	// path of the file and ".sock", and it has the permissions of the file. delayq uses the socket
	// of a file that is in use, and programs use it with [Connect]. The system limits the path to
	// about 90 bytes. If another kind of file has the path of the socket, Open returns
	// [driver.ErrInvalid].
	Socket bool

	stall   time.Duration // a commit that takes longer has failed, see stallTimeout
	maxSize int           // limit of the file in bytes, for tests of a full disk; 0: none
	maxFree int           // see the constant
	reserve int           // bytes of the reserve, see the constant
}

func (o Options) withDefaults() (Options, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = time.Second
	}
	if o.FileMode == 0 {
		o.FileMode = 0o600
	}
	if o.maxFree == 0 {
		o.maxFree = maxFree
	}
	if o.stall == 0 {
		o.stall = stallTimeout
	}
	if o.reserve == 0 {
		o.reserve = reserveBytes
	}
	if o.FileMode&^fs.ModePerm != 0 || o.FileMode&0o600 != 0o600 {
		return o, fmt.Errorf("%w FileMode %v; it must be permission bits that let the owner read and write, or 0 for 0600",
			driver.ErrInvalid, o.FileMode)
	}
	return o, nil
}

// stallTimeout is how long calls wait for a commit under way. A disk that takes longer has failed.
const stallTimeout = time.Minute

// queue is the state that the backends of a queue share.
type queue struct {
	store      *Store
	name       string
	partitions []*partition
	members    local.Members
	hints      local.Hints
}

// load creates the queue in the file if it does not exist, and reads the part of the queue that is
// kept in memory.
func (q *queue) load(config driver.Config) error {
	n := 0
	err := q.step(func(tx *bolt.Tx) (err error) {
		n, err = q.create(tx, config)
		return err
	})
	for more := true; more && err == nil; {
		err = q.step(func(tx *bolt.Tx) (err error) {
			more, err = q.countCrashesAtOpen(tx, n)
			return err
		})
	}
	if err != nil {
		return err
	}
	parts := make([]*partition, n)
	err = q.step(func(tx *bolt.Tx) error {
		for i := range parts {
			if parts[i], err = q.loadPartition(tx, i); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		q.partitions = parts
	}
	return err
}

// step runs f in a transaction of load. It returns an error if the store was closed meanwhile.
func (q *queue) step(f func(tx *bolt.Tx) error) error {
	if err := q.store.usable(context.Background()); err != nil {
		return err
	}
	return q.store.updateWithReserve(f)
}

// create creates the buckets of a queue, or reads the number of its partitions if it exists.
func (q *queue) create(tx *bolt.Tx, config driver.Config) (int, error) {
	partitions := config.Partitions
	if b := queueBucket(tx, q.name); b != nil {
		n := b.Get(keyPartitions)
		if len(n) != 8 || binary.BigEndian.Uint64(n)-1 >= driver.MaxPartitions {
			return 0, fmt.Errorf("%w: the number of partitions is %x", ErrCorrupt, n)
		}
		has := int(binary.BigEndian.Uint64(n))
		if partitions != 0 && partitions != has {
			return 0, partitionsError(q.name, has, partitions)
		}
		return has, nil
	}
	if config.Existing {
		return 0, driver.ErrNoQueue
	}
	if partitions == 0 {
		partitions = driver.DefaultPartitions
	}
	b, err := tx.Bucket(bucketQueues).CreateBucket([]byte(q.name))
	if err == nil {
		err = b.Put(keyPartitions, binary.BigEndian.AppendUint64(nil, uint64(partitions)))
	}
	if err == nil {
		err = b.Put(keyCreated, binary.BigEndian.AppendUint64(nil, uint64(local.Floor(q.store.options.Now()))))
	}
	for i := 0; i < partitions && err == nil; i++ {
		err = createPartition(b, i)
	}
	return partitions, err
}

func createPartition(queue *bolt.Bucket, i int) error {
	b, err := queue.CreateBucket(partitionName(i))
	if err != nil {
		return err
	}
	var parts buckets
	for _, p := range parts.all() {
		if _, err := b.CreateBucket(p.name); err != nil {
			return err
		}
	}
	return b.Put(keyState, (&state{tokens: 1}).encode())
}

// countCrashesAtOpen counts a crash of each message in the bucket "begun", and empties the bucket.
// It stops after crashBytes and reports whether messages are left. The next claim buries a message
// with too many crashes, see record.suspect.
func (q *queue) countCrashesAtOpen(tx *bolt.Tx, partitions int) (more bool, err error) {
	written := 0
	for i := range partitions {
		b, err := q.buckets(tx, i)
		if err != nil {
			return false, err
		}
		s, err := decodeState(b.root.Get(keyState))
		if err != nil {
			return false, fmt.Errorf("partition %d: %w", i, err)
		}
		before := s.crashed
		c := b.begun.Cursor()
		for k, _ := c.First(); k != nil && !more; k, _ = c.First() {
			id := string(k)
			written += crashCost
			if r, err := decode(id, b.records.Get(k)); err == nil && r.State == driver.StateScheduled {
				r.Crashes, r.last, r.suspect = increment(r.Crashes), 0, true
				s.crashed++
				written += len(r.Body)
				if err := b.records.Put([]byte(id), r.encode()); err != nil {
					return false, err
				}
			}
			if err := b.begun.Delete([]byte(id)); err != nil {
				return false, err
			}
			more = written > crashBytes
		}
		if s.crashed != before {
			err = b.root.Put(keyState, s.encode())
		}
		if err != nil || more {
			return more, err
		}
	}
	return false, nil
}

// A transaction of countCrashesAtOpen ends after crashBytes bytes. Each message counts as crashCost
// on top of its body, because for each message bbolt walks again over the keys that the transaction
// has deleted.
const (
	crashBytes = 32 << 20
	crashCost  = 4 << 10
)

// backend is one opener's view of a queue.
type backend struct {
	store  *Store
	queue  *queue
	limits local.DeadLimits
	remote bool // its calls come from another process, so they may arrive twice: see once
}

var _ driver.Backend = (*backend)(nil)

// GroupsCalls tells package durable that concurrent calls share commits, see committer.
func (b *backend) GroupsCalls() {}

func (b *backend) Partitions() int { return len(b.queue.partitions) }

// callOf returns the call to remember. Calls from this process are not remembered, because their
// answers cannot be lost.
func (b *backend) callOf(c *driver.Call) driver.Call {
	if !b.remote {
		return driver.Call{}
	}
	return *c
}

// enter checks that the store can be used, and returns a partition. Each call starts with enter.
func (b *backend) enter(ctx context.Context, index int) (*partition, error) {
	if err := b.store.usable(ctx); err != nil {
		return nil, err
	}
	return b.queue.partitions[index], nil
}

// Put waits for a commit, which it shares with concurrent calls. It is O(log n) for each message.
// Put returns [driver.ErrFull] if the file cannot grow.
func (b *backend) Put(ctx context.Context, put driver.Put) ([]driver.Status, error) {
	p, err := b.enter(ctx, put.Partition)
	if err != nil || len(put.Items) == 0 {
		return nil, err
	}
	r := &request{p: p, ids: make([]string, len(put.Items)), grows: true}
	for i := range put.Items {
		r.ids[i] = put.Items[i].ID
		r.bytes += len(put.Items[i].Body)
	}
	var statuses []driver.Status
	var late *driver.LateError
	call := b.callOf(&put.Call)
	r.run = func(w *partitionWriter) (err error) {
		statuses, late, err = w.once(&call, len(put.Items), func() ([]driver.Status, error) { return w.put(&put) })
		return err
	}
	if err := b.store.commits.do(ctx, r); err != nil {
		return nil, err
	}
	if late != nil {
		return nil, fmt.Errorf("boltstore: put to queue %q, partition %d: %w",
			b.queue.name, put.Partition, late)
	}
	return statuses, nil
}

// Apply waits for a commit as [backend.Put] does. Begin and Extend do not wait, and neither does a
// Release of a message that has not begun, unless a commit of the same message is under way.
func (b *backend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	if err := batch.Op.Check(); err != nil {
		return nil, fmt.Errorf("boltstore: %w", err)
	}
	p, err := b.enter(ctx, batch.Partition)
	if err != nil || len(batch.Changes) == 0 {
		return nil, err
	}
	switch batch.Op {
	case driver.OpBegin, driver.OpExtend, driver.OpRelease:
		outcomes, done, err := b.applyInMemory(ctx, p, &batch)
		if done || err != nil {
			return outcomes, err
		}
	}
	r := &request{p: p, ids: make([]string, len(batch.Changes)), grows: batch.Op == driver.OpReplay}
	for i := range batch.Changes {
		r.ids[i] = batch.Changes[i].ID
	}
	var outcomes []driver.Outcome
	var late *driver.LateError
	call := driver.Call{}
	if batch.Op >= driver.OpCancel && batch.Op <= driver.OpPurge {
		call = b.callOf(&batch.Call)
	}
	r.run = func(w *partitionWriter) (err error) {
		var statuses []driver.Status
		outcomes = nil
		statuses, late, err = w.once(&call, len(batch.Changes), func() (statuses []driver.Status, err error) {
			outcomes, err = w.apply(&batch, b.limits)
			if call.Caller != "" {
				for i := range outcomes {
					statuses = append(statuses, outcomes[i].Status)
				}
			}
			return statuses, err
		})
		if outcomes == nil { // the call was repeated
			for _, s := range statuses {
				outcomes = append(outcomes, driver.Outcome{Status: s, Now: w.now})
			}
		}
		return err
	}
	if err := b.store.commits.do(ctx, r); err != nil {
		return nil, err
	}
	if late != nil {
		return nil, fmt.Errorf("boltstore: %v in queue %q, partition %d: %w",
			batch.Op, b.queue.name, batch.Partition, late)
	}
	return outcomes, nil
}

// Pause waits for a commit as [backend.Put] does.
func (b *backend) Pause(ctx context.Context, pause driver.Pause) error {
	p, err := b.enter(ctx, pause.Partition)
	if err != nil {
		return err
	}
	var late *driver.LateError
	call := b.callOf(&pause.Call)
	err = b.store.commits.do(ctx, &request{p: p, run: func(w *partitionWriter) (err error) {
		_, late, err = w.once(&call, 0, func() ([]driver.Status, error) {
			w.pause(pause.Paused)
			return nil, nil
		})
		return err
	}})
	if err == nil && late != nil {
		return fmt.Errorf("boltstore: pause of queue %q, partition %d: %w",
			b.queue.name, pause.Partition, late)
	}
	return err
}

// Heartbeat is O(m log m) for m members.
func (b *backend) Heartbeat(ctx context.Context, member driver.Member, ttl time.Duration) ([]string, error) {
	if err := b.store.usable(ctx); err != nil {
		return nil, err
	}
	return b.queue.members.Beat(b.store.options.Now(), member, ttl), nil
}

// Members is O(m log m) for m members.
func (b *backend) Members(ctx context.Context) ([]driver.Member, error) {
	if err := b.store.usable(ctx); err != nil {
		return nil, err
	}
	return b.queue.members.List(b.store.options.Now()), nil
}

// Watch buffers 256 hints for each watcher. Later hints are lost while the buffer is full.
func (b *backend) Watch(ctx context.Context) (<-chan driver.Hint, error) {
	if err := b.store.usable(ctx); err != nil {
		return nil, err
	}
	return b.queue.hints.Watch(ctx), nil
}
