package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
)

func (a *app) cancelCommand() *cli.Command {
	var headers map[string]string
	var all bool
	return &cli.Command{
		Name: "cancel", Usage: "remove messages that have not begun", ArgsUsage: "ID... or -header key=value or -all",
		Description: cancelHelp,
		Flags: []cli.Flag{
			option("header", "cancel the messages with this `header`", header(&headers)),
			flag("all", "cancel all messages of the queue that have not begun", &all),
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if all && len(headers) > 0 {
				return usage(cmd, "the command takes -all or -header, not both")
			}
			if all || len(headers) > 0 {
				if err := arguments(cmd, 0, 0, "the command takes ids or -header or -all, not both"); err != nil {
					return err
				}
				return a.with(ctx, changes, func(s *session) error { return a.cancelMatching(ctx, s, headers) })
			}
			if err := arguments(cmd, 1, math.MaxInt, "the command takes ids of messages, or -header, or -all"); err != nil {
				return err
			}
			return a.with(ctx, changes, func(s *session) error {
				return a.changeAll(cmd.Args().Slice(), "cancelled", func(id string) (string, bool, error) {
					result, err := s.Cancel(ctx, id)
					return resultName(result), result == durable.Cancelled, err
				})
			})
		},
	}
}

// cancelMatching cancels all messages if there are no headers. It returns an error if matching
// messages are left, or may be left.
func (a *app) cancelMatching(ctx context.Context, s *session, headers map[string]string) error {
	cancel := s.CancelAll
	if len(headers) > 0 {
		cancel = func(ctx context.Context) (durable.CancelReport, error) { return s.CancelMatching(ctx, headers) }
	}
	r, err := cancel(ctx)
	if r.Firing > 0 {
		err = errors.Join(err, fmt.Errorf("%d messages are being delivered, and are delivered again if that fails", r.Firing))
	}
	counts := map[string]int{"cancelled": r.Cancelled, "delivering": r.Firing, "unreadable": r.Unreadable}
	return errors.Join(a.result(counts, fmt.Sprintf("%d messages cancelled", r.Cancelled)), err)
}

func (a *app) rescheduleCommand() *cli.Command {
	var d due
	return &cli.Command{
		Name: "reschedule", Usage: "change the due time of a message that has not begun", ArgsUsage: "ID", Description: rescheduleHelp,
		Flags: d.flags(),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := arguments(cmd, 1, 1, "the command takes the id of one message"); err != nil {
				return err
			}
			if err := d.check(cmd, true); err != nil {
				return err
			}
			return a.with(ctx, changes, func(s *session) error {
				return a.changeAll(cmd.Args().Slice(), "rescheduled", func(id string) (string, bool, error) {
					result, err := reschedule(ctx, s, id, d)
					if result == durable.Rescheduled && !a.json {
						return fmt.Sprintf("due %v", &d), true, err
					}
					return resultName(result), result == durable.Rescheduled, err
				})
			})
		},
	}
}

func reschedule(ctx context.Context, s *session, id string, d due) (durable.Result, error) {
	if d.at.IsZero() {
		return s.Reschedule(ctx, id, d.delay)
	}
	return s.RescheduleAt(ctx, id, d.at)
}

func resultName(r durable.Result) string {
	return []string{durable.Cancelled: "cancelled", durable.Rescheduled: "rescheduled", durable.Firing: "being delivered", durable.NotFound: "not found"}[r]
}

// changeAll changes messages one after the other and prints the result of each. It stops at the
// first call that fails, and returns an error unless all messages were changed.
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
		return fmt.Errorf("%d of %d messages %s: the others are being delivered, are dead letters, or were not found", changed, len(ids), done)
	}
	return nil
}
