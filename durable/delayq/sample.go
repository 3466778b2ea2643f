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

// snapshot is the state of the queue at one time.
type snapshot struct {
	at    time.Time
	stats durable.Stats
}

// sample is a snapshot of the queue, with the previous one.
type sample struct {
	queue string
	snapshot
	before *snapshot // nil for the first snapshot. A *sample would keep all earlier snapshots in memory
}

// rates are events per second by name.
type rates map[string]float64

// rates returns the rates of a partition, or of the queue for -1, since the previous snapshot.
// Those of the first snapshot are 0.
func (s *sample) rates(partition int) rates {
	seconds, before, now := 0.0, durable.Counts{}, s.counts(partition)
	if s.before != nil && partition < len(s.before.stats.Partitions) {
		seconds, before = s.at.Sub(s.before.at).Seconds(), *s.before.counts(partition)
	}
	rate := func(old, present uint64) float64 {
		if present <= old || seconds <= 0 { // the counters of a recreated queue start at 0
			return 0
		}
		return float64(present-old) / seconds
	}
	return rates{
		"enqueued": rate(before.Enqueued, now.Enqueued), "acked": rate(before.Acked, now.Acked),
		"retried": rate(before.Retried, now.Retried), "buried": rate(before.Buried, now.Buried),
		"cancelled": rate(before.Cancelled, now.Cancelled), "crashed": rate(before.Crashed, now.Crashed),
	}
}

// counts returns the counts of a partition, or of the queue for -1.
func (s *snapshot) counts(partition int) *durable.Counts {
	if partition < 0 {
		return &s.stats.Counts
	}
	return &s.stats.Partitions[partition]
}

// overdue returns the time since the earliest message of a partition was due that no consumer has
// claimed, or of the queue for -1 that is not in a handler.
func (s *sample) overdue(partition int) time.Duration {
	if partition < 0 {
		return s.stats.OverdueFor
	}
	return s.counts(partition).DueFor()
}

// nextIn returns the time until the earliest unclaimed message is due, on the clock of the store.
func nextIn(c *durable.Counts) string {
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

// row returns the values of a partition, or of the queue for -1.
func (s *sample) row(partition int) []string {
	c, r := s.counts(partition), s.rates(partition)
	row := []string{
		strconv.FormatInt(c.Scheduled, 10), strconv.FormatInt(c.Due, 10), strconv.FormatInt(c.InFlight, 10), strconv.FormatInt(c.Dead, 10),
		nextIn(c), formatDuration(s.overdue(partition)),
	}
	for _, name := range []string{"enqueued", "acked", "retried", "buried"} {
		digits := 0
		if 0 < r[name] && r[name] < 10 {
			digits = 1
		}
		row = append(row, strconv.FormatFloat(r[name], 'f', digits, 64))
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
	add := func(name string, partition int) {
		row := table.Row{name}
		for _, v := range s.row(partition) {
			row = append(row, v)
		}
		t.AppendRow(row)
	}
	add("queue", -1)
	t.AppendSeparator()
	for i := range s.stats.Partitions {
		if partitions {
			add(strconv.Itoa(i), i)
		}
	}
	c := s.stats.Counts
	return fmt.Sprintf("queue %s%s, %d partitions, %s on the store's clock\n%s\n",
		s.queue, s.pausedNote(), len(s.stats.Partitions), c.Now.Format("2006-01-02 15:04:05"), t.Render()) +
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
	return fmt.Sprintf(", %d partitions paused", n)
}

// lines formats a sample for an output that cannot be redrawn: one line, and one for each partition
// if partitions is true.
func (s *sample) lines(partitions bool) string {
	line := func(partition int) string {
		var values []string
		for i, v := range s.row(partition) {
			if i >= firstRate {
				v += "/s"
			}
			values = append(values, columns[i]+" "+v)
		}
		return strings.Join(values, ", ")
	}
	lines := []string{s.stats.Now.Format("15:04:05") + " " + line(-1) + s.pausedNote()}
	for i := range s.stats.Partitions {
		if partitions {
			lines = append(lines, fmt.Sprintf("  partition %d: %s", i, line(i)))
		}
	}
	return strings.Join(lines, "\n")
}

// countsJSON returns counts for JSON. Counters start at 0 when the queue is created.
func (s *sample) countsJSON(partition int) map[string]any {
	c := s.counts(partition)
	o := object(*c)
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
