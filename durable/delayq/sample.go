package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

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

// lines formats a sample for an output that cannot be redrawn: one line, and one for each partition
// if partitions is true.
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
