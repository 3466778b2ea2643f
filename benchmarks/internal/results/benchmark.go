package results

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// Benchmark is a benchmark's name taken apart. A name without impl speaks of the wheel, and one without
// procs of a single processor, so that a target needs to say only what is special about it.
type Benchmark struct {
	Base   string            // "ArmStop"
	Params map[string]string // "impl": "wheel", "pending": "1M", "procs": "1"
}

// repetition is the suffix by which Go tells apart sub-benchmarks of one name.
var repetition = regexp.MustCompile(`#\d+(/|-\d+$|$)`)

// Parse takes apart a name such as "ArmStop/impl=wheel/pending=1M/procs=2-8", whose last part is the
// GOMAXPROCS that Go appends. The faces of the engine may be written as a parent benchmark:
// "Timeouts/Fill" is "Fill/impl=timeouts". Where a benchmark ran a name twice, Go made it unique with a
// suffix such as "#01", which says nothing here.
func Parse(name string) Benchmark {
	name = repetition.ReplaceAllString(strings.TrimPrefix(name, "Benchmark"), "$1")
	base, parts := benchfmt.Name(name).Parts()
	path := string(base)
	b := Benchmark{Params: map[string]string{"impl": "wheel", "procs": "1"}}
	for _, part := range parts {
		switch key, value, isParam := strings.Cut(string(part), "="); {
		case isParam:
			b.Params[strings.TrimPrefix(key, "/")] = value
		case part[0] == '/':
			path += string(part)
		}
	}
	b.Base = b.face(path, "Manual", "Timeouts")
	return b
}

// face moves a face of the engine from the path of names to impl, and returns the rest of the path.
// A rival below that parent keeps its own impl.
func (b Benchmark) face(path string, faces ...string) string {
	for _, face := range faces {
		rest, ok := strings.CutPrefix(path, face+"/")
		if !ok {
			continue
		}
		if b.Params["impl"] == "wheel" {
			b.Params["impl"] = strings.ToLower(face)
		}
		return rest
	}
	return path
}

// String returns the name in its one canonical form: parameters sorted, those that go without saying
// left out.
func (b Benchmark) String() string {
	name := b.Base
	for _, key := range slices.Sorted(maps.Keys(b.Params)) {
		value := b.Params[key]
		if key == "impl" && value == "wheel" || key == "procs" && value == "1" {
			continue
		}
		name += "/" + key + "=" + value
	}
	return name
}

// Matches reports whether b is one of those that pattern speaks of: the same base, and every parameter
// of the pattern with the same value. Parameters that only b has may be anything.
func (b Benchmark) Matches(pattern Benchmark) bool {
	if b.Base != pattern.Base {
		return false
	}
	for key, value := range pattern.Params {
		if b.Params[key] != value {
			return false
		}
	}
	return true
}

// With returns b with one parameter changed.
func (b Benchmark) With(key, value string) Benchmark {
	r := Benchmark{b.Base, maps.Clone(b.Params)}
	r.Params[key] = value
	return r
}

// Rival returns what b is measured against: b with one parameter changed if change has the form
// "key=value", otherwise the benchmark that change names.
func (b Benchmark) Rival(change string) Benchmark {
	key, value, isParam := strings.Cut(change, "=")
	if !isParam || strings.Contains(key, "/") {
		return Parse(change)
	}
	return b.With(key, value)
}
