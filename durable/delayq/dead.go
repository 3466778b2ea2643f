package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
)

func (a *app) deadCommand() *cli.Command {
	return &cli.Command{
		Name: "dead", Usage: "list, replay or purge dead letters", Description: deadHelp,
		Commands: []*cli.Command{a.deadListCommand(), a.replayCommand(), a.purgeCommand()},
		Action:   noCommand,
	}
}

func (a *app) deadListCommand() *cli.Command {
	n := 100
	return &cli.Command{
		Name: "list", Usage: "list dead letters, as delayq list -state dead does", Flags: []cli.Flag{limit(&n)},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := noArguments(cmd); err != nil {
				return err
			}
			return a.with(ctx, func(s *session) error { return a.list(ctx, s, durable.StateDead, n) })
		},
	}
}

func (a *app) replayCommand() *cli.Command {
	var all bool
	var delay time.Duration
	return &cli.Command{
		Name: "replay", Usage: "schedule dead letters again, as if they had never been delivered", ArgsUsage: "ID... or -all",
		Flags: []cli.Flag{
			flag("all", "replay all dead letters of the queue", &all),
			option("delay", "let them be due this `time` from now", span(&delay, 0)),
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			return a.exhume(ctx, cmd, all, "replayed", func(s *session, id string) error { return s.Replay(ctx, id, delay) },
				func(s *session) (int, error) { return s.ReplayAll(ctx, delay) })
		},
	}
}

func (a *app) purgeCommand() *cli.Command {
	var all bool
	return &cli.Command{
		Name: "purge", Usage: "remove dead letters for good", ArgsUsage: "ID... or -all",
		Flags: []cli.Flag{flag("all", "purge all dead letters of the queue", &all)},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			return a.exhume(ctx, cmd, all, "purged", func(s *session, id string) error { return s.Purge(ctx, id) },
				func(s *session) (int, error) { return s.PurgeAll(ctx) })
		},
	}
}

// exhume replays or purges the dead letters of the arguments, or all.
func (a *app) exhume(ctx context.Context, cmd *cli.Command, all bool, done string, one func(*session, string) error,
	every func(*session) (int, error),
) error {
	if all {
		if err := arguments(cmd, 0, 0, "ids or -all, not both, are accepted"); err != nil {
			return err
		}
		return a.with(ctx, func(s *session) error {
			n, err := every(s)
			return errors.Join(a.printCount(done, n), err)
		})
	}
	if err := arguments(cmd, 1, math.MaxInt, "the ids of dead letters, or -all, are accepted"); err != nil {
		return err
	}
	return a.with(ctx, func(s *session) error {
		return a.changeAll(cmd.Args().Slice(), done, func(id string) (string, bool, error) {
			err := one(s, id)
			if errors.Is(err, durable.ErrNotFound) {
				return "no dead letter", false, nil
			}
			return done, err == nil, err
		})
	})
}

func (a *app) printCount(done string, n int) error {
	if a.json {
		return a.printJSON(map[string]int{done: n})
	}
	return a.print(fmt.Sprintf("%d dead letters %s", n, done))
}

func (a *app) auditCommand() *cli.Command {
	var repair bool
	return &cli.Command{
		Name: "audit", Usage: "look for what a fault of the store has left behind", Description: auditHelp,
		Flags: []cli.Flag{flag("repair", "repair what is found", &repair)},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := noArguments(cmd); err != nil {
				return err
			}
			return a.with(ctx, func(s *session) error { return a.audit(ctx, s, repair) })
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

// audit fails where faults are left, so that a script notices.
func (a *app) audit(ctx context.Context, s *session, repair bool) error {
	r, err := s.Audit(ctx, repair)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(auditJSON(r))
	} else {
		err = a.print(pairs(table.Row{"messages looked at", r.Records}, table.Row{"messages in no set", r.Orphans},
			table.Row{"members of sets without a message", r.Strays}, table.Row{"messages that cannot be read", r.Unreadable},
			table.Row{"wrong sums", r.Wrong}, table.Row{"repaired", r.Repaired}))
	}
	if left := r.Orphans + r.Strays + r.Wrong - r.Repaired; left > 0 && err == nil {
		err = fmt.Errorf("%d faults are left; delayq audit -repair repairs them", left)
	}
	return err
}
