package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
)

// targetTable returns a table with a row per target, and a line with the number of each
// verdict.
func targetTable(rows []evaluation, render func(table.Writer) string) string {
	t := newTable(table.Row{"workload", "figure", "baseline", "baseline figure", "wheel", "result", "target", "verdict"})
	count := map[verdict]int{}
	previous := ""
	for _, e := range rows {
		if previous != "" && previous != e.benchmark.Base {
			t.AppendSeparator()
		}
		previous = e.benchmark.Base
		t.AppendRow(append(e.cells(), e.boundText(), string(e.verdict)))
		count[e.verdict]++
	}
	return fmt.Sprintf("%s\n\n%d reached, %d not reached, %d without data\n", render(t),
		count[reached], count[notReached], count[noData])
}

// writeOthers writes the comparisons without a target, if there are any.
func writeOthers(out io.Writer, others []evaluation) {
	if len(others) == 0 {
		return
	}
	t := newTable(table.Row{"workload", "figure", "baseline", "baseline figure", "wheel", "ratio"})
	for _, e := range others {
		t.AppendRow(e.cells())
	}
	fmt.Fprintf(out, "\nAlso measured:\n%s\n", t.Render())
}

func newTable(header table.Row) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(header)
	t.SetColumnConfigs([]table.ColumnConfig{
		{Name: "baseline figure", Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Name: "wheel", Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Name: "result", Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Name: "ratio", Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Name: "target", Align: text.AlignRight, AlignHeader: text.AlignRight},
	})
	t.SuppressTrailingSpaces()
	return t
}

// cells returns the columns of both tables.
func (e evaluation) cells() table.Row {
	return table.Row{
		e.benchmark.String(),
		strings.TrimSuffix(strings.ReplaceAll(e.unit, "sec", "time"), "-time"),
		strings.TrimPrefix(e.baseline, "impl="),
		e.format(e.reference),
		e.format(e.figure),
		e.resultText(),
	}
}

func (e evaluation) format(v *float64) string {
	if v == nil {
		return "–"
	}
	return results.Format(*v, e.unit)
}

func (e evaluation) resultText() string {
	switch {
	case e.figure == nil || e.reference == nil && e.how != absolute:
		return "–"
	case e.how == absolute:
		return results.Format(e.result, e.unit)
	case e.how == difference && e.result >= 0:
		return "+" + results.Format(e.result, e.unit)
	case e.how == difference:
		return "-" + results.Format(-e.result, e.unit)
	case *e.figure == *e.reference: // both may be 0: allocations
		return "1.00"
	default:
		return strconv.FormatFloat(e.result, 'f', 2, 64)
	}
}

// boundText returns the bound: "≤ 0.35", "≥ 1.60", "≤ +1.50ms", "≤ 36.0B" or
// "≤ 1.50 std + 10.0ms".
func (e evaluation) boundText() string {
	switch {
	case e.bound == unbounded:
		return "–"
	case e.how == ratio:
		return fmt.Sprintf("≤ %.2f", e.bound)
	case e.how == speedup:
		return fmt.Sprintf("≥ %.2f", e.bound)
	case e.how == difference:
		return "≤ +" + results.Format(e.bound, e.unit)
	case e.how == absolute:
		return "≤ " + results.Format(e.bound, e.unit)
	default:
		return fmt.Sprintf("≤ %.2f %s + %s", e.bound, strings.TrimPrefix(e.baseline, "impl="), results.Format(e.how.plus, e.unit))
	}
}
