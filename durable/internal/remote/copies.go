package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// copyPrefix begins the names of copies. A copy is in the directory of its store, which both
// processes may know by different paths, so that no other file is in danger.
const copyPrefix = "timingwheel.copy-"

// copyTime is how long a copy may be in use without a lock: while it is made, or written elsewhere.
const copyTime = 2 * time.Hour

// CopyName returns a new name of a copy.
func CopyName() string {
	return copyPrefix + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
}

// RemoveCopies removes the copies in a directory whose processes were killed. The others are locked
// or new.
func RemoveCopies(dir string, lock func(dir string) (io.Closer, error)) {
	names, _ := os.ReadDir(dir)
	for _, name := range names {
		copied := filepath.Join(dir, name.Name())
		info, err := name.Info()
		if err != nil || !strings.HasPrefix(name.Name(), copyPrefix) || time.Since(info.ModTime()) < copyTime {
			continue
		}
		if locked, err := lock(copied); err == nil {
			_ = errors.Join(os.RemoveAll(copied), locked.Close()) // the next process tries again
		}
	}
}

// copy makes a copy for another process, and removes it if that process no longer waits.
func (v *Server) copy(ctx context.Context, name string) error {
	if name != filepath.Base(name) || !strings.HasPrefix(name, copyPrefix) {
		return fmt.Errorf("%s: backup: %w name %q; it must begin with %s", v.name, driver.ErrInvalid, name, copyPrefix)
	}
	to := filepath.Join(v.dir, name)
	err := v.store.Backup(ctx, to)
	if ctx.Err() != nil && !errors.Is(err, driver.ErrInvalid) {
		err = errors.Join(context.Cause(ctx), os.RemoveAll(to))
	}
	return err
}

// Copy makes the other process write a copy with a name to the directory.
func (c *Client) Copy(ctx context.Context, name string) error {
	_, err := do[any](ctx, c, driver.Config{}, query{Method: "Backup"}) // a process that refuses it is not frozen
	if errors.Is(err, driver.ErrInvalid) {
		_, err = do[any](ctx, c, driver.Config{RetryFor: copyTime / 2}, query{Method: "Backup", Name: name})
	}
	return err
}

// Backup makes the other process copy the directory, and moves the copy to the new directory dir.
func (c *Client) Backup(ctx context.Context, dir string) error {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: backup: %w path %q; it must not exist", c.name, driver.ErrInvalid, dir)
	}
	name := CopyName()
	if err := c.Copy(ctx, name); err != nil {
		return err
	}
	copied := filepath.Join(filepath.Dir(c.path), name)
	err := os.Rename(copied, dir)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EXDEV):
		err = fmt.Errorf("%w path: %w; it must be on the file system of the store", driver.ErrInvalid, err)
	}
	return errors.Join(fmt.Errorf("%s: backup: %w", c.name, err), os.RemoveAll(copied))
}
