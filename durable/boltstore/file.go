package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// ErrCorrupt is the error for a damaged file: the file is truncated, or its pages have wrong
// content. ErrCorrupt wraps [driver.ErrBroken].
var ErrCorrupt = fmt.Errorf("%w: the file is damaged", driver.ErrBroken)

// file is an open bbolt file. Its methods turn panics of bbolt, and faults of the mapped file, into
// errors.
type file struct {
	db      *bolt.DB
	f       *os.File // the file of db
	metaEnd int64    // offset of the end of the meta pages

	// stuck is set when bbolt has panicked while it held its locks. A later transaction, or
	// bolt.DB.Close, would wait for these locks forever.
	stuck atomic.Bool
}

// openFile opens, checks and locks a file, and creates it if there is none.
func openFile(path string, o Options) (*file, error) {
	size, err := sizeOf(path)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(o.LockTimeout)
	if size > 0 {
		if err := inspect(path, lockTimeout(deadline), !o.SkipCheck); err != nil {
			return nil, err
		}
	}
	f, err := openLocked(path, o, size, lockTimeout(deadline))
	if err != nil {
		return nil, err
	}
	if err := f.initialize(); err != nil {
		return nil, errors.Join(err, f.close())
	}
	if size < 0 {
		syncDirectory(filepath.Dir(path))
	}
	return f, nil
}

// sizeOf returns the size of the file at path, or -1 if there is none. It returns
// [driver.ErrInvalid] if a store's file cannot have this path.
func sizeOf(path string) (int64, error) {
	refused := func(err error, want string) (int64, error) {
		return 0, fmt.Errorf("%w path: %w; it must be %s", driver.ErrInvalid, err, want)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return refused(err, "a file in a directory that exists")
		}
		return -1, nil
	case err != nil:
		return refused(err, "a file that this user may read and write")
	case info.IsDir():
		return refused(errors.New("it is a directory"), "a file")
	case !info.Mode().IsRegular():
		return refused(fmt.Errorf("it is of the kind %v", info.Mode().Type()), "a regular file")
	}
	return info.Size(), nil
}

// lockTimeout returns the time until the deadline, which is always positive because bbolt waits
// forever if its timeout is 0.
func lockTimeout(deadline time.Time) time.Duration { return max(time.Nanosecond, time.Until(deadline)) }

// inspect checks a file before bbolt reads its pages, under the shared lock of readers, so that no
// process writes to the file meanwhile.
func inspect(path string, timeout time.Duration, pages bool) error {
	f, err := openRecovered(path, 0, &bolt.Options{ReadOnly: true, Timeout: timeout})
	if err == nil {
		defer f.close() //nolint:errcheck // nothing was written
	} else if !errors.Is(err, ErrCorrupt) && !isOfBolt(err) {
		return err // the error is about the lock or a permission, not the content
	}
	if checked := checkFile(path, pages); checked != nil || err == nil {
		return checked
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// isOfBolt reports whether bolt.Open has rejected the content of the file.
func isOfBolt(err error) bool {
	return isAny(err, berrors.ErrInvalid, berrors.ErrChecksum, berrors.ErrVersionMismatch) ||
		strings.Contains(err.Error(), "file size too small")
}

// openLocked opens the file for writing.
//
// The list of free pages is written with each commit. Without it, opening would read the whole file
// a second time.
func openLocked(path string, o Options, size int64, timeout time.Duration) (*file, error) {
	options := &bolt.Options{Timeout: timeout, FreelistType: bolt.FreelistMapType, NoSync: o.NoSync, MaxSize: o.maxSize}
	if strconv.IntSize == 64 && runtime.GOOS != "windows" {
		// This reserves address space, not memory. A writer that needs a larger map waits for
		// readers.
		options.InitialMmapSize = 1<<30 + int(2*max(0, size))
	}
	return openRecovered(path, o.FileMode, options)
}

// openRecovered is bolt.Open. It returns an error if bolt.Open panics on a damaged file, and
// classifies its errors.
func openRecovered(path string, mode fs.FileMode, options *bolt.Options) (*file, error) {
	f := &file{}
	options.OpenFile = func(name string, flag int, perm os.FileMode) (_ *os.File, err error) {
		f.f, err = os.OpenFile(name, flag, perm)
		return f.f, err
	}
	opened := false
	err := recoverPanics("open", func() (err error) {
		f.db, err = bolt.Open(path, mode, options)
		opened = true
		return err
	})
	switch {
	case err == nil:
		f.metaEnd = 2 * int64(f.db.Info().PageSize)
		return f, nil
	case !opened && f.f != nil:
		f.abandon()
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("%w: %w", driver.ErrLocked, err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w path: %w; it must be a file that this user may read and write",
			driver.ErrInvalid, err)
	}
	return nil, classify(err)
}

// abandon unlocks and closes the file without bbolt, which has panicked. The file stays mapped, so
// the lock would stay if abandon did not release it first.
func (f *file) abandon() {
	unlock(f.f)
	_ = f.f.Close()
}

// close closes the file. The caller makes sure that no transaction is open except a stuck one.
//
// bbolt does not unlock a file that it has opened for reading. A child process that was forked
// before the close, and has not executed its program yet, would keep the lock.
func (f *file) close() error {
	if f.stuck.Load() {
		f.abandon()
		return nil
	}
	if f.db.IsReadOnly() {
		unlock(f.f)
	}
	return recoverPanics("close", f.db.Close)
}

// recoverPanics calls f, and turns a panic of bbolt or a fault of the mapped file into an error.
func recoverPanics(what string, f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %s: %v", ErrCorrupt, what, r)
		}
	}()
	return f()
}

// usable returns an error if bbolt would wait forever, or if the file was truncated within the meta
// pages. bbolt reads these pages when it begins a transaction, and keeps its locks if the read
// faults.
func (f *file) usable() error {
	if f.stuck.Load() {
		return fmt.Errorf("%w: bbolt has panicked", ErrCorrupt)
	}
	info, err := f.f.Stat()
	if err == nil && info.Size() < f.metaEnd {
		err = fmt.Errorf("%w: only %d bytes are left", ErrCorrupt, info.Size())
	}
	return classify(err)
}

// view calls read in a read transaction.
func (f *file) view(read func(tx *bolt.Tx) error) error {
	return recoverPanics("read", func() error {
		if err := f.usable(); err != nil {
			return err
		}
		tx, err := f.begin(false)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // it only reads
		return read(tx)
	})
}

// update calls write in a write transaction. write must end the transaction by Commit or Rollback,
// or return an error. The caller excludes other writers. update returns the number of the
// transaction, or 0 if there was none. f may be stuck afterwards.
func (f *file) update(write func(tx *bolt.Tx) error) (id int, err error) {
	var tx *bolt.Tx
	err = recoverPanics("write", func() (err error) {
		if err = f.usable(); err != nil {
			return err
		}
		if tx, err = f.begin(true); err != nil {
			return err
		}
		id = tx.ID()
		return write(tx)
	})
	if err != nil && tx != nil {
		if again := recoverPanics("roll back", func() error { _ = tx.Rollback(); return nil }); again != nil {
			f.stuck.Store(true)
			err = errors.Join(err, again)
		}
	}
	return id, err
}

// begin begins a transaction. If bbolt panics, f is stuck.
func (f *file) begin(writable bool) (*bolt.Tx, error) {
	panics := true
	defer func() {
		if panics {
			f.stuck.Store(true)
		}
	}()
	tx, err := f.db.Begin(writable)
	panics = false
	return tx, err
}

// syncDirectory syncs the directory of a new file. Some systems neither support nor need that, so
// errors are ignored.
func syncDirectory(path string) {
	if d, err := os.Open(path); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

// initialize checks the version of the layout, or writes it to a new file.
func (f *file) initialize() error {
	fresh := false
	if err := f.view(func(tx *bolt.Tx) (err error) {
		fresh, err = checkVersion(tx)
		return err
	}); err != nil || !fresh {
		return err
	}
	_, err := f.update(func(tx *bolt.Tx) error {
		meta, err := tx.CreateBucket(bucketMeta)
		if err == nil {
			_, err = tx.CreateBucket(bucketQueues)
		}
		if err == nil {
			err = meta.Put(keyVersion, binary.BigEndian.AppendUint64(nil, formatVersion))
		}
		if err == nil {
			err = tx.Commit()
		}
		return err
	})
	return classify(err)
}

// checkVersion reports whether the file is empty. It returns an error if the file is not a file of
// queues of this version.
func checkVersion(tx *bolt.Tx) (fresh bool, err error) {
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		if first, _ := tx.Cursor().First(); first != nil {
			return false, fmt.Errorf("%w: it is a bbolt file of another program, with a bucket %.40q",
				driver.ErrVersion, first)
		}
		return true, nil
	}
	b := meta.Get(keyVersion)
	if len(b) != 8 {
		return false, fmt.Errorf("%w: its version has %d bytes; there must be 8", ErrCorrupt, len(b))
	}
	if v := binary.BigEndian.Uint64(b); v != formatVersion {
		return false, fmt.Errorf("%w: the file has format version %d, this program reads and writes version %d",
			driver.ErrVersion, v, formatVersion)
	}
	if tx.Bucket(bucketQueues) == nil {
		return false, fmt.Errorf("%w: %s: %w", ErrCorrupt, bucketQueues, errNoBucket)
	}
	return false, nil
}

// classify wraps an error of bbolt or of the system with its kind, unless it has one. The kind is
// [driver.ErrFull] if space has run out, and ErrCorrupt if bbolt finds keys that were never stored.
// Any other error is [driver.ErrBroken]: an input or output error of a disk does not go away, and
// earlier writes may be lost.
func classify(err error) error {
	kind := driver.ErrBroken
	switch {
	case err == nil:
		return nil
	case errors.Is(err, berrors.ErrMaxSizeReached) || noSpace(err):
		kind = driver.ErrFull
	case isAny(err, driver.ErrBroken, driver.ErrNoQueue, driver.ErrPartitions, driver.ErrVersion):
		return err
	case isAny(err, berrors.ErrKeyTooLarge, berrors.ErrKeyRequired, berrors.ErrValueTooLarge,
		berrors.ErrIncompatibleValue):
		kind = ErrCorrupt
	}
	return fmt.Errorf("%w: %w", kind, err)
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// noSpace reports whether the file cannot grow. The texts are compared too, because bbolt does not
// wrap these errors.
func noSpace(err error) bool {
	for _, e := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, e) || strings.HasSuffix(err.Error(), e.Error()) {
			return true
		}
	}
	return strings.HasSuffix(err.Error(), "mmap too large") // an int has 32 bits
}
