package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

func (a *app) watchCommand() *cli.Command {
	interval, n, partitions := time.Second, 0, false
	return a.command(command{
		name: "watch", usage: "show the counts of the queue until Ctrl-C", need: watches,
		flags: []cli.Flag{
			duration("interval", "update once in this `duration`", &interval, 10*time.Millisecond),
			number("n", "end after `N` updates; 0 continues until Ctrl-C", &n, 0, math.MaxInt32),
			flag("partitions", "show each partition too", &partitions),
		},
		run: func(ctx context.Context, s *session, _ []string) error {
			return a.watch(ctx, s, interval, n, partitions)
		},
	})
}

// watch reads the counts of the queue once in each interval. If the store cannot be reached, watch
// skips the update, because the next one may succeed.
func (a *app) watch(ctx context.Context, s *session, interval time.Duration, n int, partitions bool) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var before durable.Stats
	for updates := 1; ; updates++ {
		stats, err := s.Stats(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, durable.ErrUnavailable) && !before.Now.IsZero():
			a.note("%v", err)
		case err != nil:
			return err
		default:
			if err := a.show(&sample{s.Options().Queue, stats, before}, partitions); err != nil {
				return err
			}
			before = stats
		}
		if updates == n {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// show prints a sample as JSON or as a table. On a terminal the table replaces the previous one.
func (a *app) show(s *sample, partitions bool) error {
	if a.json {
		return a.printJSON(s.json(partitions))
	}
	lines := strings.Split(s.table(partitions), "\n")
	if columns, rows := a.size(); columns > 0 {
		if shown := max(1, rows-2); len(lines) > shown+1 { // the cursor is in the row below
			lines = append(lines[:shown], fmt.Sprintf("… %d more lines do not fit in the window", len(lines)-shown))
		}
		for i, line := range lines {
			lines[i] = text.Trim(line, columns)
		}
		lines[0] = "\x1b[H\x1b[J" + lines[0] // clears the screen
	}
	return a.print(strings.Join(lines, "\n"))
}

// sample is the state of the queue, with the previous one.
type sample struct {
	queue         string
	stats, before durable.Stats // before is zero in the first sample
}

// part is the state of the queue or of a partition.
type part struct {
	name        string
	now, before durable.Counts // before is zero in the first sample
	overdue     time.Duration
}

// parts returns the state of the queue and, if partitions is true, of each partition.
func (s *sample) parts(partitions bool) []part {
	parts := []part{{"queue", s.stats.Counts, s.before.Counts, s.stats.OverdueFor}}
	for i, c := range s.stats.Partitions {
		p := part{name: strconv.Itoa(i), now: c, overdue: c.DueFor()}
		if i < len(s.before.Partitions) {
			p.before = s.before.Partitions[i]
		}
		if partitions {
			parts = append(parts, p)
		}
	}
	return parts
}

// rates returns the events per second since the previous sample by name. The rates of the first
// sample are 0.
func (p *part) rates() map[string]float64 {
	elapsed := p.now.Now.Sub(p.before.Now)
	rate := func(old, present uint64) float64 {
		if present <= old || elapsed <= 0 || p.before.Now.IsZero() { // the counters of a recreated queue start at 0
			return 0
		}
		return float64(present-old) / elapsed.Seconds()
	}
	return map[string]float64{
		"enqueued": rate(p.before.Enqueued, p.now.Enqueued), "acked": rate(p.before.Acked, p.now.Acked),
		"retried": rate(p.before.Retried, p.now.Retried), "buried": rate(p.before.Buried, p.now.Buried),
		"cancelled": rate(p.before.Cancelled, p.now.Cancelled), "crashed": rate(p.before.Crashed, p.now.Crashed),
	}
}

// nextIn returns the time until the earliest unclaimed message is due, on the clock of the store.
func nextIn(c *durable.Counts) string {
	switch {
	case c.NextDue.IsZero():
		return "-"
	case !c.NextDue.Before(driver.Never.Time()):
		return "never"
	}
	return formatDuration(max(0, c.NextDue.Sub(c.Now)))
}

// table formats a sample. Lines have up to 80 columns with usual numbers.
func (s *sample) table(partitions bool) string {
	t := newTable("", "scheduled", "due", "in flight", "dead", "next in", "overdue")
	parts, c := s.parts(partitions), &s.stats.Counts
	for _, p := range parts {
		if p.now.Paused {
			p.name += " (paused)"
		}
		t.AppendRow(table.Row{p.name, p.now.Scheduled, p.now.Due, p.now.InFlight, p.now.Dead, nextIn(&p.now), formatDuration(p.overdue)})
	}
	rates := parts[0].rates()
	return fmt.Sprintf("queue %s, %s, %s on the store's clock\n", s.queue, count(len(s.stats.Partitions), "partition"), c.Now.Format("2006-01-02 15:04:05")) +
		fmt.Sprintf("per second: %.1f enqueued, %.1f acked, %.1f retried, %.1f dead\n", rates["enqueued"], rates["acked"], rates["retried"], rates["buried"]) +
		fmt.Sprintf("total: %d enqueued, %d acked, %d retried, %d dead (%d dropped)\n", c.Enqueued, c.Acked, c.Retried, c.Buried, c.Trimmed) +
		fmt.Sprintf("       %d cancelled, %d crashed, %d lost, %d cannot be read\n%s", c.Cancelled, c.Crashed, c.Lost, c.Unreadable, t.Render())
}

// json returns a sample for JSON. Counters start at 0 when the queue is created.
func (s *sample) json(partitions bool) map[string]any {
	var all []map[string]any
	for _, p := range s.parts(partitions) {
		o := object(p.now)
		o["overdueMs"], o["perSecond"] = p.overdue.Milliseconds(), p.rates()
		all = append(all, o)
	}
	all[0]["queue"] = s.queue
	if partitions {
		all[0]["partitions"] = all[1:]
	}
	return all[0]
}
