package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// previewColumns is how many columns of a table a body or a reason has.
const previewColumns = 40

func (a *app) inspect(ctx context.Context, s *session, ids []string) error {
	r, err := s.Get(ctx, ids[0])
	if err != nil {
		if errors.Is(err, durable.ErrNotFound) {
			err = fmt.Errorf("queue %q: %w with id %q; it may have been delivered, cancelled or deleted", s.Options().Queue, durable.ErrNotFound, ids[0])
		}
		return err
	}
	stats, err := s.Stats(ctx)
	if err != nil {
		return err
	}
	partition := contract.PartitionOf(r.ID, len(stats.Partitions))
	j := recordJSON(&r)
	j["partition"] = partition
	return a.result(j, describe(&r, partition))
}

func describe(r *durable.Record, partition int) string {
	rows := []table.Row{
		{"id", preview(r.ID, contract.MaxID)}, {"state", stateNames[r.State]}, {"partition", partition},
		{"enqueued", formatTime(r.Enqueued)}, {"due", due(r)}, {"repeats", cmp.Or(r.Repeat, "-")}, {"expires", formatTime(r.ExpireAt)},
		{"lease ends", formatTime(r.LeaseEnd)}, {"died", formatTime(r.Died)}, {"last error", cmp.Or(preview(r.Reason, 4*previewColumns), "-")},
		{"attempts", fmt.Sprintf("%d failed of %d", r.Attempts, r.MaxAttempts)}, {"crashes", r.Crashes},
	}
	for _, key := range slices.Sorted(maps.Keys(r.Headers)) {
		rows = append(rows, table.Row{"header " + preview(key, previewColumns), preview(r.Headers[key], 4*previewColumns)})
	}
	return propertyTable(append(rows, table.Row{"body", fmt.Sprintf("%s (%s)", previewBody(r, 4*previewColumns), count(len(r.Body), "byte"))})...)
}

// previewBody returns the first bytes of the body, or why it cannot be read.
func previewBody(r *durable.Record, most int) string {
	if r.Err != nil {
		return r.Err.Error()
	}
	return preview(string(r.Body), most)
}

// times are the states that a list can have, with the times that order it.
var times = map[string]struct {
	state durable.State
	name  string
	of    func(*durable.Record) string
}{
	"scheduled": {durable.StateScheduled, "due", due},
	"in-flight": {durable.StateLeased, "lease ends", func(r *durable.Record) string { return formatTime(r.LeaseEnd) }},
	"dead":      {durable.StateDead, "died", func(r *durable.Record) string { return formatTime(r.Died) }},
}

// due returns the due time of a message, or that crashes have stopped a recurring one.
func due(r *durable.Record) string {
	if r.Repeat != "" && !r.Due.Before(driver.Never.Time()) {
		return "stopped, see delayq resume"
	}
	return formatTime(r.Due)
}

func (a *app) listCommand() *cli.Command {
	state := "scheduled"
	c := a.listing("list", "list messages in one state", &state)
	c.Flags = append(c.Flags, option("state", "list messages in this `state`", &state, "scheduled or in-flight or dead", func(s string) (string, bool) {
		_, ok := times[s]
		return s, ok
	}))
	return c
}

// listing returns a command that lists up to n messages in a state, or all if n is 0.
func (a *app) listing(name, usage string, state *string) *cli.Command {
	n := 100
	most := number("n", "list up to `N` messages; 0 lists all", &n, 0, math.MaxInt32)
	run := func(ctx context.Context, s *session, _ []string) error {
		order, shown := times[*state], 0
		t := newTable("id", "state", order.name, "repeats", "expires", "failed", "crashes", "headers", "bytes", "body", "last error")
		for r, err := range s.List(ctx, order.state) {
			if err != nil {
				return err
			}
			if n > 0 && shown == n {
				defer a.note("the list ends after %s; -n 0 lists all", count(shown, "message"))
				break
			}
			shown++
			if a.json {
				if err := a.printJSON(recordJSON(&r)); err != nil {
					return err
				}
				continue
			}
			t.AppendRow(table.Row{
				preview(r.ID, contract.MaxID), stateNames[r.State], order.of(&r), r.Repeat, formatTime(r.ExpireAt),
				fmt.Sprintf("%d of %d", r.Attempts, r.MaxAttempts), r.Crashes, previewHeaders(r.Headers), len(r.Body), previewBody(&r, previewColumns), preview(r.Reason, previewColumns),
			})
		}
		if shown == 0 {
			a.note("queue %q has no such messages", s.Options().Queue)
		}
		return a.printTable(t)
	}
	return a.command(command{name: name, usage: usage, need: reads, flags: []cli.Flag{most}, run: run})
}

// previewHeaders returns headers in order of key.
func previewHeaders(headers map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(headers)) {
		pairs = append(pairs, key+"="+headers[key])
	}
	return preview(strings.Join(pairs, " "), previewColumns)
}
