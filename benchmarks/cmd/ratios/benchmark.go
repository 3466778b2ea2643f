package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// benchmark is a benchmark's name taken apart. A name without impl speaks of the wheel, and one without
// procs of a single processor, so that a target needs to say only what is special about it.
type benchmark struct {
	base   string            // "ArmStop"
	params map[string]string // "impl": "wheel", "pending": "1M", "procs": "1"
}

// repetition is the suffix by which Go tells apart sub-benchmarks of one name.
var repetition = regexp.MustCompile(`#\d+(/|-\d+$|$)`)

// parseBenchmark takes apart a name such as "ArmStop/impl=wheel/pending=1M/procs=2-8", whose last part
// is the GOMAXPROCS that Go appends. The faces of the engine may be written as a parent benchmark:
// "Timeouts/Fill" is "Fill/impl=timeouts". Where a benchmark ran a name twice, Go made it unique with a
// suffix such as "#01", which says nothing here.
func parseBenchmark(name string) benchmark {
	name = repetition.ReplaceAllString(strings.TrimPrefix(name, "Benchmark"), "$1")
	base, parts := benchfmt.Name(name).Parts()
	path := string(base)
	b := benchmark{params: map[string]string{"impl": "wheel", "procs": "1"}}
	for _, part := range parts {
		switch key, value, isParam := strings.Cut(string(part), "="); {
		case isParam:
			b.params[strings.TrimPrefix(key, "/")] = value
		case part[0] == '/':
			path += string(part)
		}
	}
	b.base = b.face(path, "Manual", "Timeouts")
	return b
}

// face moves a face of the engine from the path of names to impl, and returns the rest of the path.
// A rival below that parent keeps its own impl.
func (b benchmark) face(path string, faces ...string) string {
	for _, face := range faces {
		rest, ok := strings.CutPrefix(path, face+"/")
		if !ok {
			continue
		}
		if b.params["impl"] == "wheel" {
			b.params["impl"] = strings.ToLower(face)
		}
		return rest
	}
	return path
}

// String returns the name in its one canonical form: parameters sorted, those that go without saying
// left out.
func (b benchmark) String() string {
	name := b.base
	for _, key := range slices.Sorted(maps.Keys(b.params)) {
		value := b.params[key]
		if key == "impl" && value == "wheel" || key == "procs" && value == "1" {
			continue
		}
		name += "/" + key + "=" + value
	}
	return name
}

// matches reports whether b is one of those that pattern speaks of: the same base, and every parameter
// of the pattern with the same value. Parameters that only b has may be anything.
func (b benchmark) matches(pattern benchmark) bool {
	if b.base != pattern.base {
		return false
	}
	for key, value := range pattern.params {
		if b.params[key] != value {
			return false
		}
	}
	return true
}

// rival returns what b is measured against: b with one parameter changed if change has the form
// "key=value", otherwise the benchmark that change names.
func (b benchmark) rival(change string) benchmark {
	key, value, isParam := strings.Cut(change, "=")
	if !isParam {
		return parseBenchmark(change)
	}
	r := benchmark{b.base, maps.Clone(b.params)}
	r.params[key] = value
	return r
}
