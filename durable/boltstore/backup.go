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

// Backup writes a copy of the file to w, and returns the number of bytes written. The copy is a file of a
// store as of one commit: it has all that was confirmed before Backup was called, and all of each commit or
// nothing. What is claimed when the backup is made is scheduled in the copy, and what is firing has one crash
// more when the copy is opened.
//
// The store stays in use, and commits do not wait. Pages that become free during the backup are not used
// again until it ends, so the file grows by what is written meanwhile. If the file outgrows its map, which has
// room for twice the size that the file had when it was opened and 1 GiB more, or 1 GiB in all where an int has
// 32 bits, commits wait for the end of the backup.
//
// Backup ends when ctx ends, or with [driver.ErrClosed] when the store is closed, after the call of w.Write under
// way. It does not sync w. An error of w is returned as it is. It is O(n) in the bytes of the file.
func (s *Store) Backup(ctx context.Context, w io.Writer) (int64, error) {
	if w == nil {
		return 0, fmt.Errorf("boltstore: backup: %w writer nil: a writer is accepted", driver.ErrInvalid)
	}
	tx, err := s.snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer s.inUse.leave()
	defer tx.Rollback() //nolint:errcheck // it only reads
	to := &backupWriter{ctx: ctx, s: s, w: w}
	var n int64
	err = guard("backup", func() (err error) {
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

// snapshot begins a transaction that sees the last commit that is safe. The caller ends it, and leaves s.inUse.
func (s *Store) snapshot(ctx context.Context) (*bolt.Tx, error) {
	if err := s.view.enter(ctx, s.commits.stalled); err != nil {
		return nil, errors.Join(s.usable(ctx), err)
	}
	defer s.view.leave()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	var tx *bolt.Tx
	err := guard("backup", func() (err error) {
		if err = s.file.usable(); err == nil {
			tx, err = s.file.begin(false)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("boltstore: backup of %q: %w", s.path, classify(err))
	}
	if err := s.inUse.enter(ctx, s.commits.stalled); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx, nil
}

// backupWriter ends a backup whose context has ended, or whose store is closed.
type backupWriter struct {
	ctx context.Context
	s   *Store
	w   io.Writer
	err error // of ctx, the store, or w
}

func (b *backupWriter) Write(p []byte) (n int, err error) {
	if b.err = b.s.usable(b.ctx); b.err == nil {
		n, b.err = b.w.Write(p)
	}
	return n, b.err
}

// Compact copies the file of a store that no process has open to a new file, which has no free pages. The new
// file must not exist; it does not appear before it is complete and synced. src stays as it is.
//
// A path that is not accepted is [driver.ErrInvalid], a file that is in use [driver.ErrLocked], one of another
// kind [driver.ErrVersion], a damaged one [ErrCorrupt], and a full disk [driver.ErrFull]. It is O(n log n) in the
// messages, and holds a few megabytes in memory.
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
		return fmt.Errorf("%w path of the new file: %w; one that does not exist is accepted", driver.ErrInvalid, fs.ErrExist)
	}
	if size, err := sizeOf(src); err != nil {
		return err
	} else if size <= 0 {
		return fmt.Errorf("%w path: there is no file, or an empty one; the file of a store is accepted", driver.ErrInvalid)
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
	defer os.Remove(temporary) //nolint:errcheck // it has got its name
	info, err := from.f.Stat()
	if err != nil {
		return classify(err)
	}
	to, err := openRecovered(temporary, info.Mode().Perm(), &bolt.Options{NoSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = guard("copy", func() error { return bolt.Compact(to.db, from.db, compactBytes) })
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
	compactBytes = 4 << 20 // of keys and values in a transaction
)
