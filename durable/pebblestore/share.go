package pebblestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/remote"
)

// The files of a directory that are not Pebble's: its lock, the name of the process that holds the
// lock, and the socket.
const lockName, ownerName, socketName = "timingwheel.lock", "timingwheel.owner", "timingwheel.sock"

// lockTimeout is how long Open waits for the lock of a process that only makes a snapshot or is
// ending.
const lockTimeout = 2 * time.Second

// acquire locks the directory. The lock is not Pebble's, which a failed engine may keep.
func (s *Store) acquire() (io.Closer, error) {
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		lock, err := s.lockDir(s.dir)
		locked := errors.Is(err, syscall.EAGAIN) || runtime.GOOS == "windows" ||
			err != nil && strings.Contains(err.Error(), "held by current process")
		switch {
		case err == nil:
			writeOwner(s)
			return lock, nil
		case !locked && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)):
			return nil, fmt.Errorf("pebblestore: %w path: %w; it must be a directory that this user may read and write",
				driver.ErrInvalid, err)
		case !locked:
			return nil, s.openError(err)
		case time.Since(start) >= lockTimeout:
			return nil, s.errLocked(err)
		}
	}
}

// errLocked is the error of a lock that another process has. It names the process.
func (s *Store) errLocked(err error) error {
	owner := "another process"
	if f, failed := s.options.fs.Open(s.options.fs.PathJoin(s.dir, ownerName)); failed == nil {
		b, _ := io.ReadAll(f)
		owner = cmp.Or(strings.TrimSpace(string(b)), owner)
		_ = f.Close()
	}
	return fmt.Errorf("pebblestore: %q: %w: %s: %w", s.dir, driver.ErrLocked, owner, err)
}

// lockForReading locks a file that cannot be written, and returns a function that unlocks it. It
// returns an error if a process has locked the file for writing. It locks nothing if there is no
// such file or the file system has no locks.
var lockForReading = func(name string) (unlock func(), err error) { return func() {}, nil }

// lockDir locks a directory. Its lock has only one path, because vfs.Default finds the locks of
// this process by path.
func (s *Store) lockDir(dir string) (io.Closer, error) {
	if s.options.fs != vfs.Default {
		return s.options.fs.Lock(s.options.fs.PathJoin(dir, lockName))
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	return vfs.Default.Lock(filepath.Join(dir, lockName))
}

// writeOwner writes which process has locked the directory. Only the text of an error depends on
// it, so a full disk does no harm.
func writeOwner(s *Store) {
	name := s.options.fs.PathJoin(s.dir, ownerName)
	f, err := s.options.fs.Create(name, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = fmt.Fprintf(f, "process %d (%s)\n", os.Getpid(), filepath.Base(os.Args[0]))
		err = errors.Join(err, f.Close())
	}
	if s.options.fs == vfs.Default {
		err = errors.Join(err, os.Chmod(name, 0o600), os.Chmod(filepath.Join(s.dir, lockName), 0o600))
	}
	if err != nil {
		s.options.Logger.Warn("pebblestore: cannot write the owner of the directory", "error", err)
	}
}

// listen serves the store to other processes. The directory protects the socket, so its mode
// grants the same as the directory's mode.
func (s *Store) listen() error {
	info, err := os.Stat(s.dir)
	if err != nil {
		return s.openError(err)
	}
	s.server, err = remote.Listen(filepath.Join(s.dir, socketName), info.Mode().Perm()&0o666, "pebblestore", s)
	return err
}

// Connect returns the store in the directory dir, which another process has open with
// Options.Socket. If there is no such process, the error is [driver.ErrUnavailable]. The store has
// what producers and operators need: its queues accept, change, return and count messages.
// Consumers get [driver.ErrLocked].
//
// If the other process ends, calls wait five seconds for another to open the directory with
// Options.Socket, and then return ErrUnavailable. They also return ErrUnavailable if the other
// process hangs and does not answer within durable.Options.RetryFor, limited to the range from one
// to 30 seconds. In that case a call that changes something may have taken effect.
func Connect(dir string) (*Store, error) {
	s, err := newStore(dir, Options{})
	if err == nil {
		s.client, err = remote.Dial(filepath.Join(s.dir, socketName), "pebblestore")
	}
	if err != nil {
		return nil, err
	}
	s.queues = s.client
	return s, nil
}

// OpenSnapshot opens a copy of the directory dir for reading. The copy includes every call that
// returned before OpenSnapshot was called. Claimed messages are scheduled in the copy.
// Options.Socket is ignored. Calls that change something return [driver.ErrInvalid].
//
// The copy is a directory in dir with links to most files, and Close removes it. If a process has
// dir open with Options.Socket, that process makes the copy. If none has dir open, OpenSnapshot
// locks dir while copying, which takes milliseconds. Otherwise it returns [driver.ErrLocked].
//
// On a read-only file system, OpenSnapshot makes no copy. On Linux it then returns ErrLocked if any
// process has dir open. A process that opens dir later may remove files from it.
func OpenSnapshot(ctx context.Context, dir string, options Options) (*Store, error) {
	s, err := newStore(dir, options)
	if err != nil {
		return nil, err
	}
	if _, err := os.ReadDir(s.dir); err != nil {
		return nil, fmt.Errorf("pebblestore: %w path: %w; it must be the directory of a store", driver.ErrInvalid, err)
	}
	if err := s.inspect(); err != nil {
		return nil, err
	}
	s.shared.Snapshot, s.options.Socket = true, false
	to := filepath.Join(s.dir, remote.CopyName())
	owner, err := Connect(s.dir)
	if err == nil {
		if err = os.Mkdir(to, 0o700); err == nil { // the file system can be written
			err = errors.Join(os.Remove(to), owner.client.Copy(ctx, filepath.Base(to)))
		}
		err = errors.Join(err, owner.Close())
	} else {
		err = s.copyTo(to)
	}
	switch {
	case errors.Is(err, syscall.EROFS):
		unlock, failed := lockForReading(filepath.Join(s.dir, lockName))
		if failed != nil {
			return nil, s.errLocked(failed)
		}
		defer unlock() // a process may open the directory now, and must not do so before
		return s.start()
	case err == nil:
		s.source, s.dir = s.dir, to
		s.lock, err = s.acquire() // so that no other process removes the copy
	}
	if err == nil {
		s, err = s.start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(to))
	}
	return s, nil
}

// copyTo copies the directory, which no process has open. It links the files that never change.
func (s *Store) copyTo(to string) error {
	var err error
	if s.lock, err = s.acquire(); err != nil {
		return err
	}
	defer func() { _, s.lock = s.unlock(), nil }() // nothing of the store was written under it
	remote.RemoveCopies(s.dir, s.lockDir)
	names, err := s.options.fs.List(s.dir)
	if err == nil {
		err = os.Mkdir(to, 0o700)
	}
	for _, name := range names {
		from, to := filepath.Join(s.dir, name), filepath.Join(to, name)
		info, failed := os.Lstat(from)
		if err != nil || strings.HasPrefix(name, "timingwheel.") || failed == nil && !info.Mode().IsRegular() {
			continue
		}
		if strings.HasSuffix(name, ".sst") {
			err = linkOrCopy(s.options.fs, from, to)
		} else {
			err = vfs.Copy(s.options.fs, from, to)
		}
	}
	if err != nil {
		return fmt.Errorf("pebblestore: copy %q: %w", s.dir, err)
	}
	return nil
}
