package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// Backup writes a copy of the store to a new directory, which [Open] opens. The copy includes every
// call that returned before Backup was called, and each later call as a whole or not at all.
// Claimed messages are scheduled in the copy. A message that is firing during the backup counts one
// more crash when the copy is opened.
//
// The store stays in use. If dir is on the same file system, Backup links most files and copies
// some megabytes. The linked files keep their space until both directories have removed them.
//
// Backup returns the cause of ctx if ctx has ended at the start, [driver.ErrInvalid] if dir exists,
// and [driver.ErrClosed] or [driver.ErrUnavailable] as other calls do. After an error, dir does not
// exist.
func (s *Store) Backup(ctx context.Context, dir string) error {
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
	select {
	case <-e.failed: // some files may lack changes
		return errors.Join(unavailable(e.failure), s.options.fs.RemoveAll(dir))
	default:
		return nil
	}
}
