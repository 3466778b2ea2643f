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

	copies gate // entered by backups and by queues that are opened, and held by Close

	writing sync.Mutex // held for a write transaction, and for finding out whether one that has failed can be seen
	closed  atomic.Bool
	failed  atomic.Pointer[error] // why the store cannot be used any more; it does not change

	mu       sync.Mutex // no transaction is made under it
	queues   map[string]*queue
	openings map[string]*opening
}

// opening is the loading of a queue. It ends by itself, whatever becomes of those who wait for it.
type opening struct {
	done chan struct{}
	err  error
}

var _ driver.Store = (*Store)(nil)

// Open opens the file of a store, and makes it if there is none; its directory must exist. A path that no
// file of a store can have is [driver.ErrInvalid], one that another process or another Store has open
// [driver.ErrLocked], a file of another kind or format version, [driver.ErrVersion], and a
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
	s := &Store{path: path, options: o, file: f, queues: make(map[string]*queue), openings: make(map[string]*opening)}
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
// Close does not wait for a commit that has been under way for a minute, or for a call that reads or opens a queue, such
// as Backup, and does not end within a minute. It returns [driver.ErrBroken] then, and the file stays locked until the
// process ends.
func (s *Store) Close() error {
	again := s.closed.Swap(true)
	if s.server != nil {
		s.server.close()
	}
	stopped := s.commits.stop()
	if again {
		return nil
	}
	s.mu.Lock() // from here on no opening begins
	for _, q := range s.queues {
		q.hints.Stop()
	}
	s.mu.Unlock()
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

var errReading = fmt.Errorf("%w: a call that reads or opens a queue does not end", driver.ErrBroken)

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
	if s.file.stuck.Load() || isSystemError(err) {
		s.fail(err)
		return *s.failed.Load()
	}
	return err
}

// isSystemError reports whether the system has refused to read or write the file, for another reason than space.
func isSystemError(err error) bool {
	return errors.Is(err, driver.ErrBroken) && !errors.Is(err, ErrCorrupt)
}

// update makes a transaction of its own, without the committer; for what is not under way yet. An error of f
// is returned; every other one but [driver.ErrFull] ends the use of the store, unless the file is damaged.
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

// Open makes a queue or joins one that exists, see [driver.Store]. The limits of dead letters in config hold for what is
// done through this backend. What had begun when a process crashed counts one crash more when its queue is opened. Open takes
// a few commits where the queue is not open yet, and time for each of its partitions and for each message that had begun,
// none for others. If ctx ends before, Open returns its cause, and the queue is loaded all the same.
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

// queue returns a queue that is open, and opens it if it is not. Callers that ask for the same queue meanwhile wait for the
// first one, and try themselves if it fails. The queue is loaded to the end if ctx ends before.
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

// join returns a queue that is open, or its opening, which it starts if there is none.
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
	if err := s.copies.enter(ctx, s.commits.stalled); err != nil { // the gate is open until s is closed
		return nil, nil, false, err
	}
	o = &opening{done: make(chan struct{})}
	s.openings[config.Queue] = o
	go s.load(config, o)
	return nil, o, true, nil
}

func (s *Store) load(config driver.Config, o *opening) {
	defer s.copies.leave()
	q := &queue{store: s, name: config.Queue}
	err := q.load(config.Partitions)
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

// Options are those of [Open]. The zero value of each field stands for its default.
type Options struct {
	// Now is the clock, which may be called from many goroutines. Nil: time.Now.
	Now func() time.Time

	// LockTimeout is how long Open waits for another process that has the file open. Defaults to one second; negative: it does not wait.
	LockTimeout time.Duration

	// NoSync leaves out every fsync. It is unsafe: what was stored may be lost, and the file damaged beyond repair, when the machine stops. A crash
	// of the process alone loses nothing. For tests.
	NoSync bool

	// FileMode is that of a file that is made. Defaults to 0600.
	FileMode fs.FileMode

	// SkipCheck leaves out the check of the pages in Open, which reads the file once: about 0.1 s for a million
	// messages that the system has in memory, otherwise as long as the disk takes for the file. Without the check
	// damage may end the process (bbolt recurses until the stack overflows) or take all of its memory.
	SkipCheck bool

	// Socket serves the queues to other processes on a Unix socket, whose path is that of the file and ".sock", with
	// the permissions of the file. delayq uses it for a file that is in use, and programs use it with [Connect]. The
	// system bounds the length of the path to about 90 bytes. A file at the socket's path that is no socket is
	// [driver.ErrInvalid].
	Socket bool

	stall   time.Duration // after which a commit has failed, see stallTimeout
	maxSize int           // of the file in bytes, for tests of a full disk; 0: no limit
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
		return o, fmt.Errorf("%w FileMode %v: permission bits that let the owner read and write are accepted, and 0 for 0600",
			driver.ErrInvalid, o.FileMode)
	}
	return o, nil
}

// stallTimeout is how long calls wait for a commit that is under way. A disk that takes longer has failed.
const stallTimeout = time.Minute

// queue is what all backends of one queue share.
type queue struct {
	store      *Store
	name       string
	partitions []*partition
	members    local.Members
	hints      local.Hints
}

// load makes the queue in the file if it is not there, and reads what the memory holds of it.
func (q *queue) load(partitions int) error {
	n := 0
	err := q.step(func(tx *bolt.Tx) (err error) {
		n, err = q.create(tx, partitions)
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

// step is a transaction of load, unless the store is closed meanwhile.
func (q *queue) step(f func(tx *bolt.Tx) error) error {
	if err := q.store.usable(context.Background()); err != nil {
		return err
	}
	return q.store.updateWithReserve(f)
}

// create makes the buckets of a queue, or finds how many partitions it has.
func (q *queue) create(tx *bolt.Tx, partitions int) (int, error) {
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

// countCrashesAtOpen counts a crash of what had begun, as noted in the file, and removes the notes. It stops after crashBytes, and reports
// whether there is more. The next claim decides what had too many, see record.suspect.
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
				r.Crashes, r.last, r.suspect = counted(r.Crashes), 0, true
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

// A transaction of countCrashesAtOpen ends after so many bytes. Each note counts as some, since what has been deleted in a transaction is walked over
// again for each note that follows.
const (
	crashBytes = 32 << 20
	crashCost  = 4 << 10
)

// backend is a queue as one of those sees it who have opened it.
type backend struct {
	store  *Store
	queue  *queue
	limits local.DeadLimits
	remote bool // its calls come from another process, so copies of them may arrive: see once
}

var _ driver.Backend = (*backend)(nil)

// GroupsCalls says that calls share commits, see committer.
func (b *backend) GroupsCalls() {}

func (b *backend) Partitions() int { return len(b.queue.partitions) }

// callOf is the call to remember. The process itself cannot lose an answer, so its own calls are not remembered.
func (b *backend) callOf(c *driver.Call) driver.Call {
	if !b.remote {
		return driver.Call{}
	}
	return *c
}

// enter is what each call begins with.
func (b *backend) enter(ctx context.Context, index int) (*partition, error) {
	if err := b.store.usable(ctx); err != nil {
		return nil, err
	}
	return b.queue.partitions[index], nil
}

// Put waits for a commit, which all that is put, acknowledged and so on at the same time shares. It is O(log n) for each message. Where the file
// cannot grow it is [driver.ErrFull].
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
		return nil, fmt.Errorf("boltstore: put to queue %q, partition %d: %w", b.queue.name, put.Partition, late)
	}
	return statuses, nil
}

// Apply waits for a commit as [backend.Put] does, but for Begin, Extend, and Release of what has not begun: these wait only where a
// commit of the same message is under way.
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
		if outcomes == nil { // a copy
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
		return nil, fmt.Errorf("boltstore: %v in queue %q, partition %d: %w", batch.Op, b.queue.name, batch.Partition, late)
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
		return fmt.Errorf("boltstore: pause of queue %q, partition %d: %w", b.queue.name, pause.Partition, late)
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

// Watch keeps 256 hints that nobody has received; others are lost.
func (b *backend) Watch(ctx context.Context) (<-chan driver.Hint, error) {
	if err := b.store.usable(ctx); err != nil {
		return nil, err
	}
	return b.queue.hints.Watch(ctx), nil
}
