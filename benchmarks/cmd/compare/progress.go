package main

import (
	"fmt"
	"io"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
	"golang.org/x/perf/benchfmt"
)

// progress tells on standard error what happens.
type progress struct {
	out          io.Writer
	jobs, turns  int
	done         int
	begun        time.Time
	announcement string // how far it is, before each line
}

func newProgress(out io.Writer, jobs, turns int) *progress {
	return &progress{out: out, jobs: jobs, turns: turns, begun: time.Now()}
}

// After so many jobs there is an estimate of how long the rest takes.
const enough = 10

// begin is called before each job.
func (p *progress) begin(turn int) {
	elapsed := time.Since(p.begun)
	left := "?"
	if p.done >= enough {
		total := elapsed * time.Duration(p.jobs*p.turns) / time.Duration(p.done)
		left = (total - elapsed).Round(time.Second).String()
	}
	p.announcement = fmt.Sprintf("run %d/%d %3d/%d %6v %8s left", turn+1, p.turns, p.done%p.jobs+1, p.jobs,
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
	fmt.Fprintf(p.out, "%s  %s\n", p.announcement, line)
}

func (p *progress) say(j job, why string) {
	fmt.Fprintf(p.out, "%s  %s: %s\n", p.announcement, j.name(), why)
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

// list prints what can be measured.
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
