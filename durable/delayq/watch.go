package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

type watchOptions struct {
	interval   time.Duration
	n          int
	partitions bool
}

func (a *app) watchCommand() *cli.Command {
	o := watchOptions{interval: time.Second}
	return a.command(command{
		name: "watch", usage: "show a live table of the queue until Ctrl-C", need: watches,
		flags: []cli.Flag{
			duration("interval", "update once in this `duration`", &o.interval, 10*time.Millisecond),
			number("n", "end after `N` updates; 0 continues until Ctrl-C", &o.n, 0, math.MaxInt32),
			flag("partitions", "show each partition too", &o.partitions),
		},
		run: func(ctx context.Context, s *session, _ []string) error { return a.watch(ctx, s, o) },
	})
}

// watch reads the counts of the queue once in each interval. If the store cannot be reached, watch
// skips the update, because the next one may succeed.
func (a *app) watch(ctx context.Context, s *session, o watchOptions) error {
	tick := time.NewTicker(o.interval)
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
			if err := a.show(&sample{s.Name(), stats, before}, o.partitions); err != nil {
				return err
			}
			before = stats
		}
		if updates == o.n {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// show prints a sample as JSON or as a table. On a terminal the table replaces the previous one.
func (a *app) show(s *sample, partitions bool) error {
	if a.json {
		return a.printJSON(s.json(partitions))
	}
	clearScreen, columns := "", a.columns()
	if columns > 0 {
		clearScreen = "\x1b[H\x1b[J"
	}
	_, err := io.WriteString(a.stdout, clearScreen+s.table(partitions, columns)+"\n")
	return err
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

// rates returns the events per second since the previous sample by name. Those of the first sample
// are 0.
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

// row returns the values of the columns.
func (p *part) row() table.Row {
	name, rates := p.name, p.rates()
	if p.now.Paused {
		name += " (paused)"
	}
	row := table.Row{name, p.now.Scheduled, p.now.Due, p.now.InFlight, p.now.Dead, nextIn(&p.now), formatDuration(p.overdue)}
	for _, event := range []string{"enqueued", "acked", "retried", "buried"} {
		row = append(row, math.Round(10*rates[event])/10)
	}
	return row
}

// table formats a sample. Its rows are cut to a number of columns unless that is 0.
func (s *sample) table(partitions bool, columns int) string {
	t := newTable("", "scheduled", "due", "in flight", "dead", "next in", "overdue", "enqueued/s", "acked/s", "retried/s", "dead/s")
	t.Style().Size.WidthMax = columns
	for _, p := range s.parts(partitions) {
		t.AppendRow(p.row())
	}
	c := &s.stats.Counts
	return fmt.Sprintf("queue %s, %s, %s on the store's clock\n%s\n", s.queue, count(len(s.stats.Partitions), "partition"),
		c.Now.Format("2006-01-02 15:04:05"), t.Render()) +
		fmt.Sprintf("total: %d enqueued, %d acked, %d retried, %d dead, %d of them dropped, %d cancelled, %d crashed, %d lost; %d cannot be read",
			c.Enqueued, c.Acked, c.Retried, c.Buried, c.Trimmed, c.Cancelled, c.Crashed, c.Lost, c.Unreadable)
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
