package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/boltstore"
	"github.com/timingwheel-go/timingwheel/durable/delayq/internal/storeurl"
)

func (a *app) backupCommand() *cli.Command {
	return &cli.Command{
		Name: "backup", Usage: "copy a file store, which may be in use", ArgsUsage: "FILE", Description: backupHelp,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := arguments(cmd, 1, 1, "the command takes the name of a new file"); err != nil {
				return err
			}
			if _, err := a.filePath(); err != nil {
				return err
			}
			defer a.reportWaiting(ctx)()
			store, closeStore, err := a.open(a.store)
			if err != nil {
				return withRemedy(err)
			}
			return errors.Join(withRemedy(a.backup(ctx, store, cmd.Args().First())), closeStore())
		},
	}
}

// filePath returns the path of the store's file, or an error if the store is not a file or the file
// does not exist.
func (a *app) filePath() (string, error) {
	if err := a.check(); err != nil {
		return "", err
	}
	path, ok := storeurl.Path(a.store)
	if !ok {
		return "", fmt.Errorf("store is %q; it must be file:PATH", storeurl.Redact(a.store))
	}
	return path, a.mustExist()
}

// backup writes a backup to a new file, and removes the file if the backup fails.
func (a *app) backup(ctx context.Context, store durable.Store, path string) (err error) {
	source, ok := store.(interface {
		Backup(ctx context.Context, w io.Writer) (int64, error)
	})
	if !ok {
		return fmt.Errorf("store %q does not support backups", a.store)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := source.Backup(ctx, f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	if a.json {
		return a.printJSON(map[string]int64{"bytes": n})
	}
	return a.print(fmt.Sprintf("%d bytes written", n))
}

func (a *app) compactCommand() *cli.Command {
	return &cli.Command{
		Name: "compact", Usage: "copy a file store without its free pages", ArgsUsage: "FILE", Description: compactHelp,
		Action: func(_ context.Context, cmd *cli.Command) error {
			if err := arguments(cmd, 1, 1, "the command takes the name of a new file"); err != nil {
				return err
			}
			path, err := a.filePath()
			if err != nil {
				return err
			}
			return withRemedy(boltstore.Compact(path, cmd.Args().First()))
		},
	}
}
