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

// ErrCorrupt says that the file is damaged: cut off, or with pages that are not what they should be. It is a
// [driver.ErrBroken].
var ErrCorrupt = fmt.Errorf("%w: the file is damaged", driver.ErrBroken)

// file is an open bbolt file. It turns panics of bbolt, and faults of the mapped file, into errors.
type file struct {
	db      *bolt.DB
	f       *os.File // that db has open
	metaEnd int64    // where its meta pages end

	// stuck is set when bbolt has panicked while it held its locks. A later transaction, and bolt.DB.Close,
	// would wait for these locks for ever.
	stuck atomic.Bool
}

// openFile opens, checks and locks a file, and makes it if there is none.
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

// sizeOf is the size of the file at path, -1 if there is none. A path that cannot be that of a store's file
// is [driver.ErrInvalid].
func sizeOf(path string) (int64, error) {
	refused := func(err error, accepted string) (int64, error) {
		return 0, fmt.Errorf("%w path: %w; %s is accepted", driver.ErrInvalid, err, accepted)
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

// lockTimeout is what is left for waiting. bbolt takes 0 for ever, so it is never that.
func lockTimeout(deadline time.Time) time.Duration { return max(time.Nanosecond, time.Until(deadline)) }

// inspect checks a file before bbolt reads its pages. Meanwhile it holds the lock that readers share, so no
// process writes to the file.
func inspect(path string, timeout time.Duration, pages bool) error {
	f, err := openRecovered(path, 0, &bolt.Options{ReadOnly: true, Timeout: timeout})
	if err == nil {
		defer f.close() //nolint:errcheck // nothing was written
	} else if !errors.Is(err, ErrCorrupt) && !isOfBolt(err) {
		return err // not the file's fault: the lock, or a permission
	}
	if checked := checkFile(path, pages); checked != nil || err == nil {
		return checked
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// isOfBolt reports whether bolt.Open did not like what it has read.
func isOfBolt(err error) bool {
	return isAny(err, berrors.ErrInvalid, berrors.ErrChecksum, berrors.ErrVersionMismatch) ||
		strings.Contains(err.Error(), "file size too small")
}

// openLocked opens the file for writing.
//
// The list of free pages is written with each commit. Without the list, opening would read the whole file
// once more.
func openLocked(path string, o Options, size int64, timeout time.Duration) (*file, error) {
	options := &bolt.Options{Timeout: timeout, FreelistType: bolt.FreelistMapType, NoSync: o.NoSync, MaxSize: o.maxSize}
	if strconv.IntSize == 64 && runtime.GOOS != "windows" {
		// Address space, no memory. A writer that needs a larger map waits for readers, such as a backup.
		options.InitialMmapSize = 1<<30 + int(2*max(0, size))
	}
	return openRecovered(path, o.FileMode, options)
}

// openRecovered is bolt.Open, with an error where that panics on a damaged file, and with errors that have a kind.
func openRecovered(path string, mode fs.FileMode, options *bolt.Options) (*file, error) {
	f := &file{}
	options.OpenFile = func(name string, flag int, perm os.FileMode) (_ *os.File, err error) {
		f.f, err = os.OpenFile(name, flag, perm)
		return f.f, err
	}
	opened := false
	err := guard("open", func() (err error) {
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
		return nil, fmt.Errorf("%w path: %w; a file that this user may read and write is accepted", driver.ErrInvalid, err)
	}
	return nil, classify(err)
}

// abandon unlocks and closes the file without bbolt, which has panicked. The map of the file stays, and
// would keep the lock if that were not given up first.
func (f *file) abandon() {
	unlock(f.f)
	_ = f.f.Close()
}

// close closes the file. It does not wait for transactions: there must be none, except one that is stuck.
//
// bbolt does not unlock a file that it has opened for reading. A child process that is forked before the
// close, and has not executed its program yet, would keep the lock.
func (f *file) close() error {
	if f.stuck.Load() {
		f.abandon()
		return nil
	}
	if f.db.IsReadOnly() {
		unlock(f.f)
	}
	return guard("close", f.db.Close)
}

// guard turns panics of bbolt, and faults of the mapped file, into errors.
func guard(what string, f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %s: %v", ErrCorrupt, what, r)
		}
	}()
	return f()
}

// usable is an error where bbolt would wait for ever, or where its meta pages have been cut off. bbolt reads
// these when it begins a transaction, and keeps its locks where that faults.
func (f *file) usable() error {
	if f.stuck.Load() {
		return fmt.Errorf("%w: bbolt has panicked", ErrCorrupt)
	}
	info, err := f.f.Stat()
	if err == nil && info.Size() < f.metaEnd {
		err = fmt.Errorf("%w: %d bytes of it are left", ErrCorrupt, info.Size())
	}
	return classify(err)
}

// view reads in a transaction.
func (f *file) view(read func(tx *bolt.Tx) error) error {
	return guard("read", func() error {
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

// update writes in a transaction, which write ends by Commit or Rollback if it returns no error. The caller
// keeps other writers out. It returns the number of the transaction, 0 if there was none. Afterwards f may be stuck.
func (f *file) update(write func(tx *bolt.Tx) error) (id int, err error) {
	var tx *bolt.Tx
	err = guard("write", func() (err error) {
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
		if again := guard("roll back", func() error { _ = tx.Rollback(); return nil }); again != nil {
			f.stuck.Store(true)
			err = errors.Join(err, again)
		}
	}
	return id, err
}

// begin begins a transaction. If bbolt panics it keeps its locks.
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

// syncDirectory makes the name of a new file safe. Some systems cannot do that, and need not.
func syncDirectory(path string) {
	if d, err := os.Open(path); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

// initialize checks the version of the layout, and writes it to a new file.
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

// checkVersion reports whether the file is empty, an error if it is something else than a file of queues.
func checkVersion(tx *bolt.Tx) (fresh bool, err error) {
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		if first, _ := tx.Cursor().First(); first != nil {
			return false, fmt.Errorf("%w: it is a bbolt file of another program, with a bucket %.40q", driver.ErrVersion, first)
		}
		return true, nil
	}
	b := meta.Get(keyVersion)
	if len(b) != 8 {
		return false, fmt.Errorf("%w: its version has %d bytes, 8 are expected", ErrCorrupt, len(b))
	}
	if v := binary.BigEndian.Uint64(b); v != formatVersion {
		return false, fmt.Errorf("%w: the file has format version %d, this program reads and writes version %d", driver.ErrVersion, v, formatVersion)
	}
	if tx.Bucket(bucketQueues) == nil {
		return false, fmt.Errorf("%w: %s: %w", ErrCorrupt, bucketQueues, errNoBucket)
	}
	return false, nil
}

// classify gives an error of bbolt or the system its kind: no space; a damaged file where bbolt finds keys
// that were never stored; otherwise [driver.ErrBroken], as an input or output error of a disk does not go
// away, and what was written before it may be lost. An error that has a kind keeps it.
func classify(err error) error {
	kind := driver.ErrBroken
	switch {
	case err == nil:
		return nil
	case errors.Is(err, berrors.ErrMaxSizeReached) || noSpace(err):
		kind = driver.ErrFull
	case isAny(err, driver.ErrBroken, driver.ErrPartitions, driver.ErrVersion):
		return err
	case isAny(err, berrors.ErrKeyTooLarge, berrors.ErrKeyRequired, berrors.ErrValueTooLarge, berrors.ErrIncompatibleValue):
		kind = ErrCorrupt
	}
	return fmt.Errorf("%w: %w", kind, err)
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// noSpace looks at the text, too, as bbolt does not wrap what goes wrong when the file is to grow.
func noSpace(err error) bool {
	for _, e := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, e) || strings.HasSuffix(err.Error(), e.Error()) {
			return true
		}
	}
	return strings.HasSuffix(err.Error(), "mmap too large") // the file is as long as an int of 32 bits can say
}
