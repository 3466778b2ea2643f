package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
)

// right reports whether the server made no mistake.
func (o *outcome) right() bool { return len(o.verdict.faults) == 0 }

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

// printEnds shows what the clients did against what the server saw.
func (o *outcome) printEnds(w io.Writer) {
	t := figures.Table(w, 2, 6, "clients were to", "clients", "server: closed", "reset", "cut", "unnoticed")
	for f := range fates {
		ended := o.verdict.ended[f]
		sum := 0
		for _, n := range ended {
			sum += n
		}
		t.AppendRow(table.Row{f.String(), figures.Comma(sum), figures.Comma(ended[closed]), figures.Comma(ended[reset]), figures.Comma(ended[cut]), figures.Comma(ended[unknown])})
	}
	t.Render()
}

// printMeasures shows what was measured, and what was counted as wrong or excused.
func (o *outcome) printMeasures(w io.Writer) {
	v, t := &o.verdict, figures.Table(w, 2, 5, "measure", "count", "p50", "p99", "most")
	count := func(name string, n int) { t.AppendRow(table.Row{name, figures.Comma(n)}) }
	count("beats", int(o.beats))
	t.AppendRow(append(table.Row{"timer fired after its deadline", figures.Comma(int(o.fired))}, millis(o.lateness)...))
	t.AppendRow(append(table.Row{"cut seen after the timeout", figures.Comma(len(v.overdue))}, millis(quantiles(v.overdue, 50, 99, 100))...))
	t.AppendRow(table.Row{"stalls of the machine", figures.Comma(len(o.stalls)), "", "", figures.Millis(longest(o.stalls))})
	t.AppendRow(table.Row{"heap", "", "", "", humanize.IBytes(o.peak.heap)})
	t.AppendRow(table.Row{"goroutines", "", "", "", figures.Comma(o.peak.goroutines)})
	t.AppendRow(table.Row{"timers pending", "", "", "", figures.Comma(o.peak.pending)})
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
		figures.Plural(len(o.stalls), "time"), sum.Round(time.Millisecond), longest(o.stalls).Round(time.Millisecond), figures.Plural(o.verdict.widened, "cut"))
}

const faultsShown = 10

func (o *outcome) printVerdict(w io.Writer) {
	v := &o.verdict
	if len(v.faults) == 0 {
		if v.starved > 0 {
			fmt.Fprintf(w, "too busy: the machine held up %s for so long that they had to be cut\n", figures.Plural(v.starved, "client"))
		}
		fmt.Fprintf(w, "RIGHT: cut %s of %s silent connections in time and no live one, in %v\n",
			figures.Comma(len(v.overdue)), figures.Comma(len(v.overdue)+v.unended), o.took.Round(100*time.Millisecond))
		return
	}
	for _, f := range v.faults[:min(len(v.faults), faultsShown)] {
		fmt.Fprintln(w, "  ", f)
	}
	if more := len(v.faults) - faultsShown; more > 0 {
		fmt.Fprintf(w, "   and %s more\n", figures.Comma(more))
	}
	fmt.Fprintf(w, "WRONG: %s\n", figures.Plural(len(v.faults), "fault"))
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
		row = append(row, figures.Millis(d))
	}
	return row
}

func longest(spans []span) (d time.Duration) {
	for _, s := range spans {
		d = max(d, s.to.Sub(s.from))
	}
	return d
}
