package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
	"github.com/timingwheel-go/timingwheel/benchmarks/workload"
)

// column is a figure of a workload that its table shows, for each size.
type column struct {
	unit  string
	title string
	plain bool // without its ratio to package time
}

const allocations = "allocs/op"

// columns are what the table of each workload shows.
var columns = map[string][]column{
	"ArmStop":       {{"sec/op", "", false}, {allocations, "allocations", true}},
	"Postpone":      {{"sec/op", "", false}, {allocations, "allocations", true}},
	"Churn":         {{"sec/op", "", false}, {allocations, "allocations", true}},
	"Fill":          {{"sec/op", "time", false}, {"B/timer", "memory", false}, {allocations, "allocations", true}},
	"GC":            {{"gc-sec", "", false}},
	"Burst":         {{"drain-sec", "drained after", false}},
	"BurstBlocking": {{"drain-sec", "drained after", false}},
	"Blocked":       {{"late-sec", "late", false}},
	"Spread": {{"cpu-sec/timer", "processor time", false}, {"p1-sec", "1 %", true}, {"p50-sec", "50 %", true},
		{"p99-sec", "99 %", true}, {"p99.9-sec", "99.9 %", true}, {"p100-sec", "latest", true}},
	"ArmDuringBurst": {{"p50-sec", "50 %", true}, {"p99.9-sec", "99.9 %", true}, {"max-sec", "longest", true}},
	"Idle":           {{"wakeups/s", "wake-ups in a second", true}},
	"BusyBlocked":    {{"late-sec", "late", false}},
	"BusyStream":     {{"late-p50-sec", "50 %", false}, {"late-max-sec", "latest", false}},
	"BusySpread":     {{"late-p50-sec", "50 %", false}, {"late-p99-sec", "99 %", false}},
	"BusyReschedule": callColumns,
	"BusyRearm":      callColumns,
	"BusyCallers":    callColumns,
}

// callColumns are those of single calls that other goroutines may delay.
var callColumns = []column{{"over-1ms-%", "percent over 1 ms", true}, {"worst-sec", "longest", true}, {"calls", "calls", true}}

// sheet is the table of a workload, with the reasons for what it lacks; "" if nothing was measured.
func sheet(f *figures, w workload.Workload) string {
	sizes := f.sizes(w.Name)
	if len(sizes) == 0 {
		return ""
	}
	header := table.Row{""}
	for _, c := range columns[w.Name] {
		for _, s := range shownSizes(c, sizes) {
			header = append(header, heading(c, s, severalPending(sizes)))
		}
	}
	t := newTable(header)
	var notes []string
	for _, subject := range f.subjects {
		row := table.Row{"`" + subject.Name + "`"}
		for _, c := range columns[w.Name] {
			for _, s := range shownSizes(c, sizes) {
				row = append(row, cell(f, w.Name, subject.Name, s, c))
			}
		}
		t.AppendRow(row)
		notes = append(notes, reasons(f, w.Name, subject.Name)...)
	}
	out := t.RenderMarkdown() + "\n"
	if len(notes) > 0 {
		out += "\n" + strings.Join(notes, "\n") + "\n"
	}
	return out
}

// shownSizes are those that differ: allocations are shown once.
func shownSizes(c column, sizes []size) []size {
	if c.unit == allocations {
		return sizes[len(sizes)-1:]
	}
	return sizes
}

func heading(c column, s size, several bool) string {
	var words []string
	if c.title != "" {
		words = append(words, c.title)
	}
	if several && c.unit != allocations || c.title == "" {
		words = append(words, results.FormatCount(s.pending))
	}
	if s.procs > 1 && c.unit != allocations {
		words = append(words, fmt.Sprintf("%d processors", s.procs))
	}
	if s.busy > 0 {
		words = append(words, fmt.Sprintf("%d busy", s.busy))
	}
	return strings.Join(words, ", ")
}

// cell is a figure with its ratio to package time, or why there is none in a word.
func cell(f *figures, workload, impl string, s size, c column) string {
	if c.unit == allocations {
		return allocated(f, workload, impl, s)
	}
	v, measured := f.figure(workload, impl, s, c.unit)
	if !measured {
		return lacking(f, workload, impl, s)
	}
	theirs, comparable := f.figure(workload, "std", s, c.unit)
	if c.plain || impl == "std" || !comparable || theirs == 0 {
		return quantity(v, c.unit)
	}
	return fmt.Sprintf("%s (%.2f)", quantity(v, c.unit), v/theirs)
}

// allocated is how many allocations there were with the most timers that were measured.
func allocated(f *figures, workload, impl string, last size) string {
	text := lacking(f, workload, impl, last)
	for _, s := range f.sizes(workload) {
		if v, measured := f.figure(workload, impl, s, allocations); measured {
			text = quantity(v, allocations)
		}
	}
	return text
}

func lacking(f *figures, workload, impl string, s size) string {
	o, known := f.outcome(workload, impl, s)
	lost, _ := f.worst(workload, impl, s, "lost")
	switch {
	case lost > 0:
		return "lost"
	case !known:
		return "–"
	case !o.Failed:
		return "n/a"
	case strings.HasPrefix(o.Reason, "timeout"), strings.Contains(o.Reason, "too long"), strings.Contains(o.Reason, "in time"):
		return "timeout"
	default:
		return "failed"
	}
}

// reasons lists why an implementation lacks figures, each reason once.
func reasons(f *figures, workload, impl string) []string {
	var order []string
	sizes := map[string][]string{}
	skipped := map[string]bool{}
	for _, o := range f.outcomes {
		if o.Benchmark.Base != workload || o.Benchmark.Params["impl"] != impl {
			continue
		}
		if sizes[o.Reason] == nil {
			order = append(order, o.Reason)
		}
		at := o.Benchmark.Params["pending"]
		if busy := o.Benchmark.Params["busy"]; busy != "" {
			at = busy + " busy"
		}
		sizes[o.Reason] = append(sizes[o.Reason], at)
		skipped[o.Reason] = !o.Failed
	}
	var lines []string
	for _, reason := range order {
		if skipped[reason] {
			lines = append(lines, fmt.Sprintf("- `%s` %s", impl, reason))
		} else {
			lines = append(lines, fmt.Sprintf("- `%s`, %s: %s", impl, strings.Join(sizes[reason], ", "), reason))
		}
	}
	return lines
}

// newTable has its first column to the left and all others to the right.
func newTable(header table.Row) table.Writer {
	t := table.NewWriter()
	t.AppendHeader(header)
	configs := make([]table.ColumnConfig, 0, len(header))
	for i := range header[1:] {
		configs = append(configs, table.ColumnConfig{Number: i + 2, Align: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
	return t
}
