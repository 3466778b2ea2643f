package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/workload"
)

// column is a figure in the table of a workload. The table has it for each size.
type column struct {
	unit  string
	title string
	plain bool // without the ratio to package time
}

const allocations = "allocs/op"

// columns are the columns of the table of each workload.
var columns = map[string][]column{
	"ArmStop":       {{"sec/op", "", false}, {allocations, "allocations", true}},
	"Postpone":      {{"sec/op", "", false}, {allocations, "allocations", true}},
	"Churn":         {{"sec/op", "", false}, {allocations, "allocations", true}},
	"Fill":          {{"sec/op", "time", false}, {"B/timer", "memory", false}, {allocations, "allocations", true}},
	"GC":            {{"gc-sec", "", false}},
	"Burst":         {{"drain-sec", "time", false}},
	"BurstBlocking": {{"drain-sec", "time", false}},
	"Blocked":       {{"late-sec", "lateness", false}},
	"Spread": {{"cpu-sec/timer", "CPU time", false}, {"p1-sec", "1%", true}, {"p50-sec", "50%", true},
		{"p99-sec", "99%", true}, {"p99.9-sec", "99.9%", true}, {"p100-sec", "maximum", true}},
	"ArmDuringBurst": {{"p50-sec", "50%", true}, {"p99.9-sec", "99.9%", true}, {"max-sec", "maximum", true}},
	"Idle":           {{"wakeups", "wake-ups in five seconds", true}},
	"BusyBlocked":    {{"late-sec", "lateness", false}},
	"BusyStream":     {{"late-p50-sec", "50%", false}, {"late-max-sec", "maximum", false}},
	"BusySpread":     {{"late-p50-sec", "50%", false}, {"late-p99-sec", "99%", false}},
	"BusyReschedule": callColumns,
	"BusyRearm":      callColumns,
	"BusyCallers":    callColumns,
}

// callColumns are the columns for single calls, which other goroutines may delay.
var callColumns = []column{{"over-1ms-%", "% over 1 ms", true}, {"worst-sec", "maximum", true}, {"calls", "calls", true}}

// workloadTable returns the table of a workload and the reasons for missing figures. It returns ""
// if nothing was measured.
func workloadTable(f *figures, w workload.Workload) string {
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
		if !w.Covers(subject.Traits) {
			continue
		}
		row := table.Row{"`" + subject.Name + "`"}
		for _, c := range columns[w.Name] {
			for _, s := range shownSizes(c, sizes) {
				row = append(row, cell(f, w.Name, subject.Name, s, c))
			}
		}
		t.AppendRow(row)
		notes = append(notes, footnotes(f, w.Name, subject.Name)...)
	}
	out := t.RenderMarkdown() + "\n"
	if len(notes) > 0 {
		out += "\n" + strings.Join(notes, "\n") + "\n"
	}
	return out
}

// shownSizes returns the sizes that have a column of their own. Allocations have one column.
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

// cell returns a figure with its ratio to package time, or a word for the reason why it is missing.
func cell(f *figures, workload, impl string, s size, c column) string {
	if c.unit == allocations {
		return allocated(f, workload, impl, s)
	}
	v, measured := f.figure(workload, impl, s, c.unit)
	if !measured || f.didNotRun(workload, impl, s) {
		return missing(f, workload, impl, s)
	}
	std, comparable := f.figure(workload, "std", s, c.unit)
	if c.plain || impl == "std" || !comparable || std <= 0 || v < 0 {
		return quantity(v, c.unit)
	}
	return fmt.Sprintf("%s (%.2f)", quantity(v, c.unit), v/std)
}

// allocated returns the number of allocations with the largest measured population.
func allocated(f *figures, workload, impl string, last size) string {
	text := missing(f, workload, impl, last)
	for _, s := range f.sizes(workload) {
		if v, measured := f.figure(workload, impl, s, allocations); measured {
			text = quantity(v, allocations)
		}
	}
	return text
}

// missing returns a word for the reason why a figure is missing.
func missing(f *figures, workload, impl string, s size) string {
	o, known := f.outcome(workload, impl, s)
	switch {
	case f.didNotRun(workload, impl, s):
		return "not run"
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

// footnotes returns the reasons why an implementation lacks figures, each reason once.
func footnotes(f *figures, workload, impl string) []string {
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

// newTable returns a table whose first column is aligned left and whose others are aligned right.
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

// mistakeKinds are the mistakes that workloads count.
var mistakeKinds = []struct{ unit, title string }{
	{"early", "early"}, {"not-run", "missing"}, {"twice", "ran twice"}, {"after-stop", "ran although Stop returned true"},
	{"false-stop", "did not run although Stop returned false"},
}

// mistakes returns the table of mistakes, with the worst run of each. It returns "" if Exact was
// not measured.
func mistakes(f *figures) string {
	sizes := f.sizes("Exact")
	if len(sizes) == 0 {
		return ""
	}
	header := table.Row{""}
	for _, k := range mistakeKinds {
		header = append(header, k.title)
	}
	t := newTable(append(header, "in other workloads"))
	s := sizes[len(sizes)-1]
	for _, subject := range f.subjects {
		row := table.Row{"`" + subject.Name + "`"}
		for _, k := range mistakeKinds {
			v, measured := f.worst("Exact", subject.Name, s, k.unit)
			_, ran := f.worst("Exact", subject.Name, s, "early")
			switch {
			case measured && v == 0:
				row = append(row, "0")
			case measured:
				row = append(row, fmt.Sprintf("%.0f (%.1f%%)", v, 100*v/float64(s.pending)))
			case ran:
				row = append(row, "n/a") // Stop has no result
			default:
				row = append(row, missing(f, "Exact", subject.Name, s))
			}
		}
		t.AppendRow(append(row, otherMistakes(f, subject.Name)))
	}
	out := t.RenderMarkdown() + "\n"
	for _, subject := range f.subjects {
		if notes := footnotes(f, "Exact", subject.Name); len(notes) > 0 {
			out += "\n" + strings.Join(notes, "\n")
		}
	}
	return strings.TrimRight(out, "\n") + "\n"
}

// exactSize returns the number of timers of Exact.
func exactSize(f *figures) string {
	sizes := f.sizes("Exact")
	return results.FormatCount(sizes[len(sizes)-1].pending) + " timers"
}

// otherMistakes lists the mistakes in the other workloads.
func otherMistakes(f *figures, impl string) string {
	var found []string
	for _, w := range workload.All {
		if w.Name == "Exact" {
			continue
		}
		for _, k := range mistakeKinds {
			worst := 0.0
			for _, s := range f.sizes(w.Name) {
				v, _ := f.worst(w.Name, impl, s, k.unit)
				worst = max(worst, v)
			}
			if worst > 0 {
				found = append(found, fmt.Sprintf("%s: %.0f %s", w.Name, worst, k.title))
			}
		}
	}
	if len(found) == 0 {
		return "none"
	}
	return strings.Join(found, ", ")
}
