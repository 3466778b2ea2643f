package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// print writes the closing table and the verdict.
func (o *outcome) print(w io.Writer) {
	if o.interrupted {
		fmt.Fprintln(w, "interrupted: what had happened by then is judged")
	}
	o.printEnds(w)
	o.printMeasures(w)
	if o.summary != "" {
		fmt.Fprintln(w, o.summary)
	}
	o.printStalls(w)
	o.printVerdict(w)
}

func newTable(w io.Writer) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	return t
}

// printEnds shows what the clients did against what the server saw.
func (o *outcome) printEnds(w io.Writer) {
	t := newTable(w)
	t.AppendHeader(table.Row{"clients were to", "clients", "server: closed", "reset", "cut", "unnoticed"})
	t.SetColumnConfigs(rightFrom(2, 6))
	for f := range fates {
		ended := o.verdict.ended[f]
		sum := 0
		for _, n := range ended {
			sum += n
		}
		t.AppendRow(table.Row{f.String(), comma(sum), comma(ended[closed]), comma(ended[reset]), comma(ended[cut]), comma(ended[unknown])})
	}
	t.Render()
}

// printMeasures shows what was measured, and what was counted as wrong or excused.
func (o *outcome) printMeasures(w io.Writer) {
	v, t := &o.verdict, newTable(w)
	t.AppendHeader(table.Row{"measure", "count", "p50", "p99", "most"})
	t.SetColumnConfigs(rightFrom(2, 5))
	count := func(name string, n int) { t.AppendRow(table.Row{name, comma(n)}) }
	count("beats", int(o.beats))
	t.AppendRow(append(table.Row{"timer fired after its deadline", comma(int(o.fired))}, millis(o.lateness)...))
	t.AppendRow(append(table.Row{"cut seen after the timeout", comma(len(v.overdue))}, millis(quantiles(v.overdue, 50, 99, 100))...))
	t.AppendRow(table.Row{"stalls of the machine", comma(len(o.stalls)), "", "", inMillis(longest(o.stalls))})
	t.AppendRow(table.Row{"heap", "", "", "", humanize.IBytes(o.peak.heap)})
	t.AppendRow(table.Row{"goroutines", "", "", "", comma(o.peak.goroutines)})
	t.AppendRow(table.Row{"timers pending", "", "", "", comma(o.peak.pending)})
	t.AppendSeparator()
	count("timer fired, kernel held a beat: kept", int(o.saved))
	count("timer fired after a stall: given more time", int(o.spared))
	count("excused: late by a stall of the machine", v.widened)
	count("excused: cut, client held up by the machine", v.starved)
	count("interrupted while silent", v.unended)
	t.AppendSeparator()
	count("wrong: live one cut", v.live)
	count("wrong: silent one not cut", v.missed)
	count("wrong: cut early", v.early)
	count("wrong: cut late", v.late)
	count("wrong: end mistaken", v.mistaken)
	t.Render()
}

// printStalls says by how much the machine itself widened the bound.
func (o *outcome) printStalls(w io.Writer) {
	if len(o.stalls) == 0 {
		return
	}
	var sum time.Duration
	for _, s := range o.stalls {
		sum += s.to.Sub(s.from)
	}
	fmt.Fprintf(w, "the machine stalled %s, for %v in all and %v at most, which widened the bound of %s\n",
		plural(len(o.stalls), "time"), sum.Round(time.Millisecond), longest(o.stalls).Round(time.Millisecond), plural(o.verdict.widened, "cut"))
}

const faultsShown = 10

func (o *outcome) printVerdict(w io.Writer) {
	v := &o.verdict
	if len(v.faults) == 0 {
		if v.starved > 0 {
			fmt.Fprintf(w, "too busy: the machine held up %s for so long that they had to be cut\n", plural(v.starved, "client"))
		}
		fmt.Fprintf(w, "RIGHT: cut %s of %s silent connections in time and no live one, in %v\n",
			comma(len(v.overdue)), comma(len(v.overdue)+v.unended), o.took.Round(100*time.Millisecond))
		return
	}
	for _, f := range v.faults[:min(len(v.faults), faultsShown)] {
		fmt.Fprintln(w, "  ", f)
	}
	if more := len(v.faults) - faultsShown; more > 0 {
		fmt.Fprintf(w, "   and %s more\n", comma(more))
	}
	fmt.Fprintf(w, "WRONG: %s\n", plural(len(v.faults), "fault"))
}

// plural is a number with its noun.
func plural(n int, noun string) string { return comma(n) + " " + english.PluralWord(n, noun, "") }

func rightFrom(first, last int) (cs []table.ColumnConfig) {
	for n := first; n <= last; n++ {
		cs = append(cs, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	return cs
}

// quantiles returns percentiles by nearest rank; nil of no values.
func quantiles(ds []time.Duration, percentiles ...int) (qs []time.Duration) {
	if len(ds) == 0 {
		return nil
	}
	ds = slices.Sorted(slices.Values(ds))
	for _, p := range percentiles {
		rank := (len(ds)*p + 99) / 100
		qs = append(qs, ds[max(rank, 1)-1])
	}
	return qs
}

func millis(ds []time.Duration) (row table.Row) {
	for _, d := range ds {
		row = append(row, inMillis(d))
	}
	return row
}

func longest(spans []span) (d time.Duration) {
	for _, s := range spans {
		d = max(d, s.to.Sub(s.from))
	}
	return d
}
