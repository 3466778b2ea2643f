package main

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/timingwheel-go/timingwheel/benchmarks/simulation"
)

// print writes a description of the trace, a table of the choices and the verdict.
func (o outcome) print(w io.Writer, cfg config) {
	if len(o.results) > 0 {
		o.printTrace(w, cfg)
		o.printTable(w, cfg)
	}
	if o.interrupted != "" {
		fmt.Fprintf(w, "interrupted: %s was not finished\n", o.interrupted)
	}
	o.printVerdict(w)
}

func (o outcome) printTrace(w io.Writer, cfg config) {
	t, n := cfg.trace, o.results[0].Counts
	fmt.Fprintf(w, "%s connections arrived in %v (seed %d). Median lifetime %v (sigma %v), heartbeats every %v ± %v%%, idle timeout %v.\n",
		comma(n.Arrived), t.For, t.Seed, t.Median, t.Sigma, t.Beat, t.Jitter*percent, cfg.timeout)
	fmt.Fprintf(w, "%s beats; %s closed, %s fell silent, %s are live. The trace alone takes %v of CPU time.\n\n",
		comma(n.Beats), comma(n.Left), comma(n.Silent), comma(n.Live), o.traceOnly.Round(time.Millisecond))
}

func (o outcome) printTable(w io.Writer, cfg config) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"tick", "slots", "levels", "shards", "span", "pending (max)", "memory", "B/timer",
		"moves/timer", "moves/beat", "wake-ups", "wake-ups/s", "nothing due", "Advance ms/s", "Advance ns/beat", "ns/call"})
	columns := make([]table.ColumnConfig, 16)
	for i := range columns {
		columns[i] = table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight}
	}
	t.SetColumnConfigs(columns)
	for _, r := range o.results {
		t.AppendRow(o.row(r))
	}
	if cfg.markdown {
		t.RenderMarkdown()
	} else {
		t.Render()
	}
}

// row returns the row of one choice. A call adds, resets or stops a timer. The time of the calls
// excludes the time of the trace alone.
func (o outcome) row(r simulation.Result) table.Row {
	c, n, seconds := r.Choice, r.Counts, r.For.Seconds()
	moved := func(of int) string {
		if c.Levels == 1 {
			return "-" // Stats.Moved counts moves to a finer level, and there is none
		}
		return each(float64(r.Moved), of)
	}
	calls := n.Arrived + n.Beats + n.Left
	return table.Row{
		c.Tick, c.WheelSize, c.Levels, c.Shards, span(c.Span()), comma(r.Peak), humanize.IBytes(r.Bytes), fmt.Sprintf("%.1f", r.PerPeak),
		moved(n.Arrived), moved(n.Beats),
		comma(r.Wakeups), fmt.Sprintf("%.1f", float64(r.Wakeups)/seconds), comma(r.Idle),
		fmt.Sprintf("%.1f", r.Advance.Seconds()*1000/seconds), each(float64(r.Advance), n.Beats), each(float64(r.Events-o.traceOnly), calls),
	}
}

// each returns x divided by a count.
func each(x float64, of int) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", x/float64(of))
}

// span formats a duration in its largest unit.
func span(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{365 * 24 * time.Hour, "y"}, {24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}} {
		if d >= u.unit {
			return fmt.Sprintf("%.3g %s", math.Min(float64(d)/float64(u.unit), 292), u.name)
		}
	}
	return d.String()
}

func (o outcome) printVerdict(w io.Writer) {
	if len(o.results) == 0 {
		return
	}
	fmt.Fprintln(w)
	for _, r := range o.results {
		for _, f := range r.Verdict.Faults {
			fmt.Fprintf(w, "%v: %s\n", r.Choice, f)
		}
	}
	if o.faults > 0 {
		fmt.Fprintf(w, "FAIL: %d of %d choices have a fault\n", o.faults, len(o.results))
		return
	}
	fmt.Fprintf(w, "PASS (choices: %d): exactly the timers of the %s connections that had been silent for the timeout expired, "+
		"once each, never early and less than a tick late\n", len(o.results), comma(o.results[0].Verdict.Expired))
}

func comma(n int) string { return humanize.Comma(int64(n)) }
