package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"

	"golang.org/x/perf/benchfmt"
)

// series names one figure of one benchmark, measured once in each run.
type series struct {
	benchmark string // in canonical form
	unit      string // with its time in seconds
}

// measurements holds the results of one input.
type measurements struct {
	cpu        string // as Go reports it, or ""
	benchmarks []benchmark
	units      map[string][]string // of each benchmark, in the order of first appearance
	values     map[series][]float64
}

// errNoResults says that the input was no benchmark output, or that no benchmark matched.
var errNoResults = errors.New("no benchmark result on standard input")

// read parses the output of go test -bench. Lines that are no results, such as those of the testing
// package and of a tested program, are skipped; a broken result line is an error that names it.
func read(in io.Reader) (*measurements, error) {
	m := &measurements{units: map[string][]string{}, values: map[series][]float64{}}
	reader := benchfmt.NewReader(in, "standard input")
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.Result:
			m.add(record)
		case *benchfmt.SyntaxError:
			return nil, record
		}
	}
	if err := reader.Err(); err != nil {
		return nil, err
	}
	if len(m.benchmarks) == 0 {
		return nil, errNoResults
	}
	return m, nil
}

func (m *measurements) add(r *benchfmt.Result) {
	m.cpu = r.GetConfig("cpu")
	b := parseBenchmark(r.Name.String())
	name := b.String()
	if _, known := m.units[name]; !known {
		m.benchmarks = append(m.benchmarks, b)
		m.units[name] = nil
	}
	for _, v := range r.Values {
		value, unit := inSeconds(v.Value, v.Unit)
		s := series{name, unit}
		if len(m.values[s]) == 0 {
			m.units[name] = append(m.units[name], unit)
		}
		m.values[s] = append(m.values[s], value)
	}
}

// timeUnit finds the unit of time in names such as "ns/op", "cpu-ns/timer" and "p99.9-us".
var timeUnit = regexp.MustCompile(`(^|-)(ns|us|µs|ms|s)(/|$)`)

var secondsIn = map[string]float64{"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1}

// inSeconds converts a figure of time to seconds, so that targets need not know in which unit a
// benchmark reports. Other figures stay as they are.
func inSeconds(value float64, unit string) (float64, string) {
	found := timeUnit.FindStringSubmatch(unit)
	if found == nil {
		return value, unit
	}
	return value * secondsIn[found[2]], timeUnit.ReplaceAllString(unit, "${1}sec${3}")
}

// median returns the median of what was measured of b, and whether anything was.
func (m *measurements) median(b benchmark, unit string) (float64, bool) {
	values := slices.Sorted(slices.Values(m.values[series{b.String(), unit}]))
	if len(values) == 0 {
		return 0, false
	}
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle], true
	}
	return (values[middle-1] + values[middle]) / 2, true
}

// runs says over how many runs the medians are taken.
func (m *measurements) runs() string {
	least, most := 0, 0
	for _, values := range m.values {
		if least == 0 || len(values) < least {
			least = len(values)
		}
		most = max(most, len(values))
	}
	switch {
	case most == 1:
		return "single runs"
	case least == most:
		return fmt.Sprintf("medians of %d runs", most)
	default:
		return fmt.Sprintf("medians of %d to %d runs", least, most)
	}
}
