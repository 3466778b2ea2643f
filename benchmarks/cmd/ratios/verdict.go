package main

import "github.com/timingwheel-go/timingwheel/benchmarks/internal/results"

// verdict is what a row of the table ends in.
type verdict string

const (
	reached    verdict = "reached"
	notReached verdict = "NOT REACHED"
	noData     verdict = "no data"
	noTarget   verdict = "" // nothing was promised
)

// judgement is a target with what was measured.
type judgement struct {
	target
	benchmark results.Benchmark
	ours      *float64 // nil: not measured
	theirs    *float64 // the rival's figure; nil: not measured, or no rival
	result    float64  // what is held against the bound, or a ratio; valid unless verdict is noData
	verdict   verdict
}

// judge holds m against each target, in the order of targets. A target that matches several benchmarks
// gives a row for each, one that matches none gives a row without data.
func judge(m *results.Measurements, targets []target) []judgement {
	var all []judgement
	for _, t := range targets {
		pattern := results.Parse(t.ours)
		found := false
		for _, b := range m.Benchmarks {
			if _, measured := m.Median(b, t.unit); measured && b.Matches(pattern) {
				all = append(all, judgeOne(m, t, b))
				found = true
			}
		}
		if !found {
			all = append(all, judgeOne(m, t, pattern))
		}
	}
	return all
}

func judgeOne(m *results.Measurements, t target, b results.Benchmark) judgement {
	j := judgement{target: t, benchmark: b, verdict: noData}
	if v, ok := m.Median(b, t.unit); ok {
		j.ours = &v
	}
	if t.rival != "" {
		if v, ok := m.Median(b.Rival(t.rival), t.unit); ok {
			j.theirs = &v
		}
	}
	if j.ours == nil || j.theirs == nil && t.how != absolute {
		return j
	}
	kept := true
	switch t.how {
	case ratio:
		j.result = *j.ours / *j.theirs
		kept = j.result <= t.bound
	case speedup:
		j.result = *j.theirs / *j.ours
		kept = j.result >= t.bound
	case difference:
		j.result = *j.ours - *j.theirs
		kept = j.result <= t.bound
	case absolute:
		j.result = *j.ours
		kept = j.result <= t.bound
	default:
		j.result = *j.ours / *j.theirs
		kept = *j.ours <= t.bound**j.theirs+t.how.plus
	}
	switch {
	case t.bound == unbounded:
		j.verdict = noTarget
	case kept:
		j.verdict = reached
	default:
		j.verdict = notReached
	}
	return j
}

// otherPairs returns the pairs of ours and std in m that no target speaks of. Allocations are left out:
// beside the targets they repeat one figure in every row.
func otherPairs(m *results.Measurements, judged []judgement) []judgement {
	shown := map[results.Series]bool{}
	for _, j := range judged {
		if j.target.rival == std {
			shown[results.Series{Benchmark: j.benchmark.String(), Unit: j.unit}] = true
		}
	}
	var others []judgement
	for _, b := range m.Benchmarks {
		rival := b.Rival(std)
		if rival.String() == b.String() {
			continue
		}
		for _, unit := range m.Units[b.String()] {
			if unit == "B/op" || unit == "allocs/op" || shown[results.Series{Benchmark: b.String(), Unit: unit}] {
				continue
			}
			if _, measured := m.Median(rival, unit); measured {
				others = append(others, judgeOne(m, target{b.String(), unit, ratio, std, unbounded}, b))
			}
		}
	}
	return others
}
