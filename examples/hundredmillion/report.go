package main

import (
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
)

// print writes the final tables and the verdict.
func (o *outcome) print(w io.Writer) {
	o.printPhases(w)
	o.printLateness(w)
	o.printMemory(w)
	if o.overran > 0 {
		fmt.Fprintf(w, "too slow: the first deadline was %v before the last beat (use a larger -lead)\n",
			o.overran.Round(time.Millisecond))
	}
	if o.refused > 0 {
		fmt.Fprintf(w, "%s expired before their beat or stop\n", figures.Plural(int(o.refused), "timer"))
	}
	o.printVerdict(w)
}

func (o *outcome) printPhases(w io.Writer) {
	t := figures.Table(w, 2, 9, "operation", "timers", "time", "ns/op", "CPU ns/op", "million/s", "bytes/timer",
		"collections", "longest pause")
	for _, ph := range o.phases {
		if ph.done.Load() == 0 {
			continue
		}
		each := ""
		if ph.pace == busy {
			each = positive("%.0f", ph.nanos())
		}
		t.AppendRow(table.Row{ph.name, figures.Comma(int(ph.done.Load())), seconds(ph.elapsed()), each,
			positive("%.0f", ph.cpuNanos()), positive("%.2f", ph.rate()/1e6), positive("%.1f", ph.bytes),
			ph.pauses.collections, figures.Millis(ph.pauses.longest)})
	}
	t.Render()
	fmt.Fprintf(w, "ns/op: of one goroutine while %d run; CPU: of the whole process, including the garbage collector and the display\n",
		o.cfg.parallel())
	o.printComparison(w)
}

// printComparison prints the cost of the size of the wheel. On a machine with other load only the
// ratio of CPU times is reliable.
func (o *outcome) printComparison(w io.Writer) {
	small, large := o.trial, o.arm
	if large.done.Load() < int64(large.total) || small.nanos() == 0 {
		return
	}
	cpu := ""
	if small.cpuNanos() > 0 {
		cpu = fmt.Sprintf(" (%.2f times the CPU time)", large.cpuNanos()/small.cpuNanos())
	}
	fmt.Fprintf(w, "arming one of %s takes %.2f times as long%s as one of %s\n",
		figures.Comma(large.total), large.nanos()/small.nanos(), cpu, figures.Comma(small.total))
}

func (o *outcome) printLateness(w io.Writer) {
	if o.late == nil {
		return
	}
	t := figures.Table(w, 2, 6, "lateness", "timers", "p50", "p99", "p99.9", "max")
	row := func(name string, count uint64, late ...time.Duration) {
		r := table.Row{name, figures.Comma(int(count))}
		for _, d := range late {
			r = append(r, figures.Millis(d))
		}
		t.AppendRow(r)
	}
	row("expired", o.expired.count, o.late...)
	h := &o.stats.Lateness
	row("the same in Stats, rounded up", h.Count(), h.Quantile(0.5), h.Quantile(0.99), h.Quantile(0.999), h.Max)
	t.Render()
}

func (o *outcome) printMemory(w io.Writer) {
	if o.heap > 0 {
		pending := max(o.cfg.n-int(o.stats.Stopped), 1)
		fmt.Fprintf(w, "all timers pending: a full garbage collection takes %s; live heap %s, %.1f bytes for each timer\n",
			figures.Millis(o.collection), humanize.IBytes(o.heap), float64(o.heap)/float64(pending))
	}
	fmt.Fprintf(w, "Shutdown took %s; live heap after it %s\n", figures.Millis(o.stopTook), humanize.IBytes(o.left))
	fmt.Fprintf(w, "memory of the process: %s (largest sample); CPU time of the garbage collector: %s\n",
		humanize.IBytes(o.peak), seconds(o.gcTime))
}

func (o *outcome) printVerdict(w io.Writer) {
	for _, f := range o.faults {
		fmt.Fprintln(w, "  ", f)
	}
	switch took := o.took.Round(100 * time.Millisecond); {
	case len(o.faults) > 0:
		fmt.Fprintf(w, "FAIL: %s, in %v\n", figures.Plural(len(o.faults), "fault"), took)
	case o.interrupted:
		fmt.Fprintf(w, "interrupted after %v: no fault until then, but not verified\n", took)
	default:
		fmt.Fprintf(w, "PASS: %s expired, exactly the due ones, once each and none early; %s remained; in %v\n",
			figures.Plural(int(o.expired.count), "timer"), figures.Comma(o.length), took)
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2fs", d.Seconds()) }

// positive formats a figure. It returns "" for one that was not measured.
func positive(format string, x float64) string {
	if x <= 0 {
		return ""
	}
	return fmt.Sprintf(format, x)
}
