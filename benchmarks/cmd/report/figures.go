package main

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/workload"
)

// figures are the measurements and the reasons for missing ones.
type figures struct {
	*results.Measurements
	outcomes []results.Outcome
	subjects []workload.Subject // of the measurements and outcomes
}

func newFigures(m *results.Measurements, outcomes []results.Outcome) *figures {
	f := &figures{Measurements: m, outcomes: outcomes}
	seen := map[string]bool{}
	for _, b := range m.Benchmarks {
		seen[b.Params["impl"]] = seen[b.Params["impl"]] || b.Base != "Floor"
	}
	for _, o := range outcomes {
		seen[o.Benchmark.Params["impl"]] = true
	}
	for _, s := range workload.Subjects {
		if seen[s.Name] {
			f.subjects = append(f.subjects, s)
		}
	}
	return f
}

// size holds the parameters of a workload. busy is the number of spinning goroutines.
type size struct{ pending, procs, busy int }

// sizes returns the sizes of a workload, smaller ones first.
func (f *figures) sizes(name string) []size {
	var all []size
	for _, b := range f.Benchmarks {
		if b.Base != name {
			continue
		}
		pending, err := results.ParseCount(b.Params["pending"])
		procs, procsErr := strconv.Atoi(b.Params["procs"])
		busy, _ := strconv.Atoi(b.Params["busy"])
		if s := (size{pending, procs, busy}); err == nil && procsErr == nil && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b size) int {
		return cmp.Or(cmp.Compare(a.procs, b.procs), cmp.Compare(a.pending, b.pending), cmp.Compare(a.busy, b.busy))
	})
	return all
}

// name returns the benchmark of a workload, an implementation and a size.
func (s size) name(workload, impl string) results.Benchmark {
	b := results.Benchmark{Base: workload, Params: map[string]string{
		"impl": impl, "pending": results.FormatCount(s.pending), "procs": strconv.Itoa(s.procs),
	}}
	if s.busy > 0 {
		b.Params["busy"] = strconv.Itoa(s.busy)
	}
	return b
}

// severalPending reports whether sizes have different numbers of timers.
func severalPending(sizes []size) bool {
	return slices.ContainsFunc(sizes, func(s size) bool { return s.pending != sizes[0].pending })
}

// figure returns the median of a figure.
func (f *figures) figure(workload, impl string, s size, unit string) (float64, bool) {
	return f.Median(s.name(workload, impl), unit)
}

// worst returns the maximum of a figure.
func (f *figures) worst(workload, impl string, s size, unit string) (float64, bool) {
	values := f.Values[results.Series{Benchmark: s.name(workload, impl).String(), Unit: unit}]
	if len(values) == 0 {
		return 0, false
	}
	return slices.Max(values), true
}

// didNotRun reports whether timers of any run did not run, so that its figures are not comparable.
func (f *figures) didNotRun(workload, impl string, s size) bool {
	count, _ := f.worst(workload, impl, s, "not-run")
	return count > 0
}

// outcome returns why a figure is missing, for all numbers of processors.
func (f *figures) outcome(workload, impl string, s size) (results.Outcome, bool) {
	want := size{s.pending, 1, s.busy}.name(workload, impl).String()
	for _, o := range f.outcomes {
		if o.Benchmark.String() == want {
			return o, true
		}
	}
	return results.Outcome{}, false
}

// quantity formats a figure with three digits and its unit: "155 ns", "1.23 ms", "30.3 B", "12".
func quantity(v float64, unit string) string {
	what, _, _ := strings.Cut(unit, "/")
	switch {
	case what == "sec" || strings.HasSuffix(what, "-sec"):
		return seconds(v)
	case what == "B":
		return digits(v) + " B"
	default:
		return digits(v)
	}
}

func seconds(v float64) string {
	if v == 0 {
		return "0"
	}
	for _, scale := range []struct {
		unit string
		size float64
	}{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}} {
		if math.Abs(v) >= 0.9995*scale.size {
			return digits(v/scale.size) + " " + scale.unit
		}
	}
	return digits(v/1e-9) + " ns"
}

// digits formats three significant digits, or more if the integer part is longer.
func digits(v float64) string {
	switch size := math.Abs(v); {
	case v == math.Trunc(v) || size >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case size >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}
