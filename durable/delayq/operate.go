package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/delayq/internal/storeurl"
)

// queueCommand returns a command without arguments that operates on the queue.
func (a *app) queueCommand(name, usage, description string, need access, f func(ctx context.Context, s *session) error) *cli.Command {
	return &cli.Command{
		Name: name, Usage: usage, Description: description,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := noArguments(cmd); err != nil {
				return err
			}
			return a.with(ctx, need, func(s *session) error { return f(ctx, s) })
		},
	}
}

func (a *app) pauseCommand() *cli.Command {
	return a.queueCommand("pause", "stop the delivery of messages", pauseHelp, changes, func(ctx context.Context, s *session) error {
		return a.printPaused(s, s.Pause(ctx), true, "is paused")
	})
}

func (a *app) resumeCommand() *cli.Command {
	return a.queueCommand("resume", "resume the delivery of messages", resumeHelp, changes, func(ctx context.Context, s *session) error {
		return a.printPaused(s, s.Resume(ctx), false, "is not paused")
	})
}

func (a *app) printPaused(s *session, err error, paused bool, text string) error {
	if err != nil {
		return err
	}
	return a.result(map[string]any{"queue": s.name, "paused": paused}, "queue "+s.name+" "+text)
}

// healthCommand is the only command that rejects a server that may lose messages.
func (a *app) healthCommand() *cli.Command {
	return a.queueCommand("health", "check that the store answers and cannot lose messages", healthHelp,
		checks, func(ctx context.Context, s *session) error {
			ctx, cancel := checks.limited(ctx)
			defer cancel()
			if err := s.Healthy(ctx); err != nil {
				return err
			}
			return a.result(map[string]any{"queue": s.name, "healthy": true}, "queue "+s.name+" is healthy")
		})
}

func (a *app) auditCommand() *cli.Command {
	var repair bool
	return &cli.Command{
		Name: "audit", Aliases: []string{"check"}, Usage: "look for damage in the store", Description: auditHelp,
		Flags: []cli.Flag{flag("repair", "repair the faults", &repair)},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := noArguments(cmd); err != nil {
				return err
			}
			if _, ok := storeurl.Path(a.store); ok && repair {
				return usage(cmd, "-repair is set; a directory has no repair, restore a backup instead")
			}
			return a.with(ctx, audits, func(s *session) error { return a.audit(ctx, s, repair) })
		},
	}
}

type auditJSON struct {
	Records    int64 `json:"records"`
	Orphans    int64 `json:"orphans"`
	Strays     int64 `json:"strays"`
	Unreadable int64 `json:"unreadable"`
	Wrong      int64 `json:"wrong"`
	Repaired   int64 `json:"repaired"`
}

// audit returns an error if faults are left, so that scripts can detect them.
func (a *app) audit(ctx context.Context, s *session, repair bool) error {
	r, err := s.Audit(ctx, repair)
	if err != nil {
		return err
	}
	err = a.result(auditJSON(r), propertyTable(table.Row{"messages checked", r.Records}, table.Row{"messages in no set", r.Orphans},
		table.Row{"members of sets without a message", r.Strays}, table.Row{"messages that cannot be read", r.Unreadable},
		table.Row{"wrong sums", r.Wrong}, table.Row{"repaired", r.Repaired}))
	if left := r.Orphans + r.Strays + r.Wrong - r.Repaired; left > 0 && err == nil {
		err = fmt.Errorf("%d faults are left; delayq audit -repair repairs them", left)
	}
	return err
}

// queuesCommand lists the queues of the store. Its subcommand deletes a queue.
func (a *app) queuesCommand() *cli.Command {
	var force bool
	return &cli.Command{
		Name: "queues", Usage: "list the queues of the store, or delete one", Description: queuesHelp,
		Commands: []*cli.Command{{
			Name: "delete", Usage: "delete a queue with all its messages", ArgsUsage: "NAME",
			Flags: []cli.Flag{flag("force", "delete the queue although it has consumers, which end", &force)},
			Action: func(ctx context.Context, cmd *cli.Command) error {
				if err := arguments(cmd, 1, 1, "the command takes the name of one queue"); err != nil {
					return err
				}
				return a.onStore(ctx, changes.Use, func(store durable.Store) error {
					name := cmd.Args().First()
					if err := durable.DeleteQueue(ctx, store, name, force); err != nil {
						return err
					}
					return a.result(map[string]any{"queue": name, "deleted": true}, "queue "+name+" is deleted")
				})
			},
		}},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return noCommand(ctx, cmd)
			}
			return a.onStore(ctx, reads.Use, func(store durable.Store) error { return a.queues(ctx, store) })
		},
	}
}

func (a *app) queues(ctx context.Context, store durable.Store) error {
	names, err := durable.Queues(ctx, store)
	for _, name := range names {
		err = errors.Join(err, a.result(map[string]string{"queue": name}, name))
	}
	if len(names) == 0 && err == nil {
		fmt.Fprintln(a.stderr, "delayq: the store has no queues")
	}
	return err
}

func (a *app) consumersCommand() *cli.Command {
	return a.queueCommand("consumers", "list the consumers of the queue", consumersHelp, reads, a.consumers)
}

type consumerJSON struct {
	ID            string    `json:"id"`
	Host          string    `json:"host"`
	PID           int       `json:"pid"`
	Partitions    []int     `json:"partitions"`
	LastHeartbeat time.Time `json:"lastHeartbeat,omitzero"`
	Expires       time.Time `json:"expires"`
}

func (a *app) consumers(ctx context.Context, s *session) error {
	all, err := s.Consumers(ctx)
	if err != nil {
		return err
	}
	t := newTable(table.Row{"host", "process", "partitions", "last heartbeat", "expires", "id"})
	for _, c := range all {
		if a.json {
			j := consumerJSON{c.ID, c.Host, c.PID, append([]int{}, c.Partitions...), timeJSON(c.LastHeartbeat), timeJSON(c.Expires)}
			if err := a.printJSON(j); err != nil {
				return err
			}
			continue
		}
		t.AppendRow(table.Row{
			preview(c.Host, previewBytes), c.PID, ranges(c.Partitions), formatTime(c.LastHeartbeat), formatTime(c.Expires), preview(c.ID, durable.MaxID),
		})
	}
	switch {
	case len(all) == 0:
		fmt.Fprintf(a.stderr, "delayq: queue %q has no consumers\n", s.name)
	case !a.json:
		return a.print(t.Render())
	}
	return nil
}

// ranges formats ascending numbers as ranges, as in "0-3, 7".
func ranges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		first := i
		for i++; i < len(numbers) && numbers[i] == numbers[i-1]+1; i++ {
		}
		part := strconv.Itoa(numbers[first])
		if i-first > 1 {
			part += "-" + strconv.Itoa(numbers[i-1])
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
