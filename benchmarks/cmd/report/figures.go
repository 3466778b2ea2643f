package main

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
	"github.com/timingwheel-go/timingwheel/benchmarks/workload"
)

// figures are the measurements and what is missing among them.
type figures struct {
	*results.Measurements
	outcomes []results.Outcome
	subjects []workload.Subject // those that the measurements or the outcomes speak of
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

// size is what a workload was measured with. busy is 0 if no goroutines spin beside it.
type size struct{ pending, procs, busy int }

// sizes lists those of a workload, the smaller first.
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

// name is the benchmark of a workload, an implementation and a size.
func (s size) name(workload, impl string) results.Benchmark {
	b := results.Benchmark{Base: workload, Params: map[string]string{
		"impl": impl, "pending": results.FormatCount(s.pending), "procs": strconv.Itoa(s.procs),
	}}
	if s.busy > 0 {
		b.Params["busy"] = strconv.Itoa(s.busy)
	}
	return b
}

// severalPending says whether the numbers of timers of sizes differ.
func severalPending(sizes []size) bool {
	return slices.ContainsFunc(sizes, func(s size) bool { return s.pending != sizes[0].pending })
}

// figure is the median of what was measured.
func (f *figures) figure(workload, impl string, s size, unit string) (float64, bool) {
	return f.Median(s.name(workload, impl), unit)
}

// worst is the largest that was measured.
func (f *figures) worst(workload, impl string, s size, unit string) (float64, bool) {
	values := f.Values[results.Series{Benchmark: s.name(workload, impl).String(), Unit: unit}]
	if len(values) == 0 {
		return 0, false
	}
	return slices.Max(values), true
}

// outcome says why there is no figure, for any number of processors.
func (f *figures) outcome(workload, impl string, s size) (results.Outcome, bool) {
	want := size{s.pending, 1, s.busy}.name(workload, impl).String()
	for _, o := range f.outcomes {
		if o.Benchmark.String() == want {
			return o, true
		}
	}
	return results.Outcome{}, false
}
