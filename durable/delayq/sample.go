package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

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

// rates are the events per second of a queue, or of a partition, since the previous snapshot.
type rates struct {
	Enqueued  float64 `json:"enqueued"`
	Acked     float64 `json:"acked"`
	Retried   float64 `json:"retried"`
	Buried    float64 `json:"buried"`
	Cancelled float64 `json:"cancelled"`
	Crashed   float64 `json:"crashed"`
}

func ratesOf(before, now durable.Counts, seconds float64) rates {
	per := func(a, b uint64) float64 { // the counters of a recreated queue start at 0
		if b < a || seconds <= 0 {
			return 0
		}
		return float64(b-a) / seconds
	}
	return rates{
		per(before.Enqueued, now.Enqueued), per(before.Acked, now.Acked), per(before.Retried, now.Retried),
		per(before.Buried, now.Buried), per(before.Cancelled, now.Cancelled), per(before.Crashed, now.Crashed),
	}
}

// rates returns the rates of the queue and of each partition. Those of the first snapshot are 0.
func (s *sample) rates() (rates, []rates) {
	parts := make([]rates, len(s.stats.Partitions))
	if s.before == nil {
		return rates{}, parts
	}
	seconds := s.at.Sub(s.before.at).Seconds()
	for i := range min(len(parts), len(s.before.stats.Partitions)) {
		parts[i] = ratesOf(s.before.stats.Partitions[i], s.stats.Partitions[i], seconds)
	}
	return ratesOf(s.before.stats.Counts, s.stats.Counts, seconds), parts
}

// overdue returns the time since the earliest unclaimed message was due, on the clock of the store.
func overdue(c *durable.Counts) time.Duration {
	if c.NextDue.IsZero() || c.NextDue.After(c.Now) {
		return 0
	}
	return c.Now.Sub(c.NextDue)
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

// table formats a sample for a terminal.
func (s *sample) table(partitions bool) string {
	all, parts := s.rates()
	t := newTable(table.Row{
		"", "scheduled", "due", "in flight", "dead", "next in", "overdue", "enqueued/s", "acked/s", "retried/s", "dead/s",
	}, 6, 7, 8, 9, 10, 11)
	row := func(name string, c *durable.Counts, r rates) table.Row {
		return table.Row{name, c.Scheduled, c.Due, c.InFlight, c.Dead, nextIn(c), formatDuration(overdue(c)),
			rate(r.Enqueued), rate(r.Acked), rate(r.Retried), rate(r.Buried)}
	}
	t.AppendRow(row("queue", &s.stats.Counts, all))
	if partitions {
		t.AppendSeparator()
		for i := range parts {
			t.AppendRow(row(strconv.Itoa(i), &s.stats.Partitions[i], parts[i]))
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

func rate(perSecond float64) string {
	if perSecond > 0 && perSecond < 10 {
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	}
	return strconv.FormatFloat(perSecond, 'f', 0, 64)
}

// lines formats a sample for an output that cannot be redrawn: one line, and one for each partition
// if partitions is true.
func (s *sample) lines(partitions bool) string {
	all, parts := s.rates()
	line := func(c *durable.Counts, r rates) string {
		return fmt.Sprintf("scheduled %d, due %d, in flight %d, dead %d, next in %s, overdue %s, ",
			c.Scheduled, c.Due, c.InFlight, c.Dead, nextIn(c), formatDuration(overdue(c))) +
			fmt.Sprintf("enqueued %s/s, acked %s/s, retried %s/s, dead %s/s",
				rate(r.Enqueued), rate(r.Acked), rate(r.Retried), rate(r.Buried))
	}
	lines := []string{s.stats.Now.Format("15:04:05") + " " + line(&s.stats.Counts, all) + s.pausedNote()}
	if partitions {
		for i := range parts {
			lines = append(lines, fmt.Sprintf("  partition %d: %s", i, line(&s.stats.Partitions[i], parts[i])))
		}
	}
	return strings.Join(lines, "\n")
}

// countsJSON has the counts of a queue or a partition. Counters start at 0 when the queue is
// created.
type countsJSON struct {
	Scheduled  int64     `json:"scheduled"`
	Due        int64     `json:"due"`
	InFlight   int64     `json:"inFlight"`
	Dead       int64     `json:"dead"`
	DeadBytes  int64     `json:"deadBytes"`
	NextDue    time.Time `json:"nextDue,omitzero"`
	OverdueMS  int64     `json:"overdueMs"`
	Enqueued   uint64    `json:"enqueued"`
	Acked      uint64    `json:"acked"`
	Retried    uint64    `json:"retried"`
	Buried     uint64    `json:"buried"`
	Cancelled  uint64    `json:"cancelled"`
	Crashed    uint64    `json:"crashed"`
	Trimmed    uint64    `json:"trimmed"`
	Paused     bool      `json:"paused"`
	Unreadable int64     `json:"unreadable"`
	Lost       uint64    `json:"lost"`
	PerSecond  rates     `json:"perSecond"`
}

func countsToJSON(c *durable.Counts, r rates) countsJSON {
	return countsJSON{
		c.Scheduled, c.Due, c.InFlight, c.Dead, c.DeadBytes, timeJSON(c.NextDue), overdue(c).Milliseconds(),
		c.Enqueued, c.Acked, c.Retried, c.Buried, c.Cancelled, c.Crashed, c.Trimmed, c.Paused, c.Unreadable, c.Lost, r,
	}
}

type sampleJSON struct {
	Queue string    `json:"queue"`
	Now   time.Time `json:"now"` // on the store's clock
	countsJSON
	Partitions []countsJSON `json:"partitions,omitempty"`
}

func (s *sample) json(partitions bool) sampleJSON {
	all, parts := s.rates()
	j := sampleJSON{Queue: s.queue, Now: s.stats.Now, countsJSON: countsToJSON(&s.stats.Counts, all)}
	if partitions {
		for i := range parts {
			j.Partitions = append(j.Partitions, countsToJSON(&s.stats.Partitions[i], parts[i]))
		}
	}
	return j
}
