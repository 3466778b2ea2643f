package main

import "github.com/timingwheel-go/timingwheel/benchmarks/internal/results"

// verdict is the last column of the table.
type verdict string

const (
	reached    verdict = "reached"
	notReached verdict = "NOT REACHED"
	noData     verdict = "no data"
	noTarget   verdict = "" // the comparison has no bound
)

// evaluation is a target with the measured figures.
type evaluation struct {
	target
	benchmark results.Benchmark
	figure    *float64 // nil: not measured
	reference *float64 // figure of the baseline; nil: not measured, or no baseline
	result    float64  // compared with the bound, or a ratio; invalid if verdict is noData
	verdict   verdict
}

// evaluate compares m with each target, in the order of targets. A target that matches several
// benchmarks has a row for each of them. A target that matches none has a row without data.
func evaluate(m *results.Measurements, targets []target) []evaluation {
	var all []evaluation
	for _, t := range targets {
		pattern := results.Parse(t.pattern)
		found := false
		for _, b := range m.Benchmarks {
			if _, measured := m.Median(b, t.unit); measured && b.Matches(pattern) {
				all = append(all, evaluateOne(m, t, b))
				found = true
			}
		}
		if !found {
			all = append(all, evaluateOne(m, t, pattern))
		}
	}
	return all
}

func evaluateOne(m *results.Measurements, t target, b results.Benchmark) evaluation {
	e := evaluation{target: t, benchmark: b, verdict: noData}
	if v, ok := m.Median(b, t.unit); ok {
		e.figure = &v
	}
	if t.baseline != "" {
		if v, ok := m.Median(b.Baseline(t.baseline), t.unit); ok {
			e.reference = &v
		}
	}
	if e.figure == nil || e.reference == nil && t.how != absolute {
		return e
	}
	met := true
	switch t.how {
	case ratio:
		e.result = *e.figure / *e.reference
		met = e.result <= t.bound
	case speedup:
		e.result = *e.reference / *e.figure
		met = e.result >= t.bound
	case difference:
		e.result = *e.figure - *e.reference
		met = e.result <= t.bound
	case absolute:
		e.result = *e.figure
		met = e.result <= t.bound
	default:
		e.result = *e.figure / *e.reference
		met = *e.figure <= t.bound**e.reference+t.how.plus
	}
	switch {
	case t.bound == unbounded:
		e.verdict = noTarget
	case met:
		e.verdict = reached
	default:
		e.verdict = notReached
	}
	return e
}

// otherPairs compares with std every figure in m that has no target. Allocations are left out,
// because they repeat one figure in every row.
func otherPairs(m *results.Measurements, rows []evaluation) []evaluation {
	shown := map[results.Series]bool{}
	for _, e := range rows {
		if e.baseline == std {
			shown[results.Series{Benchmark: e.benchmark.String(), Unit: e.unit}] = true
		}
	}
	var others []evaluation
	for _, b := range m.Benchmarks {
		baseline := b.Baseline(std)
		if baseline.String() == b.String() {
			continue
		}
		for _, unit := range m.Units[b.String()] {
			if unit == "B/op" || unit == "allocs/op" || shown[results.Series{Benchmark: b.String(), Unit: unit}] {
				continue
			}
			if _, measured := m.Median(baseline, unit); measured {
				others = append(others, evaluateOne(m, target{b.String(), unit, ratio, std, unbounded}, b))
			}
		}
	}
	return others
}
