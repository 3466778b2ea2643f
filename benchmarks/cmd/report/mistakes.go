package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
	"github.com/timingwheel-go/timingwheel/benchmarks/workload"
)

// kinds of mistakes, as workloads count them.
var kinds = []struct{ unit, title string }{
	{"early", "early"}, {"lost", "lost"}, {"after-stop", "ran after a stop that said it would not"}, {"twice", "ran twice"},
}

// mistakes is the table of what went wrong, the worst run of each; "" if Exact was not measured.
func mistakes(f *figures) string {
	sizes := f.sizes("Exact")
	if len(sizes) == 0 {
		return ""
	}
	header := table.Row{""}
	for _, k := range kinds {
		header = append(header, k.title)
	}
	t := newTable(append(header, "in other workloads"))
	s := sizes[len(sizes)-1]
	for _, subject := range f.subjects {
		row := table.Row{"`" + subject.Name + "`"}
		for _, k := range kinds {
			v, measured := f.worst("Exact", subject.Name, s, k.unit)
			_, any := f.worst("Exact", subject.Name, s, "early")
			switch {
			case measured && v == 0:
				row = append(row, "0")
			case measured:
				row = append(row, fmt.Sprintf("%.0f (%.1f %%)", v, 100*v/float64(s.pending)))
			case any:
				row = append(row, "n/a") // Stop gives no answer
			default:
				row = append(row, lacking(f, "Exact", subject.Name, s))
			}
		}
		t.AppendRow(append(row, elsewhere(f, subject.Name)))
	}
	out := fmt.Sprintf("%s timers in one run.\n\n", results.FormatCount(s.pending)) + t.RenderMarkdown() + "\n"
	for _, subject := range f.subjects {
		if notes := reasons(f, "Exact", subject.Name); len(notes) > 0 {
			out += "\n" + strings.Join(notes, "\n")
		}
	}
	return strings.TrimRight(out, "\n") + "\n"
}

// elsewhere lists the mistakes of the other workloads.
func elsewhere(f *figures, impl string) string {
	var found []string
	for _, w := range workload.All {
		if w.Name == "Exact" {
			continue
		}
		for _, k := range kinds {
			worst := 0.0
			for _, s := range f.sizes(w.Name) {
				v, _ := f.worst(w.Name, impl, s, k.unit)
				worst = max(worst, v)
			}
			if worst > 0 {
				found = append(found, fmt.Sprintf("%s: %.0f %s", w.Name, worst, k.unit))
			}
		}
	}
	if len(found) == 0 {
		return "none"
	}
	return strings.Join(found, ", ")
}
