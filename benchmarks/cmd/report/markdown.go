package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
	"github.com/timingwheel-go/timingwheel/benchmarks/workload"
)

const introduction = `# Comparison with other timers

Made by ` + "`benchmarks/cmd/report`" + ` of what ` + "`benchmarks/cmd/compare`" + ` has measured; not to be edited. ` +
	"`make report`" + ` makes it again. How everything is measured, and what the workloads stand for:
[docs/benchmarks.md](../benchmarks.md).

`

const reading = `Figures are medians; in brackets stands the ratio to ` + "`time.AfterFunc`" + ` (` + "`std`" + `) in the same runs. ` + "`n/a`" + ` means that an
implementation has no such operation; the reason stands below the table. ` + "`lost`" + ` means that some timers had not run when none had
for some seconds. On busy processors so many goroutines compute without a pause on two processors.

`

// markdown is the report.
func markdown(f *figures, drawn []chart, raw string) string {
	var b strings.Builder
	b.WriteString(introduction)
	b.WriteString(circumstances(f, raw))
	b.WriteString(reading)
	b.WriteString("## What is compared\n\n" + subjects(f) + "\n")
	for _, c := range drawn {
		fmt.Fprintf(&b, "![%s](%s)\n\n", c.title, c.file)
	}
	for _, w := range workload.All {
		if w.Name == "Exact" {
			continue
		}
		if s := sheet(f, w); s != "" {
			fmt.Fprintf(&b, "## %s\n\n%s.%s\n\n%s\n", w.Name, sentence(w.Description), timers(f, w), s)
		}
		if w.Name == "ArmStop" {
			b.WriteString(floor(f))
		}
	}
	if s := mistakes(f); s != "" {
		w, _ := workload.Find("Exact")
		fmt.Fprintf(&b, "## Mistakes\n\n`Exact`: %s The worst run counts. The other workloads look at every eighth timer "+
			"where a look costs time. %s", w.Description, s)
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// circumstances are what a figure has to name.
func circumstances(f *figures, raw string) string {
	var b strings.Builder
	for _, line := range []struct{ title, value string }{
		{"Machine", join(", ", f.Config["cpu"], suffix(f.Config["cores"], " cores"), join("/", f.Config["goos"], f.Config["goarch"]))},
		{"Go", f.Config["go"]},
		{"Commit", f.Config["commit"]},
		{"Date", f.Config["date"]},
		{"Command", quoted(f.Config["command"])},
		{"Count", f.Runs()},
	} {
		if line.value != "" {
			fmt.Fprintf(&b, "- %s: %s\n", line.title, line.value)
		}
	}
	if raw != "" {
		fmt.Fprintf(&b, "- Figures for benchstat: [%s](%s)\n", raw, raw)
	}
	return b.String() + "\n"
}

// subjects is the table of implementations.
func subjects(f *figures) string {
	t := newTable(table.Row{"", "implementation", "module", "tick", "stop", "reset", "remarks"})
	t.SetColumnConfigs(nil)
	for _, s := range f.subjects {
		tick := "none"
		if s.Tick > 0 {
			tick = quantity(s.Tick.Seconds(), "sec")
		}
		t.AppendRow(table.Row{"`" + s.Name + "`", s.Title, f.Config["module-"+s.Name], tick, s.Stop.String(), s.Reset.String(), s.Note})
	}
	return t.RenderMarkdown() + "\n"
}

// timers says with how many timers a workload was measured, where its table does not.
func timers(f *figures, w workload.Workload) string {
	sizes := f.sizes(w.Name)
	if len(sizes) == 0 || severalPending(sizes) || columns[w.Name][0].title == "" {
		return ""
	}
	return fmt.Sprintf(" %s timers.", results.FormatCount(sizes[0].pending))
}

// floor compares ArmStop with what no timer can do without.
func floor(f *figures) string {
	least, measured := f.Median(results.Parse("Floor"), "sec/op")
	if !measured {
		return ""
	}
	text := fmt.Sprintf("The floor, one clock reading and two pairs of lock and unlock, is %s here", quantity(least, "sec/op"))
	for _, s := range f.sizes("ArmStop") {
		if v, ok := f.figure("ArmStop", "wheel", s, "sec/op"); ok && s.procs == 1 && s.pending == 1_000_000 {
			text += fmt.Sprintf("; `wheel` with a million pending takes %.1f times that", v/least)
		}
	}
	text += "."
	for _, p := range floorLine(f).points {
		if p.x > 1 {
			text += fmt.Sprintf(" On %.0f processors at once it is %s: %.1f times the throughput; so much did the machine itself gain.",
				p.x, seconds(p.y), least/p.y)
		}
	}
	return text + "\n\n"
}

func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func suffix(s, with string) string {
	if s == "" {
		return ""
	}
	return s + with
}

func quoted(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// join joins those that are not empty.
func join(separator string, parts ...string) string {
	var there []string
	for _, p := range parts {
		if p != "" {
			there = append(there, p)
		}
	}
	return strings.Join(there, separator)
}
