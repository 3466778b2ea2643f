package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	show := a.viewer(o)
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	var before durable.Stats
	for updates := 1; ; updates++ {
		stats, err := s.Stats(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, durable.ErrUnavailable) && !before.Now.IsZero():
			a.faults.add(err)
		case err != nil:
			return err
		default:
			if err := show(&sample{s.Name(), stats, before}); err != nil {
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

// viewer returns a function that shows samples: as a table that is redrawn on a terminal, as JSON,
// or as lines.
func (a *app) viewer(o watchOptions) func(*sample) error {
	switch {
	case a.json:
		return func(s *sample) error { return a.printJSON(s.json(o.partitions)) }
	case a.screen != nil:
		p := &painter{w: a.stdout, size: a.screen}
		return func(s *sample) error { return p.paint(s.table(o.partitions)) }
	default:
		return func(s *sample) error { return a.print(s.lines(o.partitions)) }
	}
}

// painter redraws a block of lines.
type painter struct {
	w     io.Writer
	size  func() (columns, rows int)
	drawn int
}

// paint draws a block over the previous one. The block is cut to the screen, because lines that
// have scrolled away cannot be redrawn, and the terminal wraps long lines.
func (p *painter) paint(block string) error {
	lines := strings.Split(block, "\n")
	columns, rows := p.size()
	if most := max(rows-1, 1); len(lines) > most {
		cut := len(lines) - most + 1
		lines = append(lines[:most-1:most-1], fmt.Sprintf("… %d more lines do not fit in the window", cut))
	}
	for i, line := range lines {
		lines[i] = text.Trim(line, columns)
	}
	up := ""
	if p.drawn > 0 {
		up = fmt.Sprintf("\x1b[%dA", p.drawn)
	}
	p.drawn = len(lines)
	_, err := io.WriteString(p.w, up+"\r\x1b[J"+strings.Join(lines, "\n")+"\n")
	return err
}

// sample is the state of the queue, with the previous one.
type sample struct {
	queue         string
	stats, before durable.Stats // before is zero in the first sample
}

// rates are events per second by name.
type rates map[string]float64

// rates returns the rates of a partition, or of the queue for -1, since the previous sample. Those
// of the first sample are 0.
func (s *sample) rates(partition int) rates {
	before, now := counts(&s.before, partition), counts(&s.stats, partition)
	elapsed := now.Now.Sub(before.Now)
	rate := func(old, present uint64) float64 {
		if present <= old || elapsed <= 0 || before.Now.IsZero() { // the counters of a recreated queue start at 0
			return 0
		}
		return float64(present-old) / elapsed.Seconds()
	}
	return rates{
		"enqueued": rate(before.Enqueued, now.Enqueued), "acked": rate(before.Acked, now.Acked),
		"retried": rate(before.Retried, now.Retried), "buried": rate(before.Buried, now.Buried),
		"cancelled": rate(before.Cancelled, now.Cancelled), "crashed": rate(before.Crashed, now.Crashed),
	}
}

// counts returns the counts of a partition, or of the queue for -1. Zero stats have no partitions.
func counts(stats *durable.Stats, partition int) durable.Counts {
	switch {
	case partition < 0:
		return stats.Counts
	case partition >= len(stats.Partitions):
		return durable.Counts{}
	}
	return stats.Partitions[partition]
}

// overdue returns the time since the earliest message of a partition was due that no consumer has
// claimed, or of the queue for -1 that is not in a handler.
func (s *sample) overdue(partition int) time.Duration {
	if partition < 0 {
		return s.stats.OverdueFor
	}
	return s.stats.Partitions[partition].DueFor()
}

// nextIn returns the time until the earliest unclaimed message is due, on the clock of the store.
func nextIn(c durable.Counts) string {
	switch {
	case c.NextDue.IsZero():
		return "-"
	case !c.NextDue.Before(driver.Never.Time()):
		return "never"
	case !c.NextDue.After(c.Now):
		return "now"
	}
	return formatDuration(c.NextDue.Sub(c.Now))
}

// columns are the names of the values of a row.
var columns = []string{"scheduled", "due", "in flight", "dead", "next in", "overdue", "enqueued", "acked", "retried", "dead"}

// firstRate is the first column that is a rate.
const firstRate = 6

// row returns the values of a partition, or of the queue for -1, after a name.
func (s *sample) row(name string, partition int) table.Row {
	c, r := counts(&s.stats, partition), s.rates(partition)
	row := table.Row{name, c.Scheduled, c.Due, c.InFlight, c.Dead, nextIn(c), formatDuration(s.overdue(partition))}
	for _, event := range []string{"enqueued", "acked", "retried", "buried"} {
		digits := 0
		if 0 < r[event] && r[event] < 10 {
			digits = 1
		}
		row = append(row, strconv.FormatFloat(r[event], 'f', digits, 64))
	}
	return row
}

// table formats a sample for a terminal.
func (s *sample) table(partitions bool) string {
	header := table.Row{""}
	var right []table.ColumnConfig
	for i, name := range columns {
		if i >= firstRate {
			name += "/s"
		}
		header = append(header, name)
		right = append(right, table.ColumnConfig{Number: i + 2, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t := newTable(header...)
	t.SetColumnConfigs(right)
	t.AppendRow(s.row("queue", -1))
	t.AppendSeparator()
	if partitions {
		for i := range s.stats.Partitions {
			t.AppendRow(s.row(strconv.Itoa(i), i))
		}
	}
	c := s.stats.Counts
	return fmt.Sprintf("queue %s%s, %s, %s on the store's clock\n%s\n",
		s.queue, s.pausedNote(), count(len(s.stats.Partitions), "partition"), c.Now.Format("2006-01-02 15:04:05"), t.Render()) +
		fmt.Sprintf("total: %d enqueued, %d acked, %d retried, %d dead, %d of them dropped, %d cancelled, %d crashed, %d lost; %d cannot be read",
			c.Enqueued, c.Acked, c.Retried, c.Buried, c.Trimmed, c.Cancelled, c.Crashed, c.Lost, c.Unreadable)
}

// pausedNote returns a note if the queue, or some of its partitions, are paused.
func (s *sample) pausedNote() string {
	n := 0
	for _, p := range s.stats.Partitions {
		if p.Paused {
			n++
		}
	}
	switch n {
	case 0:
		return ""
	case len(s.stats.Partitions):
		return ", paused"
	}
	return ", " + count(n, "partition") + " paused"
}

// lines formats a sample for an output that cannot be redrawn: one line, and if partitions
// is true, a line per partition.
func (s *sample) lines(partitions bool) string {
	line := func(name string, partition int) string {
		row := s.row(name, partition)
		values := make([]string, len(columns))
		for i, column := range columns {
			values[i] = fmt.Sprint(column, " ", row[i+1])
			if i >= firstRate {
				values[i] += "/s"
			}
		}
		return name + " " + strings.Join(values, ", ")
	}
	lines := line(s.stats.Now.Format("15:04:05"), -1) + s.pausedNote()
	if partitions {
		for i := range s.stats.Partitions {
			lines += "\n" + line(fmt.Sprintf("  partition %d:", i), i)
		}
	}
	return lines
}

// countsJSON returns counts for JSON. Counters start at 0 when the queue is created.
func (s *sample) countsJSON(partition int) map[string]any {
	o := object(counts(&s.stats, partition))
	o["overdueMs"], o["perSecond"] = s.overdue(partition).Milliseconds(), s.rates(partition)
	return o
}

func (s *sample) json(partitions bool) map[string]any {
	o := s.countsJSON(-1)
	o["queue"] = s.queue
	if partitions {
		var all []any
		for i := range s.stats.Partitions {
			all = append(all, s.countsJSON(i))
		}
		o["partitions"] = all
	}
	return o
}
