package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

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
		Name: "list", Usage: "list dead letters, like delayq list -state dead", Flags: []cli.Flag{limit(&n)},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := noArguments(cmd); err != nil {
				return err
			}
			return a.with(ctx, reads, func(s *session) error { return a.list(ctx, s, durable.StateDead, n) })
		},
	}
}

// selecting returns the flags that select dead letters, instead of ids.
func selecting(f *durable.DeadFilter, verb string) []cli.Flag {
	return []cli.Flag{
		flag("all", verb+" all dead letters of the queue", &f.All),
		&cli.StringFlag{Name: "reason", Usage: verb + " dead letters whose last error contains this `text`", Destination: &f.Reason},
		option("since", verb+" messages that died at this `time` or later", pastTime(&f.Since)),
		option("until", verb+" messages that died before this `time`", pastTime(&f.Until)),
	}
}

func (a *app) replayCommand() *cli.Command {
	var which durable.DeadFilter
	var o durable.ReplayOptions
	return &cli.Command{
		Name: "replay", Usage: "schedule dead letters again as if they had never been delivered",
		ArgsUsage: "ID... or -all, -reason, -since, -until",
		Flags: append(selecting(&which, "replay"),
			option("delay", "make each message due this `duration` after its replay", duration(&o.Delay, 0)),
			option("rate", "replay `N` dead letters a second, evenly; 0 means no limit",
				within(&o.Rate, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }, 0, 100_000, "a number"))),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if o.Rate > 0 && which == (durable.DeadFilter{}) {
				return usage(cmd, "-rate is %v; it must come with -all, -reason, -since or -until", o.Rate)
			}
			return a.changeDead(ctx, cmd, which, "replayed", func(s *session, id string) error { return s.Replay(ctx, id, o.Delay) },
				func(s *session) (int, error) { return s.ReplayAll(ctx, which, o) })
		},
	}
}

func (a *app) purgeCommand() *cli.Command {
	var which durable.DeadFilter
	return &cli.Command{
		Name: "purge", Usage: "delete dead letters", ArgsUsage: "ID... or -all, -reason, -since, -until",
		Flags: selecting(&which, "purge"),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			return a.changeDead(ctx, cmd, which, "purged", func(s *session, id string) error { return s.Purge(ctx, id) },
				func(s *session) (int, error) { return s.PurgeAll(ctx, which) })
		},
	}
}

// changeDead replays or purges the dead letters whose ids are the arguments, or the selected ones.
func (a *app) changeDead(ctx context.Context, cmd *cli.Command, which durable.DeadFilter, done string, one func(*session, string) error,
	every func(*session) (int, error),
) error {
	switch {
	case cmd.IsSet("reason") && which.Reason == "":
		return usage(cmd, "-reason is %q; it must not be empty, and -all selects all dead letters", "")
	case which.All && which != (durable.DeadFilter{All: true}):
		return usage(cmd, "the command takes -all, or -reason, -since and -until, not both")
	}
	if which != (durable.DeadFilter{}) {
		if err := arguments(cmd, 0, 0, "the command takes ids or -all, -reason, -since and -until, not both"); err != nil {
			return err
		}
		return a.with(ctx, changes, func(s *session) error {
			n, err := every(s)
			return errors.Join(a.printCount(done, n), err)
		})
	}
	if err := arguments(cmd, 1, math.MaxInt, "the command takes ids of dead letters, or -all, -reason, -since or -until"); err != nil {
		return err
	}
	return a.with(ctx, changes, func(s *session) error {
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
	return a.result(map[string]int{done: n}, fmt.Sprintf("%d dead letters %s", n, done))
}
