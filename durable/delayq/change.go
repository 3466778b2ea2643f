package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
)

func (a *app) cancelCommand() *cli.Command {
	var headers map[string]string
	var all, interrupt bool
	return a.command(command{
		name: "cancel", usage: "remove messages that have not begun", args: "ID... or -header key=value or -all", most: math.MaxInt, need: changes,
		flags: []cli.Flag{
			header("cancel the messages with this `header`", &headers),
			flag("all", "cancel all messages of the queue that have not begun", &all),
			flag("interrupt", "with ids, also cancel messages that are being delivered", &interrupt),
		},
		check: func(_ context.Context, cmd *cli.Command) error {
			switch {
			case all && len(headers) > 0:
				return usage(cmd, "the command takes -all or -header, not both")
			case interrupt && !cmd.Args().Present():
				return usage(cmd, "-interrupt is set; it needs the ids of messages")
			}
			return idsOr(cmd, all || len(headers) > 0, "-header or -all")
		},
		run: func(ctx context.Context, s *session, ids []string) error {
			switch {
			case all:
				return a.cancelled(s.CancelAll(ctx))
			case len(headers) > 0:
				return a.cancelled(s.CancelMatching(ctx, headers))
			}
			var options []durable.CancelOption
			if interrupt {
				options = append(options, durable.Interrupt)
			}
			return a.changeAll(ids, "cancelled", func(id string) (string, bool, error) { return resultText(s.Cancel(ctx, id, options...)) })
		},
	})
}

// cancelled prints a report. It returns an error if messages are left, or may be left.
func (a *app) cancelled(r durable.CancelReport, err error) error {
	if r.Firing > 0 {
		err = errors.Join(err, fmt.Errorf("%s being delivered; a delivery that fails is repeated", count(r.Firing, "message")))
	}
	return errors.Join(a.result(map[string]int{"cancelled": r.Cancelled, "delivering": r.Firing, "unreadable": r.Unreadable}, count(r.Cancelled, "message")+" cancelled"), err)
}

func (a *app) rescheduleCommand() *cli.Command {
	var m durable.Message
	var repeat bool
	return a.command(command{
		name: "reschedule", usage: "change the due time of a message that has not begun, or the series of a recurring one",
		args: "ID", least: 1, most: 1, accepts: "the command takes the id of one message", need: changes,
		flags: append(dueFlags(&m), &cli.StringFlag{Name: "repeat", Usage: "use this `series`, see delayq enqueue; an empty one ends with the next run", Destination: &m.Repeat}),
		check: func(_ context.Context, cmd *cli.Command) error {
			delay, at := cmd.IsSet("delay"), cmd.IsSet("at")
			if repeat = cmd.IsSet("repeat"); repeat == (delay || at) || delay && at {
				return usage(cmd, "the command takes one of -delay or -at or -repeat")
			}
			return nil
		},
		run: func(ctx context.Context, s *session, ids []string) error {
			return a.changeAll(ids, "rescheduled", func(id string) (string, bool, error) {
				switch {
				case repeat:
					return resultText(s.SetRepeat(ctx, id, m.Repeat))
				case m.At.IsZero():
					return resultText(s.Reschedule(ctx, id, m.Delay))
				}
				return resultText(s.RescheduleAt(ctx, id, m.At))
			})
		},
	})
}

var resultTexts = map[durable.Result]string{
	durable.ResultCancelled: "cancelled", durable.ResultRescheduled: "rescheduled",
	durable.ResultFiring: "being delivered", durable.ResultNotFound: "not found", durable.ResultInterrupted: "cancelled during its delivery",
}

// resultText returns the text of a result, and whether the message was changed.
func resultText(r durable.Result, err error) (text string, ok bool, _ error) {
	return cmp.Or(resultTexts[r], r.String()), r != durable.ResultFiring && r != durable.ResultNotFound, err
}

// changeAll changes messages one after the other and prints the result of each. It stops at the
// first call that fails. It returns an error unless all messages were changed.
func (a *app) changeAll(ids []string, done string, change func(id string) (result string, ok bool, err error)) error {
	changed := 0
	for _, id := range ids {
		result, ok, err := change(id)
		if err != nil {
			return err
		}
		if ok {
			changed++
		}
		if err := a.result(map[string]string{"id": id, "result": result}, id+": "+result); err != nil {
			return err
		}
	}
	if changed < len(ids) {
		return fmt.Errorf("%d of %d messages not %s: see above, and delayq dead list for dead letters", len(ids)-changed, len(ids), done)
	}
	return nil
}

func (a *app) deadCommand() *cli.Command {
	var f durable.DeadFilter
	var o durable.ReplayOptions
	state := "dead"
	rate := option("rate", "replay `N` dead letters per second, evenly; 0 means no limit", &o.Rate, "a number from 0 to 100000",
		func(s string) (float64, bool) {
			n, err := strconv.ParseFloat(s, 64)
			return n, err == nil && 0 <= n && n <= 100_000
		})
	return &cli.Command{
		Name: "dead", Usage: "list, replay or delete dead letters", Description: help("dead"), Action: noCommand, OnUsageError: usageError,
		Commands: []*cli.Command{
			a.listing("dead list", "list dead letters, like delayq list -state dead", &state),
			a.deadChange("replay", "schedule dead letters again as if they had never been delivered", &f,
				[]cli.Flag{duration("delay", "make each message due this `duration` after its replay", &o.Delay, 0), rate},
				func(ctx context.Context, s *session, id string) error { return s.Replay(ctx, id, o.Delay) },
				func(ctx context.Context, s *session) (int, error) { return s.ReplayAll(ctx, f, o) }),
			a.deadChange("delete", "delete dead letters", &f, nil,
				func(ctx context.Context, s *session, id string) error { return s.DeleteDead(ctx, id) },
				func(ctx context.Context, s *session) (int, error) { return s.DeleteAllDead(ctx, f) }),
		},
	}
}

// deadChange returns a command that changes the dead letters whose ids are the arguments, by one,
// or those that the filter selects, by every.
func (a *app) deadChange(verb, text string, f *durable.DeadFilter, flags []cli.Flag, one func(context.Context, *session, string) error,
	every func(context.Context, *session) (int, error),
) *cli.Command {
	const selecting = "-all, -reason, -since and -until"
	done := map[string]string{"replay": "replayed", "delete": "deleted"}[verb]
	return a.command(command{
		name: "dead " + verb, usage: text, args: "ID... or -all, -reason, -since, -until", most: math.MaxInt, need: changes,
		flags: append(flags,
			flag("all", verb+" all dead letters of the queue", &f.All),
			&cli.StringFlag{Name: "reason", Usage: verb + " dead letters whose last error contains this `text`", Destination: &f.Reason},
			pastTime("since", verb+" messages that died at this `time` or later", &f.Since),
			pastTime("until", verb+" messages that died before this `time`", &f.Until)),
		check: func(_ context.Context, cmd *cli.Command) error {
			selected := *f != durable.DeadFilter{}
			switch {
			case cmd.IsSet("rate") && !selected:
				return usage(cmd, "-rate is %v; it must come with one of %s", cmd.Value("rate"), selecting)
			case cmd.IsSet("reason") && strings.TrimSpace(f.Reason) == "":
				return usage(cmd, "-reason is %q; it must not be blank, and -all selects all dead letters", f.Reason)
			case !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until):
				return usage(cmd, "-since is %v and -until is %v; -since must be the earlier time", cmd.Value("since"), cmd.Value("until"))
			case f.All && *f != durable.DeadFilter{All: true}:
				return usage(cmd, "the command takes -all, or -reason, -since and -until, not both")
			}
			return idsOr(cmd, selected, selecting)
		},
		run: func(ctx context.Context, s *session, ids []string) error {
			if len(ids) == 0 {
				n, err := every(ctx, s)
				if n == 0 && err != nil {
					return err
				}
				return errors.Join(a.result(map[string]int{done: n}, count(n, "dead letter")+" "+done), err)
			}
			return changeDead(a, ids, done, func(id string) error { return one(ctx, s, id) })
		},
	})
}

// changeDead is changeAll for dead letters.
func changeDead(a *app, ids []string, done string, change func(id string) error) error {
	return a.changeAll(ids, done, func(id string) (string, bool, error) {
		err := change(id)
		if errors.Is(err, durable.ErrNotFound) {
			return "no dead letter", false, nil
		}
		return done, true, err
	})
}
