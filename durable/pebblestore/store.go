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
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
	"github.com/timingwheel-go/timingwheel/durable/internal/remote"
)

// ErrCorrupt means that the directory is damaged. The error names the file.
var ErrCorrupt = local.ErrCorrupt

const defaultMemory, minMemory = 128 << 20, 8 << 20

// Options configures [Open]. The zero value is ready to use.
type Options struct {
	// Memory is the total size of the block cache and the memtables, in bytes: at least 8 MiB, or 0
	// for 128 MiB. The process needs some more memory, mostly for the messages in flight.
	Memory int64

	// Socket makes the store serve other processes: see [Connect]. It creates a Unix socket in the
	// directory. The directory's path is then limited to about 80 bytes. Any process that may enter
	// and change the directory may use the socket.
	Socket bool

	// Logger receives the store's log messages. Nil means slog.Default().
	Logger *slog.Logger

	// With NoSync, no call waits for a sync. A crash of the process then loses the changes that are
	// still buffered, up to 32 KiB of any age. A power failure may also lose what the system has
	// not written yet.
	NoSync bool

	// For tests. Nil means the clock and the file system of the system.
	now func() time.Time
	fs  vfs.FS
}

// Store is a directory of queues that is open in this process. It is safe for concurrent use. It
// implements [driver.Store] and [driver.Lister].
type Store struct {
	queues

	dir     string
	options Options
	shared  local.Shared
	lock    io.Closer      // nil on a read-only file system
	locked  os.FileInfo    // of the file that is locked; nil if it is not on the file system of the system
	server  *remote.Server // nil without Options.Socket
	client  *remote.Client // to the process that has the directory open; otherwise nil
	source  string         // the directory of which dir is a copy that Close removes

	mu      sync.Mutex
	current *engine // nil while the directory is being opened again
	failure error   // of the last engine, if current is nil

	close  sync.Once
	closed chan struct{} // closed by Close
	ended  chan error    // closed when supervise has ended, after the error of closing the last engine
}

type queues = local.Store

// Open opens the directory dir, and creates it if it does not exist. It returns [driver.ErrInvalid]
// for options out of range or a path that cannot be such a directory, [driver.ErrLocked] if another
// process has it open, [driver.ErrVersion] if it has another format, and [ErrCorrupt] if it is
// damaged. The time that Open takes depends on the changes made since the last memtable was
// written, not on the number of messages.
func Open(dir string, options Options) (*Store, error) {
	s, err := newStore(dir, options)
	if err != nil {
		return nil, err
	}
	if err := s.options.fs.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("pebblestore: %w path %q: %w; it must be a directory that this user may read and write, and not a file, as in earlier versions",
			driver.ErrInvalid, dir, err)
	}
	if err := s.inspect(); err != nil {
		return nil, err
	}
	if s.lock, err = s.acquire(); err != nil {
		return nil, err
	}
	remote.RemoveCopies(s.dir, s.lockDir)
	return s.start()
}

// newStore returns a store that is not open, with the defaults of options.
func newStore(dir string, options Options) (*Store, error) {
	options.Memory, options.Logger = cmp.Or(options.Memory, defaultMemory), cmp.Or(options.Logger, slog.Default())
	if options.Memory < minMemory {
		return nil, fmt.Errorf("pebblestore: %w Memory %d; it must be at least %d bytes, or 0 for %d",
			driver.ErrInvalid, options.Memory, minMemory, defaultMemory)
	}
	if options.now == nil {
		options.now = time.Now
	}
	if options.fs == nil {
		options.fs = vfs.Default
		if absolute, err := filepath.Abs(dir); err == nil { // the working directory may change
			dir = absolute
		}
	}
	s := &Store{dir: dir, options: options, closed: make(chan struct{}), ended: make(chan error, 1)}
	s.shared.Name, s.shared.Now, s.shared.Groups = "pebblestore", options.now, true
	s.queues = local.NewStore(runner{s}, &s.shared)
	return s, nil
}

// start opens the locked directory, and the socket.
func (s *Store) start() (*Store, error) {
	e, err := s.open(nil)
	if err != nil {
		return nil, errors.Join(err, s.unlock())
	}
	s.current = e
	if s.lock != nil && s.options.fs == vfs.Default {
		s.locked, _ = os.Stat(filepath.Join(s.dir, lockName))
	}
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
	if !s.replaced() {
		_ = s.options.fs.Remove(s.options.fs.PathJoin(s.dir, ownerName))
	}
	return s.lock.Close()
}

// replaced reports whether the directory that is open is no longer at its path.
func (s *Store) replaced() bool {
	if s.locked == nil {
		return false
	}
	info, err := os.Stat(filepath.Join(s.dir, lockName))
	return err != nil || !os.SameFile(info, s.locked)
}

// inspect returns [driver.ErrVersion] for a directory with files of other programs.
func (s *Store) inspect() error {
	var names []string
	found, err := pebble.Peek(s.dir, s.options.fs)
	if err == nil && !found.Exists {
		names, err = s.options.fs.List(s.dir)
	}
	if err != nil {
		return s.openError(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "lost+found" })
	if len(names) > 0 && !slices.Contains(names, lockName) { // a store creates the lock first
		return fmt.Errorf("pebblestore: %q: %w: it has the file %q, and must be empty or the directory of a store",
			s.dir, driver.ErrVersion, names[0])
	}
	return nil
}

// open opens the directory with Pebble. last is the State of the last engine, or nil.
func (s *Store) open(last *local.State) (e *engine, err error) {
	failed := guard(func() error {
		e, err = newEngine(s, last)
		return err
	})
	return e, failed
}

// openAgain opens the directory, and does not create it if the disk is no longer mounted.
func (s *Store) openAgain(last *local.State) (*engine, error) {
	found, err := pebble.Peek(s.dir, s.options.fs)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && (!found.Exists || s.replaced()):
		return nil, fmt.Errorf("pebblestore: %q: %w: the files are gone", s.dir, driver.ErrBroken)
	case err != nil:
		return nil, s.openError(err)
	}
	return s.open(last)
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
	case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM):
		kind = driver.ErrUnavailable
	case strings.Contains(err.Error(), "unknown format major version"):
		kind = driver.ErrVersion
	case strings.Contains(err.Error(), " name from file "): // of the merger or of the comparer
		kind = fmt.Errorf("%w: it is the database of another program", driver.ErrVersion)
	}
	return fmt.Errorf("pebblestore: %q: %w: %w", s.dir, kind, err)
}

// supervise closes each engine that fails and opens the next one, until the store is closed.
func (s *Store) supervise(e *engine) {
	defer close(s.ended)
	check := time.NewTicker(time.Second)
	defer check.Stop()
	for e != nil {
		select {
		case <-check.C:
			e.checkPath()
		case <-s.closed:
			s.ended <- e.close()
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
	last := e.state
	if errors.Is(e.close(), errEnded) { // its goroutines may still use the State
		last = nil
	}
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		next, err := s.openAgain(last)
		s.mu.Lock()
		s.current, s.failure = next, err
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

// Backup writes a copy of the store to dir, a new directory that [Open] can open. The copy includes
// every call that returned before Backup was called, and each later call as a whole or not at all.
// Claimed messages are scheduled in the copy. A message that is firing during the backup counts one
// more crash when the copy is opened.
//
// The store stays in use. If dir is on the same file system, Backup links most files and copies
// some megabytes. A linked file takes up space until it is removed from both directories.
//
// Backup returns the cause of ctx if ctx ends before copying begins, [driver.ErrInvalid] if dir
// exists, and [driver.ErrClosed] or [driver.ErrUnavailable] as other calls do. After any error but
// ErrInvalid, dir does not exist.
func (s *Store) Backup(ctx context.Context, dir string) error {
	if s.client != nil {
		return s.client.Backup(ctx, dir)
	}
	e, err := runner{s}.engine(ctx)
	if err != nil {
		return err
	}
	remote.RemoveCopies(s.dir, s.lockDir)
	// After this call, the calls that have returned are in the DB.
	if err := e.do(ctx, &local.Call{Waits: true, Do: func(*local.State) error { return nil }}); err != nil {
		return err
	}
	e.shared.mu.RLock() // the DB is closed later
	defer e.shared.mu.RUnlock()
	if e.shared.db == nil {
		return fmt.Errorf("pebblestore: backup: %w: the store was closed meanwhile", driver.ErrUnavailable)
	}
	err = guard(func() error { return e.shared.db.Checkpoint(dir, pebble.WithFlushedWAL()) })
	switch failure := e.failedWith(); {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("pebblestore: backup: %w path: %w; it must not exist", driver.ErrInvalid, err)
	case err != nil:
		err = fmt.Errorf("pebblestore: backup of %q to %q: %w", s.dir, dir, err)
	case failure != nil: // some files may lack changes
		err = unavailable(failure)
	default:
		return nil
	}
	return errors.Join(err, s.options.fs.RemoveAll(dir))
}

// Close closes the directory. Calls in progress are completed. Later calls to the store and its
// backends return [driver.ErrClosed]. Closing a store again has no effect.
func (s *Store) Close() (err error) {
	if s.client != nil {
		return s.client.Close()
	}
	s.close.Do(func() {
		close(s.closed)
		if s.server != nil {
			s.server.Close()
			if !s.replaced() {
				_ = os.Remove(filepath.Join(s.dir, socketName))
			}
		}
		err = errors.Join(<-s.ended, s.unlock())
		if s.source != "" {
			err = errors.Join(err, os.RemoveAll(s.dir))
		}
	})
	if err != nil {
		return fmt.Errorf("pebblestore: close %q: %w", s.dir, err)
	}
	return nil
}

func errClosed() error { return fmt.Errorf("pebblestore: the store is %w", driver.ErrClosed) }

// runner is a [local.Runner]. It runs the calls to a store on its current engine.
type runner struct{ s *Store }

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

func (r runner) Run(ctx context.Context, call *local.Call) error {
	e, err := r.engine(ctx)
	if err != nil {
		return err
	}
	if r.s.shared.Snapshot && call.Changes {
		return fmt.Errorf("pebblestore: %w call: the store is a snapshot, which cannot be changed", driver.ErrInvalid)
	}
	if call.Warm != nil {
		call.Warm(e.shared.get)
	}
	return e.do(ctx, call)
}
