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

// render draws a table.
type render func(t table.Writer) string

func renderer(markdown bool) render {
	if !markdown {
		return table.Writer.Render
	}
	return func(t table.Writer) string {
		t.SetTitle("")
		return t.RenderMarkdown()
	}
}

// writeTargets writes a row for each target and a line that counts the verdicts.
func writeTargets(out io.Writer, judged []judgement, draw render) {
	t := newTable("Targets", table.Row{"workload", "figure", "rival", "rival's", "wheel", "result", "target", "verdict"})
	count := map[verdict]int{}
	previous := ""
	for _, j := range judged {
		if previous != "" && previous != j.benchmark.Base {
			t.AppendSeparator()
		}
		previous = j.benchmark.Base
		t.AppendRow(append(j.cells(), j.bounds(), string(j.verdict)))
		count[j.verdict]++
	}
	fmt.Fprintln(out, draw(t))
	fmt.Fprintf(out, "\n%d reached, %d not reached, %d without data\n",
		count[reached], count[notReached], count[noData])
}

// writeOthers writes the pairs that no target speaks of, if there are any.
func writeOthers(out io.Writer, others []judgement, draw render) {
	if len(others) == 0 {
		return
	}
	t := newTable("Also measured", table.Row{"workload", "figure", "rival", "rival's", "wheel", "ratio"})
	for _, j := range others {
		t.AppendRow(j.cells())
	}
	fmt.Fprintf(out, "\n%s\n", draw(t))
}

func newTable(title string, header table.Row) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Title.Format = text.FormatDefault
	t.Style().Format.Header = text.FormatDefault
	t.SetTitle("%s", title)
	t.AppendHeader(header)
	t.SetColumnConfigs([]table.ColumnConfig{
		{Name: "rival's", Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Name: "wheel", Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Name: "result", Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Name: "ratio", Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Name: "target", Align: text.AlignRight, AlignHeader: text.AlignRight},
	})
	t.SuppressTrailingSpaces()
	return t
}

// cells returns the columns that both tables share.
func (j judgement) cells() table.Row {
	return table.Row{
		j.benchmark.String(),
		strings.TrimSuffix(strings.ReplaceAll(j.unit, "sec", "time"), "-time"),
		strings.TrimPrefix(j.target.rival, "impl="),
		j.figure(j.theirs),
		j.figure(j.ours),
		j.resultText(),
	}
}

func (j judgement) figure(v *float64) string {
	if v == nil {
		return "–"
	}
	return results.Format(*v, j.unit)
}

func (j judgement) resultText() string {
	switch {
	case j.ours == nil || j.theirs == nil && j.how != absolute:
		return "–"
	case j.how == absolute:
		return results.Format(j.result, j.unit)
	case j.how == difference && j.result >= 0:
		return "+" + results.Format(j.result, j.unit)
	case j.how == difference:
		return "-" + results.Format(-j.result, j.unit)
	case *j.ours == *j.theirs: // both may be 0, as allocations are
		return "1.00"
	default:
		return strconv.FormatFloat(j.result, 'f', 2, 64)
	}
}

// bounds returns the target itself: "≤ 0.35", "≥ 1.60", "≤ +1.50ms", "≤ 36.0B" or
// "≤ 1.50 std + 10.0ms".
func (j judgement) bounds() string {
	switch {
	case j.bound == unbounded:
		return "–"
	case j.how == ratio:
		return fmt.Sprintf("≤ %.2f", j.bound)
	case j.how == speedup:
		return fmt.Sprintf("≥ %.2f", j.bound)
	case j.how == difference:
		return "≤ +" + results.Format(j.bound, j.unit)
	case j.how == absolute:
		return "≤ " + results.Format(j.bound, j.unit)
	default:
		return fmt.Sprintf("≤ %.2f %s + %s", j.bound, strings.TrimPrefix(j.target.rival, "impl="), results.Format(j.how.plus, j.unit))
	}
}
