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
	"syscall"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// ErrCorrupt says that the file is damaged: cut off, or with pages that are not what they should be.
var ErrCorrupt = errors.New("the file is damaged")

// openFile opens, checks and locks a file, and makes it if there is none. It returns the descriptor, too, which belongs to the bolt.DB.
func openFile(path string, o Options) (db *bolt.DB, file *os.File, err error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, nil, fmt.Errorf("%w path: it is a directory; a file is accepted", driver.ErrInvalid)
	case err == nil && !info.Mode().IsRegular():
		return nil, nil, fmt.Errorf("%w path: it is of the kind %v; a regular file is accepted", driver.ErrInvalid, info.Mode().Type())
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return nil, nil, fmt.Errorf("the directory of the file: %w", err)
		}
	case err != nil:
		return nil, nil, err
	}
	deadline := time.Now().Add(o.LockTimeout)
	if err == nil && info.Size() > 0 {
		if err := inspect(path, lockTimeout(deadline)); err != nil {
			return nil, nil, err
		}
	}
	if db, file, err = openLocked(path, o, lockTimeout(deadline)); err != nil {
		return nil, nil, err
	}
	if err := initialize(db); err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	if info == nil {
		syncDirectory(filepath.Dir(path))
	}
	return db, file, nil
}

// lockTimeout is what is left for waiting. bbolt takes 0 for ever, so it is never that.
func lockTimeout(deadline time.Time) time.Duration { return max(time.Nanosecond, time.Until(deadline)) }

// inspect checks the file before it is mapped as a whole, since access behind its end is a fault and no error. It holds
// the lock that readers share meanwhile, so that nobody writes.
func inspect(path string, timeout time.Duration) error {
	db, _, err := openRecovered(path, 0, &bolt.Options{ReadOnly: true, Timeout: timeout})
	if errors.Is(err, berrors.ErrTimeout) {
		return lockedError(err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return err
	}
	if db != nil {
		defer db.Close() //nolint:errcheck // nothing was written
	}
	if checked := checkMeta(path); checked != nil || err == nil {
		return checked
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

func lockedError(err error) error { return fmt.Errorf("%w: %w", driver.ErrLocked, err) }

// openLocked opens the file for writing.
//
// The list of free pages is written with each commit. Without it, opening would read the whole file, which takes
// minutes for a large one, and a damaged page in it would end the process from a goroutine of bbolt where nobody can recover.
func openLocked(path string, o Options, timeout time.Duration) (*bolt.DB, *os.File, error) {
	options := &bolt.Options{Timeout: timeout, FreelistType: bolt.FreelistMapType, NoSync: o.NoSync, MaxSize: o.maxSize}
	if strconv.IntSize == 64 && runtime.GOOS != "windows" {
		// Address space, no memory. While the file fits in it a writer that needs a larger map does not wait for readers.
		options.InitialMmapSize = 1 << 30
	}
	db, file, err := openRecovered(path, o.FileMode, options)
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, nil, lockedError(err)
	}
	return db, file, err
}

// openRecovered is bolt.Open, with an error where that panics on a damaged file.
func openRecovered(path string, mode fs.FileMode, options *bolt.Options) (db *bolt.DB, file *os.File, err error) {
	options.OpenFile = func(name string, flag int, perm os.FileMode) (f *os.File, err error) {
		f, err = os.OpenFile(name, flag, perm)
		file = f
		return f, err
	}
	opened := false
	err = guard("open", func() (err error) {
		opened = false
		db, err = bolt.Open(path, mode, options)
		opened = true
		return err
	})
	if !opened && file != nil {
		_ = file.Close() // and with it the lock
	}
	return db, file, err
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

// meta is an error where the pages of meta data have been cut off. bbolt reads them when it begins a transaction, and where that faults
// it keeps its locks: whoever comes later would wait for ever, Close as well.
func (s *Store) meta() error {
	info, err := s.file.Stat()
	if err == nil && info.Size() < s.metaEnd {
		err = fmt.Errorf("%w: %d bytes of it are left", ErrCorrupt, info.Size())
	}
	return err
}

// see reads in a transaction.
func (s *Store) see(f func(tx *bolt.Tx) error) error {
	if err := s.meta(); err != nil {
		return err
	}
	return s.db.View(f)
}

// syncDirectory makes the name of a new file safe. Some systems cannot do that, and need not.
func syncDirectory(path string) {
	if d, err := os.Open(path); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

// initialize checks the version of the layout, and writes it to a new file.
func initialize(db *bolt.DB) error {
	return guard("read the version", func() error {
		fresh := false
		if err := db.View(func(tx *bolt.Tx) (err error) {
			fresh, err = checkVersion(tx)
			return err
		}); err != nil || !fresh {
			return err
		}
		return classify(db.Update(func(tx *bolt.Tx) error {
			meta, err := tx.CreateBucket(bucketMeta)
			if err == nil {
				_, err = tx.CreateBucket(bucketQueues)
			}
			if err == nil {
				err = meta.Put(keyVersion, binary.BigEndian.AppendUint64(nil, formatVersion))
			}
			return err
		}))
	})
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
		return false, fmt.Errorf("%w: the file is of version %d, this program reads and writes version %d", driver.ErrVersion, v, formatVersion)
	}
	if tx.Bucket(bucketQueues) == nil {
		return false, fmt.Errorf("%w: %s: %w", ErrCorrupt, bucketQueues, errNoBucket)
	}
	return false, nil
}

// classify gives an error of a commit its kind: no space, a damaged file where bbolt finds keys that nobody has stored, or else
// one of the system, which may be gone later. What has a kind keeps it.
func classify(err error) error {
	kind := driver.ErrUnavailable
	switch {
	case err == nil:
		return nil
	case errors.Is(err, berrors.ErrMaxSizeReached) || noSpace(err):
		kind = driver.ErrFull
	case isAny(err, ErrCorrupt, driver.ErrPartitions, driver.ErrVersion):
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
