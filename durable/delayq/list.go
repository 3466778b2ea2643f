package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// previewBytes is how many bytes of a body or a reason a table shows.
const previewBytes = 40

func (a *app) inspectCommand() *cli.Command {
	return &cli.Command{
		Name: "inspect", Usage: "show all fields of a message", ArgsUsage: "ID", Description: inspectHelp,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := arguments(cmd, 1, 1, "the command takes the id of one message"); err != nil {
				return err
			}
			return a.with(ctx, reads, func(s *session) error { return a.inspect(ctx, s, cmd.Args().First()) })
		},
	}
}

func (a *app) inspect(ctx context.Context, s *session, id string) error {
	r, err := s.Get(ctx, id)
	if err != nil {
		if errors.Is(err, durable.ErrNotFound) {
			err = fmt.Errorf("%w in queue %q: the message may have been delivered, cancelled or purged", err, s.name)
		}
		return err
	}
	stats, err := s.Stats(ctx)
	if err != nil {
		return err
	}
	partition := driver.PartitionOf(id, len(stats.Partitions))
	if a.json {
		return a.printJSON(recordJSON(&r, &partition))
	}
	return a.print(describe(&r, partition))
}

func describe(r *durable.Record, partition int) string {
	rows := []table.Row{
		{"id", preview(r.ID, durable.MaxID)}, {"state", stateName(r.State)}, {"partition", partition},
		{"enqueued", formatTime(r.Enqueued)}, {"due", formatTime(r.Due)}, {"expires", formatTime(r.ExpireAt)},
		{"attempts", fmt.Sprintf("%d failed of %d", r.Attempts, r.MaxAttempts)}, {"crashes", r.Crashes}, {"token", r.Token},
	}
	for _, key := range slices.Sorted(maps.Keys(r.Headers)) {
		rows = append(rows, table.Row{"header " + preview(key, previewBytes), preview(r.Headers[key], 4*previewBytes)})
	}
	if !r.LeaseEnd.IsZero() {
		rows = append(rows, table.Row{"lease ends", formatTime(r.LeaseEnd)})
	}
	if !r.Died.IsZero() {
		rows = append(rows, table.Row{"died", formatTime(r.Died)})
	}
	if r.Reason != "" {
		rows = append(rows, table.Row{"last error", preview(r.Reason, 4*previewBytes)})
	}
	return propertyTable(append(rows, table.Row{"body", fmt.Sprintf("%s (%d bytes)", previewBody(r, 4*previewBytes), len(r.Body))})...)
}

// previewBody returns the first bytes of the body, or why it cannot be read.
func previewBody(r *durable.Record, most int) string {
	if r.Err != nil {
		return r.Err.Error()
	}
	return preview(string(r.Body), most)
}

type listOptions struct {
	state string
	n     int
}

// states are the states that can be listed, by value of -state.
var states = map[string]durable.State{
	"scheduled": durable.StateScheduled, "in-flight": durable.StateLeased, "dead": durable.StateDead,
}

func limit(n *int) cli.Flag {
	return option("n", "list up to `N`; 0 lists all", number(n, 0, math.MaxInt32))
}

func (a *app) listCommand() *cli.Command {
	o := listOptions{state: "scheduled", n: 100}
	return &cli.Command{
		Name: "list", Usage: "list messages in one state", Description: listHelp,
		Flags: []cli.Flag{
			option("state", "list messages in this `state`", oneOf(&o.state, "scheduled", "in-flight", "dead")),
			limit(&o.n),
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := noArguments(cmd); err != nil {
				return err
			}
			return a.with(ctx, reads, func(s *session) error { return a.list(ctx, s, states[o.state], o.n) })
		},
	}
}

// list prints up to n messages, or all if n is 0.
func (a *app) list(ctx context.Context, s *session, state durable.State, n int) error {
	last := map[durable.State]string{durable.StateScheduled: "due", durable.StateLeased: "lease ends", durable.StateDead: "died"}[state]
	t := newTable(table.Row{"id", "state", last, "expires", "failed", "crashes", "headers", "bytes", "body", "last error"})
	shown, more, err := each(s.List(ctx, state), n, func(r *durable.Record) error {
		if a.json {
			return a.printJSON(recordJSON(r, nil))
		}
		at := map[durable.State]time.Time{durable.StateScheduled: r.Due, durable.StateLeased: r.LeaseEnd, durable.StateDead: r.Died}[state]
		t.AppendRow(table.Row{
			preview(r.ID, durable.MaxID), stateName(r.State), formatTime(at), formatTime(r.ExpireAt), fmt.Sprintf("%d of %d", r.Attempts, r.MaxAttempts),
			r.Crashes, previewHeaders(r.Headers), len(r.Body), previewBody(r, previewBytes), preview(r.Reason, previewBytes),
		})
		return nil
	})
	switch {
	case err != nil:
		return err
	case !a.json && shown > 0:
		if err := a.print(t.Render()); err != nil {
			return err
		}
	case shown == 0:
		fmt.Fprintf(a.stderr, "delayq: queue %q has no such messages\n", s.name)
	}
	if more {
		fmt.Fprintf(a.stderr, "delayq: there are more than these %d messages; -n 0 lists all\n", shown)
	}
	return nil
}

// previewHeaders returns headers in the order of their keys.
func previewHeaders(headers map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(headers)) {
		pairs = append(pairs, key+"="+headers[key])
	}
	return preview(strings.Join(pairs, " "), previewBytes)
}

// each calls f for up to n records, or for all if n is 0, and reports whether there are more.
func each(records iter.Seq2[durable.Record, error], n int, f func(*durable.Record) error) (shown int, more bool, err error) {
	for r, err := range records {
		if err != nil {
			return shown, false, err
		}
		if n > 0 && shown == n {
			return shown, true, nil
		}
		if err := f(&r); err != nil {
			return shown, false, err
		}
		shown++
	}
	return shown, false, nil
}
