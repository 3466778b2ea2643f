package main

import (
	"strconv"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/workload"
)

// charts returns the plots of the report. A chart without figures has no lines.
func charts(f *figures) []chart {
	overPending := func(file, title, workload, unit, what string, y axis) chart {
		y.title = what
		return chart{file: file, title: title, x: axis{title: "pending timers", scale: logarithmic, label: countLabel}, y: y,
			lines: pendingLines(f, workload, unit)}
	}
	cost := axis{scale: logarithmic, label: seconds}
	return []chart{
		overPending("armstop.svg", "Arm a timer and stop it", "ArmStop", "sec/op", "time for both calls", cost),
		overPending("postpone.svg", "Postpone a random timer", "Postpone", "sec/op", "time", cost),
		overPending("churn.svg", "Stop a random timer and arm another one", "Churn", "sec/op", "time for both calls", cost),
		coresChart(f, cost),
		latenessChart(f),
		overPending("memory.svg", "Memory of each pending timer", "Fill", "B/timer", "bytes", axis{scale: logarithmic, label: bytesLabel}),
		overPending("gc.svg", "A full garbage collection", "GC", "gc-sec", "time", cost),
	}
}

func countLabel(v float64) string { return results.FormatCount(int(v)) }

func bytesLabel(v float64) string {
	if v >= 1e3 {
		return digits(v/1e3) + " kB"
	}
	return quantity(v, "B")
}

// pendingLines returns a line for each implementation, on one processor if the workload is
// parallel.
func pendingLines(f *figures, workload, unit string) []line {
	var lines []line
	for _, s := range f.subjects {
		l := line{name: s.Name}
		for _, size := range f.sizes(workload) {
			if v, ok := f.figure(workload, s.Name, size, unit); ok && size.procs == 1 && v > 0 {
				l.points = append(l.points, point{float64(size.pending), v})
			}
		}
		lines = appendLine(lines, l)
	}
	return lines
}

// coresChart shows ArmStop by number of processors, with the largest population on several
// processors.
func coresChart(f *figures, cost axis) chart {
	pending := 0
	for _, s := range f.sizes("ArmStop") {
		if s.procs > 1 {
			pending = max(pending, s.pending)
		}
	}
	cost.title = "time for both calls"
	c := chart{file: "cores.svg", title: "Arm a timer and stop it, " + results.FormatCount(pending) + " pending",
		x: axis{title: "processors", scale: wholeNumbers, label: func(v float64) string { return strconv.Itoa(int(v)) }}, y: cost}
	for _, s := range f.subjects {
		l := line{name: s.Name}
		for _, size := range f.sizes("ArmStop") {
			if v, ok := f.figure("ArmStop", s.Name, size, "sec/op"); ok && size.pending == pending && pending > 0 {
				l.points = append(l.points, point{float64(size.procs), v})
			}
		}
		c.lines = appendLine(c.lines, l)
	}
	if len(c.lines) > 0 {
		c.lines = appendLine(c.lines, floorLine(f))
	}
	return c
}

// floorLine shows how the machine itself scales with processors.
func floorLine(f *figures) line {
	l := line{name: "floor"}
	for _, b := range f.Benchmarks {
		procs, err := strconv.ParseFloat(b.Params["procs"], 64)
		if v, ok := f.Median(b, "sec/op"); ok && err == nil && b.Base == "Floor" {
			l.points = append(l.points, point{procs, v})
		}
	}
	return l
}

// latenessChart is the distribution function of lateness in Spread, with the largest population.
func latenessChart(f *figures) chart {
	c := chart{file: "lateness.svg", title: "Lateness of callbacks due over two seconds",
		x: axis{title: "lateness (negative: early)", scale: symmetricLog, label: seconds},
		y: axis{title: "percent of timers", scale: percents, label: func(v float64) string { return digits(v) }}}
	sizes := f.sizes("Spread")
	if len(sizes) == 0 {
		return c
	}
	s := sizes[len(sizes)-1]
	c.title = "Lateness of " + results.FormatCount(s.pending) + " callbacks due over two seconds"
	for _, subject := range f.subjects {
		if subject.Coarse || f.didNotRun("Spread", subject.Name, s) {
			continue
		}
		l := line{name: subject.Name}
		for _, p := range workload.Percentiles {
			unit := "p" + strconv.FormatFloat(p, 'f', -1, 64) + "-sec"
			if v, ok := f.figure("Spread", subject.Name, s, unit); ok {
				l.points = append(l.points, point{v, p})
			}
		}
		c.lines = appendLine(c.lines, l)
	}
	return c
}

// appendLine appends a line that has points.
func appendLine(lines []line, l line) []line {
	if len(l.points) == 0 {
		return lines
	}
	return append(lines, l)
}
