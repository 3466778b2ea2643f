package pebblestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
	"github.com/timingwheel-go/timingwheel/durable/internal/remote"
)

// ErrCorrupt means that the directory is damaged. The error names the file.
var ErrCorrupt = local.ErrCorrupt

const (
	defaultMemory = 128 << 20
	minMemory     = 8 << 20
)

// Options configures [Open]. The zero value is ready to use.
type Options struct {
	// Memory is the size of the block cache and the memtables together, in bytes: at least 8 MiB. 0
	// means 128 MiB. The process needs some more, mostly for the messages in flight.
	Memory int64

	// Socket makes the store serve other processes: see [Connect]. It creates a Unix socket in the
	// directory, whose path may have about 80 bytes. Processes that may enter and change the
	// directory may use the socket.
	Socket bool

	// Logger receives the messages of the store. Nil means slog.Default().
	Logger *slog.Logger

	// NoSync makes no call wait for a sync. A crash of the process then loses the changes that are
	// still buffered, up to 32 KiB of any age. A power failure may also lose what the system has
	// not written yet.
	NoSync bool

	// For tests. Nil means the clock and the file system of the system.
	now func() time.Time
	fs  vfs.FS
}

// Store is a directory of queues that is open in this process. It is safe for concurrent use.
type Store struct {
	dir     string
	options Options
	shared  local.Shared
	lock    io.Closer      // nil on a read-only file system
	server  *remote.Server // nil without Options.Socket
	client  *remote.Client // to the process that has the directory open; otherwise nil
	reading bool           // the store is a snapshot
	source  string         // the directory of which dir is a copy that Close removes

	mu      sync.Mutex
	current *engine // nil while the directory is being opened again
	failure error   // why it is nil
	closed  chan struct{}

	ended    chan struct{} // closed when supervise has ended
	closeErr error         // of the last engine; set before ended is closed
}

var _ driver.Store = (*Store)(nil)

// Open opens the directory dir, and creates it if it does not exist. The errors are
// [driver.ErrInvalid] for options out of range and for a path that cannot be such a directory,
// [driver.ErrLocked] if another process has it open, [driver.ErrVersion] if it has another format,
// and [ErrCorrupt] if it is damaged. Open takes a time that depends on the changes since the last
// memtable was written, not on the number of messages.
func Open(dir string, options Options) (*Store, error) {
	s, err := newStore(dir, options)
	if err != nil {
		return nil, err
	}
	if err := s.makeDir(); err != nil {
		return nil, err
	}
	if err := s.inspect(); err != nil {
		return nil, err
	}
	if s.lock, err = s.acquire(); err != nil {
		return nil, err
	}
	removeCopies(s.options.fs, dir)
	return s.start()
}

// newStore checks options.
func newStore(dir string, options Options) (*Store, error) {
	switch {
	case options.Memory == 0:
		options.Memory = defaultMemory
	case options.Memory < minMemory:
		return nil, fmt.Errorf("pebblestore: %w Memory %d; it must be at least %d bytes, or 0 for %d",
			driver.ErrInvalid, options.Memory, minMemory, defaultMemory)
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	if options.now == nil {
		options.now = time.Now
	}
	if options.fs == nil {
		options.fs = vfs.Default
	}
	return &Store{dir: dir, options: options, closed: make(chan struct{}), ended: make(chan struct{})}, nil
}

// start opens the locked directory, and the socket.
func (s *Store) start() (*Store, error) {
	e, err := s.open()
	if err != nil {
		return nil, errors.Join(err, s.unlock())
	}
	s.current = e
	go s.supervise(e)
	if s.options.Socket {
		if err := s.listen(); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// unlock unlocks the directory. A read-only file system has no lock.
func (s *Store) unlock() error {
	if s.lock == nil {
		return nil
	}
	_ = s.options.fs.Remove(s.options.fs.PathJoin(s.dir, ownerName))
	return s.lock.Close()
}

// makeDir creates the directory, or checks that it is one.
func (s *Store) makeDir() error {
	info, err := s.options.fs.Stat(s.dir)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("pebblestore: %w path: %q is a file; it must be a directory, or not exist",
			driver.ErrInvalid, s.dir)
	case errors.Is(err, fs.ErrNotExist):
		err = s.options.fs.MkdirAll(s.dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("pebblestore: %w path: %w; it must be a directory that this user may read and write",
			driver.ErrInvalid, err)
	}
	return nil
}

// inspect returns [driver.ErrVersion] for a directory with files of other programs.
func (s *Store) inspect() error {
	found, err := pebble.Peek(s.dir, s.options.fs)
	if err != nil {
		return s.openError(err)
	}
	if !found.Exists {
		names, err := s.options.fs.List(s.dir)
		if err != nil {
			return s.openError(err)
		}
		for _, name := range names {
			if !ownNames.MatchString(name) {
				return fmt.Errorf("pebblestore: %q: %w: it has the file %q, and must be empty or the directory of a store",
					s.dir, driver.ErrVersion, name)
			}
		}
	}
	if found.OptionsFilename == "" {
		return nil
	}
	b, err := s.read(found.OptionsFilename)
	if err != nil {
		return s.openError(err)
	}
	_, merger, ok := strings.Cut(string(b), "\n  merger=")
	if ok && !strings.HasPrefix(merger, numbers.Name+"\n") {
		return fmt.Errorf("pebblestore: %q: %w: it is the database of another program", s.dir, driver.ErrVersion)
	}
	return nil
}

// read returns the content of a file.
func (s *Store) read(name string) ([]byte, error) {
	f, err := s.options.fs.Open(name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	return b, errors.Join(err, f.Close())
}

// ownNames matches the names of the files of a store, which may be there without the store if its
// creation was interrupted.
var ownNames = regexp.MustCompile(`^(timingwheel\.(lock|owner|sock|copy-.*)|LOCK|lost\+found|marker\..*|` +
	`(MANIFEST|OPTIONS)-\d+.*|temporary\..*|\d+(-\d+)?\.(log|sst|blob|dbtmp))$`)

// errEnded is the error of a function if Pebble has ended its goroutine.
var errEnded = errors.New("a fatal error of Pebble")

// guard runs f on a goroutine of its own, because a fatal error of Pebble ends the goroutine. It
// returns the error of f or of a panic of Pebble.
func guard(f func() error) error {
	err, done := errEnded, make(chan struct{})
	go func() {
		defer close(done)
		defer recoverError(&err)
		err = f()
	}()
	<-done
	return err
}

// recoverError sets err to the error with which Pebble has panicked. Some of its functions do so
// instead of returning the error.
func recoverError(err *error) {
	switch r := recover().(type) {
	case nil:
	case runtime.Error:
		panic(r)
	case error:
		*err = r
	default:
		panic(r)
	}
}

// open opens the directory with Pebble.
func (s *Store) open() (e *engine, err error) {
	err = guard(func() (err error) {
		e, err = s.openEngine()
		return err
	})
	return e, err
}

// openAgain opens the directory, and does not create it if the disk is no longer mounted.
func (s *Store) openAgain() (*engine, error) {
	found, err := pebble.Peek(s.dir, s.options.fs)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !found.Exists:
		return nil, fmt.Errorf("pebblestore: %q: %w: the files are gone", s.dir, driver.ErrBroken)
	case err != nil:
		return nil, s.openError(err)
	}
	return s.open()
}

// pebbleOptions returns the options with which Pebble opens the directory for an engine.
func (s *Store) pebbleOptions(e *engine, cache *pebble.Cache) *pebble.Options {
	o := &pebble.Options{
		FS:     engineFS{s.options.fs, e},
		Cache:  cache,
		Logger: &logger{s.options.Logger, e.fail},
		Merger: numbers,

		MemTableSize:          uint64(s.options.Memory / 8), //nolint:gosec // positive
		L0CompactionThreshold: 8, L0StopWritesThreshold: 24, LBaseMaxBytes: 64 << 20,
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 }, // 2 if the first is behind
		FormatMajorVersion:         pebble.FormatNewest,
		ReadOnly:                   s.lock == nil,
	}
	for i := range o.Levels {
		if i < len(o.Levels)-1 { // the filters of most keys would not fit into the cache
			o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		}
		o.Levels[i].BlockSize = 8 << 10
		o.TargetFileSizes[i] = 4 << 20 << (i / 3) // a compaction of large files delays that of level 0
	}
	o.EventListener = &pebble.EventListener{DataCorruption: func(info pebble.DataCorruptionInfo) {
		s.options.Logger.Error("pebblestore: a file is damaged", "file", info.Path, "error", info.Details)
		e.damaged.Store(&info.Path)
	}}
	return o
}

func (s *Store) openEngine() (*engine, error) {
	e := &engine{store: s, failed: make(chan struct{})}
	cache := pebble.NewCache(s.options.Memory)
	defer cache.Unref() // the DB has a reference
	db, err := pebble.Open(s.dir, s.pebbleOptions(e, cache))
	if err != nil {
		return nil, s.openError(cmp.Or(e.failedWith(), err)) // err may be a consequence
	}
	e.table, e.ahead.db = newTable(db), db
	e.table.reading = s.lock == nil
	if e.state, err = local.Load(e.table, "pebblestore", s.options.now, &s.shared); err != nil {
		if e.table.err != nil {
			err = e.readError(err)
		}
		return nil, errors.Join(fmt.Errorf("pebblestore: %q: %w", s.dir, err), e.closeDB())
	}
	if err := e.failedWith(); err != nil {
		return nil, errors.Join(s.openError(err), e.closeDB())
	}
	e.start()
	return e, nil
}

// openError gives an error of Pebble its kind.
func (s *Store) openError(err error) error {
	kind := driver.ErrBroken
	switch {
	case pebble.IsCorruptionError(err) || errors.Is(err, fs.ErrNotExist) ||
		strings.Contains(err.Error(), "size mismatch"):
		kind = ErrCorrupt
	case errors.Is(err, fs.ErrPermission):
		kind = driver.ErrInvalid
	case strings.Contains(err.Error(), "unknown format major version"):
		kind = driver.ErrVersion
	}
	return fmt.Errorf("pebblestore: %q: %w: %w", s.dir, kind, err)
}

// supervise closes each engine that fails and opens the next one, until the store is closed.
func (s *Store) supervise(e *engine) {
	defer close(s.ended)
	for e != nil {
		select {
		case <-s.closed:
			s.closeErr = e.close()
			return
		case <-e.failed:
			e = s.reopen(e)
		}
	}
}

// reopen closes a failed engine and opens the directory again until that succeeds. It returns nil
// if the store is closed.
func (s *Store) reopen(e *engine) *engine {
	s.mu.Lock()
	s.current, s.failure = nil, e.failure
	s.mu.Unlock()
	s.options.Logger.Error("the store has failed and is being opened again", "directory", s.dir, "error", e.failure)
	_ = e.close()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		next, err := s.openAgain()
		s.mu.Lock()
		if err == nil {
			s.current, s.failure = next, nil
		} else {
			s.failure = err
		}
		s.mu.Unlock()
		if err == nil {
			s.options.Logger.Info("the store is open again", "directory", s.dir)
			return next
		}
		select {
		case <-time.After(wait):
		case <-s.closed:
			return nil
		}
	}
}

// reserve returns the space that must be free for new messages: a flush and a compaction need it.
func (s *Store) reserve() uint64 {
	return uint64(max(64<<20, s.options.Memory/2)) //nolint:gosec // positive
}

// space is a measurement of the free space of the disk.
type space struct {
	measured time.Time
	low      bool
}

// lowOnSpace reports whether new messages are refused.
func (e *engine) lowOnSpace() bool {
	if now := time.Now(); now.Sub(e.space.measured) >= measureEvery {
		usage, err := e.store.options.fs.GetDiskUsage(e.store.dir)
		e.space = space{now, err == nil && usage.AvailBytes < e.store.reserve()}
	}
	return e.space.low
}

// measureEvery is how long a measurement of the free space is used. Within this time a disk cannot
// take as many bytes as the reserve has.
const measureEvery = 50 * time.Millisecond

// Open opens a queue and creates it if it does not exist: see [driver.Store]. The limits of dead
// letters in config apply to calls to this backend. Open returns [driver.ErrInvalid] for a config
// that is out of range, [driver.ErrPartitions] for a different number of partitions,
// [driver.ErrNoQueue] if config.Existing is set and the queue does not exist, and
// [driver.ErrClosed] after Close.
func (s *Store) Open(ctx context.Context, config driver.Config) (driver.Backend, error) {
	if s.client != nil {
		return s.client.Open(ctx, config)
	}
	b, err := local.Open(ctx, runner{s}, "pebblestore", s.options.now, &s.shared, config)
	if err != nil {
		return nil, err
	}
	if s.reading {
		return reader{b}, nil
	}
	return backend{b}, nil
}

// backend is a [driver.Grouper].
type backend struct{ local.Backend }

// GroupsCalls implements driver.Grouper.
func (backend) GroupsCalls() {}

// Backup writes a copy of the store to a new directory, which [Open] opens. The copy includes every
// call that returned before Backup was called, and each later call as a whole or not at all.
// Claimed messages are scheduled in the copy. A message that is firing during the backup counts one
// more crash when the copy is opened.
//
// The store stays in use. If dir is on the same file system, Backup links most files and copies
// some megabytes. The linked files keep their space until both directories have removed them.
//
// Backup returns the cause of ctx if ctx has ended at the start, [driver.ErrInvalid] if dir exists,
// and [driver.ErrClosed] or [driver.ErrUnavailable] as other calls do. After any error but
// ErrInvalid, dir does not exist.
func (s *Store) Backup(ctx context.Context, dir string) error {
	if s.client != nil {
		return s.client.Backup(ctx, dir)
	}
	e, err := runner{s}.engine(ctx)
	if err != nil {
		return err
	}
	if _, err := s.options.fs.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("pebblestore: backup: %w path %q; it must not exist", driver.ErrInvalid, dir)
	}
	// After this call, the calls that have returned are in the DB.
	if err := e.do(ctx, &local.Call{Waits: true, Do: func(*local.State) error { return nil }}); err != nil {
		return err
	}
	e.ahead.mu.RLock() // the DB is closed later
	defer e.ahead.mu.RUnlock()
	if e.ahead.db == nil {
		return fmt.Errorf("pebblestore: backup: %w: the store was closed meanwhile", driver.ErrUnavailable)
	}
	err = guard(func() error { return e.ahead.db.Checkpoint(dir, pebble.WithFlushedWAL()) })
	if errors.Is(err, fs.ErrExist) { // since the check
		return fmt.Errorf("pebblestore: backup: %w path: %w; it must not exist", driver.ErrInvalid, err)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("pebblestore: backup of %q to %q: %w", s.dir, dir, err), s.options.fs.RemoveAll(dir))
	}
	if err := e.failedWith(); err != nil { // some files may lack changes
		return errors.Join(unavailable(err), s.options.fs.RemoveAll(dir))
	}
	return nil
}

// Close closes the directory. Calls in progress are completed. Later calls to the store and its
// backends return [driver.ErrClosed]. Closing a store again has no effect.
func (s *Store) Close() error {
	if s.client != nil {
		return s.client.Close()
	}
	s.mu.Lock()
	select {
	case <-s.closed:
		s.mu.Unlock()
		<-s.ended
		return nil
	default:
		close(s.closed)
	}
	s.mu.Unlock()
	if s.server != nil {
		s.server.Close()
	}
	s.shared.Stop()
	<-s.ended
	err := errors.Join(s.closeErr, s.unlock())
	if s.source != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	if err != nil {
		return fmt.Errorf("pebblestore: close %q: %w", s.dir, err)
	}
	return nil
}

func errClosed() error { return fmt.Errorf("pebblestore: the store is %w", driver.ErrClosed) }

// runner runs the calls to a store on its current engine.
type runner struct{ s *Store }

// Check implements local.Runner.
func (r runner) Check(ctx context.Context) error {
	_, err := r.engine(ctx)
	return err
}

func (r runner) engine(ctx context.Context) (*engine, error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	select {
	case <-r.s.closed:
		return nil, errClosed()
	default:
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if r.s.current == nil {
		return nil, unavailable(r.s.failure)
	}
	return r.s.current, nil
}

// Run implements local.Runner.
func (r runner) Run(ctx context.Context, call *local.Call) error {
	e, err := r.engine(ctx)
	if err != nil {
		return err
	}
	if call.Warm != nil {
		call.Warm(e.ahead.get)
	}
	return e.do(ctx, call)
}

// logger passes the messages of Pebble on.
type logger struct {
	to   *slog.Logger
	fail func(error)
}

// Infof implements pebble.Logger.
func (l *logger) Infof(format string, args ...any) {
	l.to.Debug("pebble: " + fmt.Sprintf(format, args...))
}

// Errorf implements pebble.Logger.
func (l *logger) Errorf(format string, args ...any) {
	l.to.Error("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf implements pebble.Logger. Pebble does not expect it to return, so it ends the goroutine.
func (l *logger) Fatalf(format string, args ...any) {
	l.fail(fmt.Errorf(format, args...))
	runtime.Goexit()
}
