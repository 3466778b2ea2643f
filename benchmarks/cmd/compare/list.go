package main

import (
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/timingwheel-go/timingwheel/benchmarks/workload"
)

// implementations is a table of them and of what they can do.
func implementations(cfg config) string {
	t := newTable(table.Row{"implementation", "", "tick", "stop", "reset"})
	for _, name := range cfg.subjects {
		s, _ := workload.FindSubject(name)
		tick := "none"
		if s.Tick > 0 {
			tick = s.Tick.String()
		}
		t.AppendRow(table.Row{s.Name, s.Title, tick, s.Stop, s.Reset})
	}
	return t.Render()
}

// workloads is a table of them with the numbers of timers.
func workloads(cfg config) string {
	t := newTable(table.Row{"workload", "", "timers", "busy"})
	for _, name := range cfg.workloads {
		w, _ := workload.Find(name)
		t.AppendRow(table.Row{w.Name, w.Description, counts(sizes(cfg, w)), busyText(cfg, w)})
	}
	return t.Render()
}

// busyText is the numbers of spinning goroutines, "" for a workload without any.
func busyText(cfg config, w workload.Workload) string {
	if len(w.Busy) == 0 {
		return ""
	}
	return counts(busyLevels(cfg, w))
}

func newTable(header table.Row) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(header)
	t.SuppressTrailingSpaces()
	return t
}
