package main

import (
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/workload"
	"golang.org/x/perf/benchfmt"
)

// progress prints the progress of a comparison.
type progress struct {
	out         io.Writer
	jobs, turns int
	done        int
	begun       time.Time
	prefix      string // of each line: the position of the job
}

func newProgress(out io.Writer, jobs, turns int) *progress {
	return &progress{out: out, jobs: jobs, turns: turns, begun: time.Now()}
}

// estimateAfter is the number of jobs before the first estimate of the remaining time.
const estimateAfter = 10

// begin is called before each job.
func (p *progress) begin(turn int) {
	elapsed := time.Since(p.begun)
	left := "?"
	if p.done >= estimateAfter {
		total := elapsed * time.Duration(p.jobs*p.turns) / time.Duration(p.done)
		left = (total - elapsed).Round(time.Second).String()
	}
	p.prefix = fmt.Sprintf("run %d/%d %3d/%d %6v %8s left", turn+1, p.turns, p.done%p.jobs+1, p.jobs,
		elapsed.Round(time.Second), left)
	p.done++
}

func (p *progress) result(r *benchfmt.Result) {
	line := string(r.Name)
	for _, v := range r.Values[:min(3, len(r.Values))] {
		if v.OrigUnit != "" {
			v.Value, v.Unit = v.OrigValue, v.OrigUnit
		}
		line += fmt.Sprintf("  %v %s", v.Value, v.Unit)
	}
	fmt.Fprintf(p.out, "%s  %s\n", p.prefix, line)
}

func (p *progress) outcome(j job, why string) {
	fmt.Fprintf(p.out, "%s  %s: %s\n", p.prefix, j.name(), why)
}

func (p *progress) end(written int, output string, interrupted bool) {
	how := "done"
	if interrupted {
		how = "interrupted"
	}
	if output == "-" {
		output = "standard output"
	}
	fmt.Fprintf(p.out, "%s after %v: %d results in %s\n", how, time.Since(p.begun).Round(time.Second), written, output)
}

// list prints the implementations and workloads.
func list(out io.Writer, cfg config) {
	fmt.Fprintln(out, implementations(cfg))
	fmt.Fprintln(out, workloads(cfg))
	jobs := 0
	for _, j := range plan(cfg) {
		if j.missing() == "" {
			jobs++
		}
	}
	fmt.Fprintf(out, "%d processes in each of %d runs\n", jobs, cfg.count)
}

func counts(ns []int) (text string) {
	for i, n := range ns {
		if i > 0 {
			text += ", "
		}
		text += results.FormatCount(n)
	}
	return text
}

// implementations returns a table of the implementations and their capabilities.
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

// workloads returns a table of the workloads and their sizes.
func workloads(cfg config) string {
	t := newTable(table.Row{"workload", "", "timers", "busy"})
	for _, name := range cfg.workloads {
		w, _ := workload.Find(name)
		t.AppendRow(table.Row{w.Name, w.Description, counts(sizes(cfg, w)), busyText(cfg, w)})
	}
	return t.Render()
}

// busyText returns the numbers of spinning goroutines of a workload, or "".
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
