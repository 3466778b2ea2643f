package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
)

// printSettings prints what all runs of a command line have in common.
func printSettings(w io.Writer, cfg config) {
	n := countRoles(newPlans(cfg))
	fmt.Fprintf(w, "%s connections for %v; idle timeout %v, cut at most %v later; a heartbeat at least every %v\n",
		figures.Comma(cfg.conns), cfg.duration, cfg.timeout, cfg.bound, longestInterval(cfg.timeout))
	fmt.Fprintf(w, "clients: %s stay, %s close early, %s crash, %s go silent\n",
		figures.Comma(n[stays]), figures.Comma(n[closes]), figures.Comma(n[crashes]), figures.Comma(n[silent]))
}

// right reports whether the server made no mistake.
func (res *result) right() bool { return len(res.verdict.faults) == 0 }

// print prints the report of a single run.
func (res *result) print(w io.Writer) {
	if res.interrupted {
		fmt.Fprintln(w, "interrupted; the report covers the run until then")
	}
	res.printEnds(w)
	res.printMeasures(w)
	if res.summary != "" {
		fmt.Fprintln(w, res.summary)
	}
	res.printStalls(w)
	res.printVerdict(w)
}

// printEnds prints the roles of the clients and the ends that the server saw.
func (res *result) printEnds(w io.Writer) {
	t := figures.Table(w, 2, 6, "clients that", "number", "server saw: closed", "reset", "cut", "not ended")
	for r := range roles {
		ends := res.verdict.ends[r]
		sum := 0
		for _, n := range ends {
			sum += n
		}
		t.AppendRow(table.Row{r.String(), figures.Comma(sum), figures.Comma(ends[closed]), figures.Comma(ends[reset]),
			figures.Comma(ends[cut]), figures.Comma(ends[notEnded])})
	}
	t.Render()
}

// printMeasures prints what was measured, what was excused, and what was wrong.
func (res *result) printMeasures(w io.Writer) {
	v, t := &res.verdict, figures.Table(w, 2, 5, "measure", "count", "p50", "p99", "max")
	count := func(name string, n int) { t.AppendRow(table.Row{name, figures.Comma(n)}) }
	count("beats", int(res.beats))
	t.AppendRow(append(table.Row{"timeouts passed, late by", figures.Comma(int(res.fired))}, millis(res.lateness)...))
	t.AppendRow(append(table.Row{"cuts seen by clients, late by", figures.Comma(len(v.cutDelays))}, millis(quantiles(v.cutDelays, 50, 99, 100))...))
	t.AppendRow(table.Row{"stalls of the machine", figures.Comma(len(res.stalls)), "", "", figures.Millis(longestOf(res.stalls))})
	t.AppendRow(table.Row{"heap", "", "", "", humanize.IBytes(res.peak.heap)})
	t.AppendRow(table.Row{"goroutines", "", "", "", figures.Comma(res.peak.goroutines)})
	t.AppendRow(table.Row{"pending timers", "", "", "", formatPending(res.peak.pending)})
	t.AppendSeparator()
	count("kept at timeout: a heartbeat was in the kernel", int(res.keptByBeat))
	count("kept at timeout: the machine had stalled", int(res.keptByStall))
	count("excused: cut late, the machine stalled", v.excused)
	count("excused: live client cut, the machine delayed its beats", v.starved)
	count("silent clients that were not due to be cut", v.notDue)
	t.AppendSeparator()
	count("wrong: live client cut", v.liveCut)
	count("wrong: silent client not cut", v.missed)
	count("wrong: cut early", v.early)
	count("wrong: cut late", v.late)
	count("wrong: server saw another end", v.misreported)
	t.Render()
}

// printStalls prints for how long the machine stalled.
func (res *result) printStalls(w io.Writer) {
	if len(res.stalls) == 0 {
		return
	}
	var sum time.Duration
	for _, s := range res.stalls {
		sum += s.to.Sub(s.from)
	}
	fmt.Fprintf(w, "the machine stalled %s, %v in total and %v at most, which excuses %s\n",
		figures.Plural(len(res.stalls), "time"), sum.Round(time.Millisecond), longestOf(res.stalls).Round(time.Millisecond),
		figures.Plural(res.verdict.excused, "late cut"))
}

// faultsShown is the number of faults that a report lists.
const faultsShown = 10

func (res *result) printVerdict(w io.Writer) {
	v := &res.verdict
	if !res.right() {
		for _, f := range v.faults[:min(len(v.faults), faultsShown)] {
			fmt.Fprintln(w, "  ", f)
		}
		if more := len(v.faults) - faultsShown; more > 0 {
			fmt.Fprintf(w, "   and %s more\n", figures.Comma(more))
		}
		fmt.Fprintf(w, "FAIL: %s\n", figures.Plural(len(v.faults), "fault"))
		return
	}
	if v.starved > 0 {
		fmt.Fprintf(w, "too busy: the machine delayed the beats of %s for so long that the server had to cut them\n",
			figures.Plural(v.starved, "client"))
	}
	fmt.Fprintf(w, "PASS: cut %s in time and no live one, in %v", figures.Plural(len(v.cutDelays), "silent connection"),
		res.took.Round(100*time.Millisecond))
	if v.notDue > 0 {
		fmt.Fprintf(w, "; %s more were not due to be cut", figures.Comma(v.notDue))
	}
	fmt.Fprintln(w)
}

// quantiles returns percentiles by the nearest-rank method, or nil if there are no values.
func quantiles(ds []time.Duration, percentiles ...int) (qs []time.Duration) {
	if len(ds) == 0 {
		return nil
	}
	ds = slices.Sorted(slices.Values(ds))
	for _, p := range percentiles {
		rank := (len(ds)*p + 99) / 100
		qs = append(qs, ds[max(rank, 1)-1])
	}
	return qs
}

func millis(ds []time.Duration) (row table.Row) {
	for _, d := range ds {
		row = append(row, figures.Millis(d))
	}
	return row
}

// printComparison prints a row for each run of -compare. The first run has no timeouts.
func printComparison(w io.Writer, results []*result) {
	t := figures.Table(w, 2, 8, "timeouts", "silent cut", "beats", "CPU", "CPU/beat", "vs. none", "heap/connection", "vs. none", "verdict")
	for _, res := range results {
		row := table.Row{res.cfg.impl, "", "", "", "", "", "", "", res.comparedVerdict()}
		if !res.interrupted {
			res.fillCosts(row, results[0])
		}
		t.AppendRow(row)
	}
	t.Render()
	fmt.Fprintln(w, "Clients and server share the process, so only differences between runs count. A difference that\n"+
		"does not exceed the difference between the two runs without timeouts is noise.")
}

func (res *result) comparedVerdict() string {
	switch {
	case !res.right():
		return "FAIL"
	case res.interrupted:
		return "interrupted"
	case !res.cfg.hasTimeouts():
		return "-"
	}
	return "right"
}

// fillCosts fills in the cells of a run that was not interrupted.
func (res *result) fillCosts(row table.Row, baseline *result) {
	n := countRoles(newPlans(res.cfg))[silent]
	row[1] = fmt.Sprintf("%s of %s", figures.Comma(len(res.verdict.cutDelays)), figures.Comma(n))
	row[2] = figures.Comma(int(res.beats))
	if res.cpu > 0 { // the system reports it
		row[3], row[4] = res.cpu.Round(time.Millisecond), fmt.Sprintf("%.1fµs", res.microsPerBeat())
	}
	row[6] = fmt.Sprintf("%s B", figures.Comma(res.bytesPerConn()))
	if res == baseline {
		return
	}
	if res.cpu > 0 {
		row[5] = fmt.Sprintf("%+.1fµs", res.microsPerBeat()-baseline.microsPerBeat())
	}
	row[7] = fmt.Sprintf("%+d B", res.bytesPerConn()-baseline.bytesPerConn())
}

func (res *result) microsPerBeat() float64 {
	return float64(res.cpu) / float64(time.Microsecond) / float64(max(res.beats, 1))
}

func (res *result) bytesPerConn() int { return int(res.heap) / res.cfg.conns }
