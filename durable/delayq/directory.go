package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable/delayq/internal/storeurl"
	"github.com/timingwheel-go/timingwheel/durable/internal/remote"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
)

func (a *app) backupCommand() *cli.Command {
	return a.command(command{
		name: "backup", usage: "write a copy of a directory, which may be in use", need: access{storeOnly: true},
		args: "FILE", least: 1, most: 1, accepts: "the command takes the name of a new file, or - for stdout",
		check: func(context.Context, *cli.Command) error {
			if _, ok := storeurl.Path(a.store); !ok {
				return fmt.Errorf("store is %q; it must be dir:PATH", storeurl.Redact(a.store))
			}
			return nil
		},
		run: func(ctx context.Context, s *session, files []string) error {
			dir, _ := storeurl.Path(a.store)
			return a.backup(ctx, s.store.(*pebblestore.Store), dir, files[0]) //nolint:errcheck,forcetypeassert // see check
		},
	})
}

// backupTime limits a backup, because its copy keeps space that the store could use.
const backupTime = time.Hour

// backup makes a copy in the directory, closes the store, writes the copy to a new file, and
// removes it. The file is removed as well if the backup fails.
func (a *app) backup(ctx context.Context, store *pebblestore.Store, dir, file string) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, backupTime, fmt.Errorf("the backup took longer than %v", backupTime))
	defer cancel()
	copied := filepath.Join(dir, remote.CopyName()) // which the store removes if this process is killed
	defer func() { err = errors.Join(err, os.RemoveAll(copied)) }()
	if err := errors.Join(store.Backup(ctx, copied), store.Close()); err != nil {
		return err
	}
	if file == "-" {
		return writeTar(ctx, a.stdout, copied)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = writeTar(ctx, f, copied)
	n, _ := f.Seek(0, io.SeekEnd)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	return a.result(map[string]int64{"bytes": n}, count(n, "byte")+" written")
}

// writeTar writes the files of a directory as a tar archive until ctx ends.
func writeTar(ctx context.Context, w io.Writer, dir string) error {
	return until(ctx, func() error { // the reader of stdout may be slow
		archive := tar.NewWriter(w)
		return errors.Join(archive.AddFS(os.DirFS(dir)), archive.Close())
	})
}
