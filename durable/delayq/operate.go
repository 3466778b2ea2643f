package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/delayq/internal/storeurl"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/internal/remote"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
)

// state returns a command that calls f and prints the state of the queue.
func (a *app) state(c command, property string, value bool, f func(*durable.Queue, context.Context) error) *cli.Command {
	c.run = func(ctx context.Context, s *session, ids []string) error {
		ctx, cancel := c.need.limited(ctx)
		defer cancel()
		if len(ids) > 0 { // of delayq resume
			return changeDead(a, ids, "resumed", func(id string) error { return s.Replay(ctx, id, 0) })
		}
		if err := f(s.Queue, ctx); err != nil {
			return err
		}
		return a.result(map[string]any{"queue": s.Options().Queue, property: value}, "queue "+s.Options().Queue+map[bool]string{true: " is ", false: " is not "}[value]+property)
	}
	return a.command(c)
}

func (a *app) auditCommand() *cli.Command {
	var repair bool
	c := a.command(command{
		name: "audit", usage: "look for damage in the store", need: audits, flags: []cli.Flag{flag("repair", "repair the faults", &repair)},
		check: func(_ context.Context, cmd *cli.Command) error {
			if _, ok := storeurl.Path(a.store); ok && repair {
				return usage(cmd, "-repair is set; a directory has no repair, restore a backup instead")
			}
			return nil
		},
		run: func(ctx context.Context, s *session, _ []string) error { return a.audit(ctx, s, repair) },
	})
	c.Aliases = []string{"check"}
	return c
}

// audit returns an error if faults are left, so that scripts can detect them.
func (a *app) audit(ctx context.Context, s *session, repair bool) error {
	if repair { // which clears the names of lost keys
		_ = s.Healthy(ctx) // the queue has reported them then; an audit fails without the store as well
	}
	r, err := s.Audit(ctx, repair)
	if err != nil {
		return err
	}
	err = a.result(object(r), propertyTable(table.Row{"messages checked", r.Records}, table.Row{"messages in no set", r.Orphans},
		table.Row{"members of sets without a message", r.Strays}, table.Row{"messages that cannot be read", r.Unreadable},
		table.Row{"wrong sums", r.Wrong}, table.Row{"repaired", r.Repaired}))
	if left := r.Orphans + r.Strays + r.Wrong - r.Repaired; left > 0 && err == nil {
		err = fmt.Errorf("%s left; delayq audit -repair repairs messages, sets and sums", count(left, "fault"))
	}
	return err
}

// queuesCommand lists the queues of the store. Its subcommands delete and change one.
func (a *app) queuesCommand() *cli.Command {
	var force bool
	list := a.command(command{
		name: "queues", usage: "list, delete and change the queues of the store", need: access{Use: reads.Use, storeOnly: true},
		accepts: "the subcommands are delete and set",
		run: func(ctx context.Context, s *session, _ []string) error {
			names, err := durable.Queues(ctx, s.store)
			for _, name := range names {
				err = errors.Join(err, a.result(map[string]string{"queue": name}, name))
			}
			return err
		},
	})
	remove := a.command(command{
		name: "queues delete", usage: "delete a queue with all its messages", need: access{storeOnly: true},
		args: "NAME", least: 1, most: 1, accepts: "the command takes the name of one queue",
		flags: []cli.Flag{flag("force", "delete the queue although it has consumers, which end", &force)},
		run: func(ctx context.Context, s *session, names []string) error {
			if err := durable.DeleteQueue(ctx, s.store, names[0], force); err != nil {
				return err
			}
			return a.result(map[string]any{"queue": names[0], "deleted": true}, "queue "+names[0]+" is deleted")
		},
	})
	set := a.command(command{
		name: "queues set", usage: "print and change the limits of a queue", need: changes,
		args: "NAME", least: 1, most: 1, accepts: "the command takes the name of one queue",
		flags: []cli.Flag{
			number("max-body", "accept bodies of up to this `number` of bytes", &a.limits.MaxBody, 1, maxBody),
			number("max-attempts", "bury a message after this `number` of failed deliveries", &a.limits.MaxAttempts, 1, math.MaxInt32),
			number("dead-limit", "keep this `number` of dead letters in each partition", &a.limits.DeadLimit, 1, math.MaxInt32),
			number("dead-bytes", "keep dead letters of this `number` of bytes in each partition", &a.limits.DeadBytes, 1, math.MaxInt64),
			duration("dead-age", "keep dead letters for this `duration`", &a.limits.DeadAge, time.Millisecond),
		},
		check: func(_ context.Context, cmd *cli.Command) error {
			a.queue, a.limits.Update = cmd.Args().First(), cmd.NumFlags() > 0
			return nil
		},
		run: func(_ context.Context, s *session, _ []string) error {
			o := s.Options()
			return a.result(map[string]any{
				"queue": o.Queue, "partitions": o.Partitions, "maxBody": o.MaxBody, "maxAttempts": o.MaxAttempts,
				"deadLimit": o.DeadLimit, "deadBytes": o.DeadBytes, "deadAgeMs": o.DeadAge.Milliseconds(),
			}, propertyTable(table.Row{"partitions", o.Partitions}, table.Row{"bytes of a body", o.MaxBody},
				table.Row{"failed deliveries", o.MaxAttempts}, table.Row{"dead letters", o.DeadLimit},
				table.Row{"bytes of dead letters", o.DeadBytes}, table.Row{"age of dead letters", formatDuration(o.DeadAge)}))
		},
	})
	list.Commands = []*cli.Command{remove, set}
	return list
}

func (a *app) consumers(ctx context.Context, s *session, _ []string) error {
	all, err := s.Consumers(ctx)
	if err != nil {
		return err
	}
	t := newTable("host", "process", "partitions", "waiting", "oldest run", "last heartbeat", "expires", "id")
	t.SetColumnConfigs([]table.ColumnConfig{{Name: "partitions", WidthMax: 20, WidthMaxEnforcer: text.WrapSoft}})
	for _, c := range all {
		if a.json {
			c.Partitions = append([]int{}, c.Partitions...) // [] if there are none
			if err := a.printJSON(object(c)); err != nil {
				return err
			}
		}
		t.AppendRow(table.Row{
			preview(c.Host, previewColumns), c.PID, strings.Trim(fmt.Sprint(c.Partitions), "[]"), c.Waiting, formatDuration(c.OldestRun), formatTime(c.LastHeartbeat), formatTime(c.Expires), preview(c.ID, contract.MaxID),
		})
	}
	if len(all) == 0 {
		a.note("queue %q has no consumers", s.Options().Queue)
	}
	return a.printTable(t)
}

func (a *app) backupCommand() *cli.Command {
	return a.command(command{
		name: "backup", usage: "write a copy of a directory, which may be in use", need: access{only: "dir:PATH", storeOnly: true},
		args: "FILE", least: 1, most: 1, accepts: "the command takes the name of a new file, or - for stdout",
		run: func(ctx context.Context, s *session, files []string) error {
			dir, _ := storeurl.Path(a.store)
			return a.backup(ctx, s.store.(*pebblestore.Store), dir, files[0]) //nolint:errcheck,forcetypeassert // see access.only
		},
	})
}

func (a *app) migrateCommand() *cli.Command {
	return a.command(command{
		name: "migrate", usage: "create or update the schema of a PostgreSQL database",
		need: access{only: "postgres://[user[:password]@]host[:port][/database]", storeOnly: true},
		run: func(ctx context.Context, s *session, _ []string) error {
			p := s.store.(*storeurl.Postgres) //nolint:errcheck,forcetypeassert // see access.only
			changed, err := p.Migrate(ctx)
			if err != nil {
				return err
			}
			return a.result(map[string]any{"schema": p.Schema, "migrated": changed}, "schema "+p.Schema+map[bool]string{true: " is migrated", false: " was up to date"}[changed])
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
