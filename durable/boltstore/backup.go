package boltstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Backup writes a copy of the file to w, and returns the number of bytes written. The copy is a
// file of a store as of one commit. The copy includes every call that was confirmed before Backup
// was called, and each commit as a whole or not at all. Claimed messages are scheduled in the copy.
// A message that is firing during the backup has one more crash when the copy is opened.
//
// The store stays in use, and commits do not wait. Pages that become free during the backup are not
// reused until it ends, so the file grows by the bytes written meanwhile. Commits wait for the end
// of the backup if the file outgrows its map. The map has room for 1 GiB and twice the size that
// the file had when it was opened, or for 1 GiB in all if an int has 32 bits.
//
// Backup returns the cause of ctx when ctx ends, [driver.ErrClosed] when the store is closed, and
// the error of w, wrapped. It returns [driver.ErrInvalid] for a nil w. Backup neither interrupts a
// call to w.Write nor syncs w. It is O(n) in the bytes of the file.
func (s *Store) Backup(ctx context.Context, w io.Writer) (int64, error) {
	if w == nil {
		return 0, fmt.Errorf("boltstore: backup: %w writer nil; it must not be nil",
			driver.ErrInvalid)
	}
	tx, err := s.snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer s.inUse.rUnlock()
	defer tx.Rollback() //nolint:errcheck // it only reads
	to := &backupWriter{ctx: ctx, s: s, w: w}
	var n int64
	err = recoverPanics("backup", func() (err error) {
		n, err = tx.WriteTo(to)
		return err
	})
	switch {
	case to.err != nil:
		err = to.err
	case err != nil:
		err = classify(err)
	default:
		return n, nil
	}
	return n, fmt.Errorf("boltstore: backup of %q: %w", s.path, err)
}

// snapshot begins a transaction that sees the last synced commit. The caller ends it and leaves
// s.inUse.
func (s *Store) snapshot(ctx context.Context) (*bolt.Tx, error) {
	if err := s.view.rLock(ctx, s.commits.stalled); err != nil {
		return nil, errors.Join(s.usable(ctx), err)
	}
	defer s.view.rUnlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	var tx *bolt.Tx
	err := recoverPanics("backup", func() (err error) {
		if err = s.file.usable(); err == nil {
			tx, err = s.file.begin(false)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("boltstore: backup of %q: %w", s.path, classify(err))
	}
	if err := s.inUse.rLock(ctx, s.commits.stalled); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx, nil
}

// backupWriter writes to w, and returns an error if the context has ended or the store is closed.
type backupWriter struct {
	ctx context.Context
	s   *Store
	w   io.Writer
	err error // the error of ctx, the store, or w
}

func (b *backupWriter) Write(p []byte) (n int, err error) {
	if b.err = b.s.usable(b.ctx); b.err == nil {
		n, b.err = b.w.Write(p)
	}
	return n, b.err
}

// Compact copies the file of a store that no process has open to a new file without free pages. The
// new file must not exist, and appears only when the copy is complete and synced. src does not
// change.
//
// Compact returns [driver.ErrInvalid] if a path is not accepted, [driver.ErrLocked] if src is in
// use, [driver.ErrVersion] if src is of another kind, [ErrCorrupt] if it is damaged, and
// [driver.ErrFull] if the disk is full. Compact is O(n log n) in the messages, and uses a few
// megabytes of memory.
func Compact(src, dst string) error {
	if err := compact(src, dst); err != nil {
		return fmt.Errorf("boltstore: compact %q to %q: %w", src, dst, err)
	}
	return nil
}

func compact(src, dst string) (err error) {
	switch size, err := sizeOf(dst); {
	case err != nil:
		return err
	case size >= 0:
		return fmt.Errorf("%w path of the new file: %w; it must not exist",
			driver.ErrInvalid, fs.ErrExist)
	}
	if size, err := sizeOf(src); err != nil {
		return err
	} else if size <= 0 {
		return fmt.Errorf("%w path: there is no file, or an empty one; it must be the file of a store",
			driver.ErrInvalid)
	}
	if err := inspect(src, lockWait, true); err != nil {
		return err
	}
	from, err := openRecovered(src, 0, &bolt.Options{ReadOnly: true, Timeout: lockWait})
	if err != nil {
		return err
	}
	defer from.close() //nolint:errcheck // it was read only
	if err := from.view(func(tx *bolt.Tx) error {
		_, err := checkVersion(tx)
		return err
	}); err != nil {
		return err
	}
	temporary := dst + ".tmp"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return classify(err)
	}
	defer os.Remove(temporary) //nolint:errcheck // after a success it has been renamed
	info, err := from.f.Stat()
	if err != nil {
		return classify(err)
	}
	to, err := openRecovered(temporary, info.Mode().Perm(), &bolt.Options{NoSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = recoverPanics("copy", func() error { return bolt.Compact(to.db, from.db, compactBytes) })
	if err == nil {
		err = to.db.Sync()
	}
	if err = errors.Join(err, to.close()); err == nil {
		err = os.Rename(temporary, dst)
	}
	if err == nil {
		syncDirectory(filepath.Dir(dst))
	}
	return classify(err)
}

const (
	lockWait     = time.Second
	compactBytes = 4 << 20 // keys and values of a transaction
)
