package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/timingwheel-go/timingwheel/durable/internal/storeurl"
)

const faultsShown = 10

// print writes the closing table and the verdict.
func (o *outcome) print(w io.Writer) {
	v := &o.verdict
	fmt.Fprintf(w, "%s, seed %d\n", storeurl.Redact(o.cfg.store), o.cfg.seed)
	t := newTable(w)
	count := func(name string, n int) { t.AppendRow(table.Row{name, comma(n)}) }
	count("orders placed", v.placed)
	count("paid", v.paid)
	count("cancelled", v.cancelled)
	count("payments refused as too late", v.refused)
	t.AppendSeparator()
	count("consumers killed", o.cfg.kills)
	count("deliveries", v.deliveries)
	count("duplicates: delivered again after a kill", v.duplicates)
	count("cancellations repeated, without effect", v.void)
	count("lines of the journal cut off by a kill", v.torn)
	t.AppendSeparator()
	t.AppendRow(append(table.Row{"delivered after the time to pay", comma(len(v.late))}, spread(v.late)...))
	t.AppendRow(append(table.Row{"order cancelled after the time to pay", comma(len(v.overdue))}, spread(v.overdue)...))
	t.AppendSeparator()
	count("wrong: lost", v.lost)
	count("wrong: early", v.early)
	count("wrong: cancelled or delivered though paid", v.wrongly)
	t.Render()
	o.printVerdict(w)
}

func newTable(w io.Writer) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"measure", "count", "p50", "worst"})
	var right []table.ColumnConfig
	for n := 2; n <= 4; n++ {
		right = append(right, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	return t
}

func (o *outcome) printVerdict(w io.Writer) {
	v := &o.verdict
	if len(v.faults) == 0 {
		fmt.Fprintf(w, "RIGHT: each of %s unpaid orders was cancelled once and none of %s paid ones, over %s kills, in %v\n",
			comma(v.cancelled), comma(v.paid), comma(o.cfg.kills), o.took.Round(100*time.Millisecond))
		return
	}
	for _, f := range v.faults[:min(len(v.faults), faultsShown)] {
		fmt.Fprintln(w, "  ", f)
	}
	if more := len(v.faults) - faultsShown; more > 0 {
		fmt.Fprintf(w, "   and %s more\n", comma(more))
	}
	fmt.Fprintf(w, "WRONG: %s faults; the journal is in %s\n", comma(len(v.faults)), o.journal)
}

func comma(n int) string { return humanize.Comma(int64(n)) }

// spread is the median and the largest of some times, as cells.
func spread(ds []time.Duration) table.Row {
	if len(ds) == 0 {
		return nil
	}
	ds = slices.Sorted(slices.Values(ds))
	return table.Row{millis(ds[len(ds)/2]), millis(ds[len(ds)-1])}
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
}
