package results

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// Benchmark is the parsed name of a benchmark. A name without impl means the wheel, and a name
// without procs means one processor, so a target names only what differs from these.
type Benchmark struct {
	Base   string            // "ArmStop"
	Params map[string]string // "impl": "wheel", "pending": "1M", "procs": "1"
}

// repetition is the suffix that Go appends to a sub-benchmark whose name already exists.
var repetition = regexp.MustCompile(`#\d+(/|-\d+$|$)`)

// Parse parses a name such as "ArmStop/impl=wheel/pending=1M/procs=2-8", whose suffix is the
// GOMAXPROCS that Go appends. A variant of the wheel may be a parent benchmark: "Timeouts/Fill" is
// "Fill/impl=timeouts". Parse ignores the suffix, such as "#01", that makes a repeated name unique.
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
	b.Base = b.variant(path, "Manual", "Timeouts")
	return b
}

// variant moves a variant of the wheel from the path to impl and returns the rest of the path.
// Another implementation below that parent keeps its own impl.
func (b Benchmark) variant(path string, variants ...string) string {
	for _, variant := range variants {
		rest, ok := strings.CutPrefix(path, variant+"/")
		if !ok {
			continue
		}
		if b.Params["impl"] == "wheel" {
			b.Params["impl"] = strings.ToLower(variant)
		}
		return rest
	}
	return path
}

// String returns the canonical form of the name: parameters are sorted, and default values are left
// out.
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

// Matches reports whether b has the base of pattern and all of its parameters. Parameters that only
// b has may have any value.
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

// Baseline returns the benchmark that b is compared with: b with one parameter changed if change
// has the form "key=value", otherwise the benchmark of that name.
func (b Benchmark) Baseline(change string) Benchmark {
	key, value, isParam := strings.Cut(change, "=")
	if !isParam || strings.Contains(key, "/") {
		return Parse(change)
	}
	return b.With(key, value)
}
