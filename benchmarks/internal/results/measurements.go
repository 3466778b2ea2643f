// Package results reads the output of benchmarks.
package results

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// Series identifies a figure of a benchmark, which is measured once in each run.
type Series struct {
	Benchmark string // in canonical form
	Unit      string // times are in seconds
}

// Measurements holds the results of one input.
type Measurements struct {
	Config     map[string]string // lines such as "cpu: …"; the last line of a key counts
	Benchmarks []Benchmark
	Units      map[string][]string // by benchmark, in the order of first appearance
	Values     map[Series][]float64
}

// ErrNone is returned if the input has no benchmark result.
var ErrNone = errors.New("no benchmark result")

// The commands whose output the file of published figures has.
const (
	BenchStd = "make bench-std"
	Compare  = "go -C benchmarks run ./cmd/compare"
)

// Read parses the output of go test -bench. name is the name of the input in errors. Read skips
// lines that are not results, such as the output of package testing and of the tested program, and
// the results of other commands, if the input names commands. A malformed result line is an error
// that names the line.
func Read(in io.Reader, name, command string) (*Measurements, error) {
	m := &Measurements{Config: map[string]string{}, Units: map[string][]string{}, Values: map[Series][]float64{}}
	reader := benchfmt.NewReader(in, name)
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.Result:
			if of := record.GetConfig("command"); of == "" || strings.HasPrefix(of, command) {
				m.add(record)
			}
		case *benchfmt.SyntaxError:
			return nil, record
		}
	}
	if err := reader.Err(); err != nil {
		return nil, err
	}
	if len(m.Benchmarks) == 0 {
		return nil, fmt.Errorf("%w in %s", ErrNone, name)
	}
	return m, nil
}

func (m *Measurements) add(r *benchfmt.Result) {
	for _, c := range r.Config {
		m.Config[c.Key] = string(c.Value)
	}
	b := Parse(r.Name.String())
	name := b.String()
	if _, known := m.Units[name]; !known {
		m.Benchmarks = append(m.Benchmarks, b)
		m.Units[name] = nil
	}
	for _, v := range r.Values {
		value, unit := inSeconds(v.Value, v.Unit)
		s := Series{name, unit}
		if len(m.Values[s]) == 0 {
			m.Units[name] = append(m.Units[name], unit)
		}
		m.Values[s] = append(m.Values[s], value)
	}
}

// timeUnit matches the unit of time in names such as "ns/op", "cpu-ns/timer" and "p99.9-us".
var timeUnit = regexp.MustCompile(`(^|-)(ns|us|µs|ms|s)(/|$)`)

var secondsIn = map[string]float64{"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1}

// inSeconds converts a time to seconds, so that targets do not depend on the unit that a benchmark
// reports. It returns other figures unchanged.
func inSeconds(value float64, unit string) (float64, string) {
	found := timeUnit.FindStringSubmatch(unit)
	if found == nil {
		return value, unit
	}
	return value * secondsIn[found[2]], timeUnit.ReplaceAllString(unit, "${1}sec${3}")
}

// Median returns the median of a figure of b. It returns false if the figure was not measured.
func (m *Measurements) Median(b Benchmark, unit string) (float64, bool) {
	values := slices.Sorted(slices.Values(m.Values[Series{b.String(), unit}]))
	if len(values) == 0 {
		return 0, false
	}
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle], true
	}
	return (values[middle-1] + values[middle]) / 2, true
}

// Provenance names the machine, the versions and the command of the figures, as far as the input
// does.
func (m *Measurements) Provenance() string {
	c := m.Config
	parts := []string{c["cpu"], c["cores"] + " cores", c["goos"] + "/" + c["goarch"], c["go"], "commit " + c["commit"], c["date"], "`" + c["command"] + "`"}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool {
		return part == "" || part == " cores" || part == "/" || part == "commit " || part == "``"
	}), ", ")
}

// Runs describes the number of runs behind the medians.
func (m *Measurements) Runs() string {
	least, most := 0, 0
	for _, values := range m.Values {
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
