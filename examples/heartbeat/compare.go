package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
)

// compare runs the same clients against each implementation and prints a table of the runs. The
// first run and the last one have no timeouts, and their difference is the noise of the
// measurement. If ctx ends or a run fails, the table has the runs until then.
func compare(ctx context.Context, cfg config, w io.Writer) (right bool, err error) {
	impls := slices.Concat([]string{none}, implementations, []string{none})
	fmt.Fprintf(w, "%s, one after the other: %s\n", figures.Plural(len(impls), "run"), strings.Join(impls, ", "))
	var outs []*outcome
	for _, cfg.impl = range impls {
		runtime.GC() // the garbage of the run before
		var o *outcome
		if o, err = run(ctx, cfg, newDisplay(w)); err != nil {
			break
		}
		if !o.right() {
			o.printVerdict(w)
		}
		outs = append(outs, o)
		if o.interrupted {
			break
		}
	}
	if len(outs) > 0 {
		printComparison(w, outs)
	}
	return !slices.ContainsFunc(outs, func(o *outcome) bool { return !o.right() }), err
}

// printComparison prints a row for each run. The first run is the one without timeouts.
func printComparison(w io.Writer, outs []*outcome) {
	t := figures.Table(w, 2, 8, "timeouts", "silent cut", "beats", "CPU", "CPU/beat", "over none", "heap/connection", "over none", "verdict")
	for _, o := range outs {
		row := table.Row{o.cfg.impl, "", "", "", "", "", "", "", o.comparedVerdict()}
		if !o.interrupted {
			o.fillCosts(row, outs[0])
		}
		t.AppendRow(row)
	}
	t.Render()
	fmt.Fprintln(w, "Clients and server share this process, so only differences count, and only those that exceed\n"+
		"the difference between the runs without timeouts.")
}

func (o *outcome) comparedVerdict() string {
	switch {
	case !o.right():
		return "WRONG"
	case o.interrupted:
		return "interrupted"
	case !o.cfg.cuts():
		return "-"
	}
	return "right"
}

// fillCosts fills in what a whole run did and cost.
func (o *outcome) fillCosts(row table.Row, base *outcome) {
	n := countFates(newPlans(o.cfg))[silent]
	row[1], row[2] = fmt.Sprintf("%s of %s", figures.Comma(len(o.verdict.overdue)), figures.Comma(n)), figures.Comma(int(o.beats))
	if o.cpu > 0 { // the system tells it
		row[3], row[4] = o.cpu.Round(time.Millisecond), fmt.Sprintf("%.1fµs", o.microsPerBeat())
	}
	row[6] = fmt.Sprintf("%s B", figures.Comma(o.bytesPerConn()))
	if o == base {
		return
	}
	if o.cpu > 0 {
		row[5] = fmt.Sprintf("%+.1fµs", o.microsPerBeat()-base.microsPerBeat())
	}
	row[7] = fmt.Sprintf("%+d B", o.bytesPerConn()-base.bytesPerConn())
}

func (o *outcome) microsPerBeat() float64 {
	return float64(o.cpu) / float64(time.Microsecond) / float64(max(o.beats, 1))
}

func (o *outcome) bytesPerConn() int { return int(o.heap) / o.cfg.conns }
