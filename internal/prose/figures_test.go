package prose

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	update  = flag.Bool("update", false, "write the measured figures into the documents")
	release = flag.Bool("release", false, "fail if the figures are too old for a release")
)

// figuresFile has all figures that documents quote: the output of make bench-std, then the output
// of benchmarks/cmd/compare. Each begins with lines such as "commit: …".
const figuresFile = "docs/benchmarks/figures.txt"

// quoted matches a figure in a document. Its name is a benchmark and a unit, or a key of the file:
//
//	<!-- figure: Fill/impl=wheel/pending=1M B/timer -->26.5 B<!-- / -->
//	<!-- figure: commit -->0123456<!-- / -->
//
// The benchmark may lack parameters. The figure is the median of the runs, or the worst run of a
// mistake. It is a range if both commands measured it.
var quoted = regexp.MustCompile(`<!-- figure: (.*?) -->(.*?)<!-- / -->`)

// beginsHTML matches a line at whose beginning Markdown would see a block of HTML.
var beginsHTML = regexp.MustCompile(`^[\s>*-]*<!-- (figure|/)`)

func TestDocumentsQuoteTheMeasuredFigures(t *testing.T) {
	t.Parallel()
	sections := parseFigures(read(t, figuresFile))
	quotes := 0
	require.NoError(t, Walk(root, func(name string) error {
		if filepath.Ext(name) != ".md" {
			return nil
		}
		text := read(t, name)
		lines := strings.Split(text, "\n")
		for i, line := range outsideCode(text) {
			assert.NotRegexp(t, beginsHTML, line, "%s:%d: a figure at the beginning of a line", name, i+1)
			assert.Len(t, quoted.FindAllString(line, -1), strings.Count(line, "<!-- figure:"), "%s:%d: a figure without an end", name, i+1)
			if line == "" {
				continue
			}
			lines[i] = quoted.ReplaceAllStringFunc(line, func(all string) string {
				quotes++
				m := quoted.FindStringSubmatch(all)
				want, err := lookUp(sections, m[1])
				if assert.NoError(t, err, "%s:%d", name, i+1) && !*update {
					assert.Equal(t, want, m[2], "%s:%d: %s; run: make figures", name, i+1, m[1])
				}
				return fmt.Sprintf("<!-- figure: %s -->%s<!-- / -->", m[1], want)
			})
		}
		if next := strings.Join(lines, "\n"); *update && next != text && !t.Failed() {
			return os.WriteFile(filepath.Join(root, name), []byte(next), 0o644)
		}
		return nil
	}))
	assert.Positive(t, quotes)
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

// section is the output of one command.
type section struct {
	config  map[string]string
	names   []string                        // of the benchmarks, in order
	values  map[string]map[string][]float64 // by benchmark and unit
	missing map[string]string               // "timeout", "failed" or "n/a", by benchmark
}

var (
	configLine = regexp.MustCompile(`^([a-z][a-z0-9-]*): (.*)$`)
	resultLine = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(\S.*)$`)
	reasonLine = regexp.MustCompile(`^--- (FAIL|SKIP): Benchmark(\S+): (.*)$`)
	timedOut   = regexp.MustCompile(`^timeout|in time|too long`)
)

func parseFigures(text string) (sections []section) {
	for _, line := range strings.Split(text, "\n") {
		if m := configLine.FindStringSubmatch(line); m != nil {
			if len(sections) == 0 || len(sections[len(sections)-1].names) > 0 {
				sections = append(sections, section{map[string]string{}, nil, map[string]map[string][]float64{}, map[string]string{}})
			}
			sections[len(sections)-1].config[m[1]] = m[2]
			continue
		}
		if len(sections) == 0 {
			continue
		}
		s := &sections[len(sections)-1]
		if m := resultLine.FindStringSubmatch(line); m != nil {
			if s.values[m[1]] == nil {
				s.names, s.values[m[1]] = append(s.names, m[1]), map[string][]float64{}
			}
			for pair := strings.Fields(m[2]); len(pair) > 1; pair = pair[2:] {
				v, _ := strconv.ParseFloat(pair[0], 64)
				s.values[m[1]][pair[1]] = append(s.values[m[1]][pair[1]], v)
			}
		} else if m := reasonLine.FindStringSubmatch(line); m != nil {
			switch {
			case m[1] == "SKIP":
				s.missing[m[2]] = "n/a"
			case timedOut.MatchString(m[3]):
				s.missing[m[2]] = "timeout"
			default:
				s.missing[m[2]] = "failed"
			}
		}
	}
	return sections
}

// lookUp returns a figure as documents quote it.
func lookUp(sections []section, name string) (string, error) {
	benchmark, unit, isFigure := strings.Cut(name, " ")
	var figures []float64
	var words []string // keys, and reasons for missing figures
	for _, s := range sections {
		if v := strings.Fields(s.config[name]); !isFigure && len(v) > 0 {
			words = append(words, v[len(v)-1]) // without the path of a module
		}
		var found []string
		for _, n := range s.names {
			v := s.values[n][unit]
			switch {
			case !isFigure || !isPart(benchmark, n):
				continue
			case !mistakes[unit] && slices.ContainsFunc(s.values[n]["not-run"], func(v float64) bool { return v > 0 }):
				words = append(words, "not run")
			case v == nil:
				continue
			case mistakes[unit]:
				figures = append(figures, slices.Max(v))
			default:
				figures = append(figures, median(v))
			}
			found = append(found, n)
		}
		if len(found) > 1 {
			return "", fmt.Errorf("%q may be any of %v", name, found)
		}
		for n, why := range s.missing {
			if isFigure && isPart(benchmark, n) {
				words = append(words, why)
			}
		}
	}
	slices.Sort(words)
	switch words = slices.Compact(words); {
	case len(figures) > 0:
		return format(slices.Min(figures), slices.Max(figures), unit), nil
	case len(words) == 0:
		return "", fmt.Errorf("%s has no figure %q", figuresFile, name)
	default:
		return strings.Join(words, " and "), nil
	}
}

// isPart reports whether a benchmark has the base and all parameters of a pattern.
func isPart(pattern, benchmark string) bool {
	want, have := strings.Split(pattern, "/"), strings.Split(benchmark, "/")
	return want[0] == have[0] && !slices.ContainsFunc(want, func(part string) bool { return !slices.Contains(have, part) })
}

var mistakes = map[string]bool{"early": true, "not-run": true, "twice": true, "after-stop": true, "false-stop": true}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

var timeUnit = regexp.MustCompile(`(?:^|-)(ns|us|ms|s)(?:/|$)`)

// format returns a range, or one figure if both ends look the same.
func format(low, high float64, unit string) string {
	suffix := ""
	if m := timeUnit.FindStringSubmatch(unit); m != nil {
		nanoseconds := map[string]float64{"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[m[1]]
		scale := 1.0
		suffix = " ns"
		for _, to := range []struct {
			name string
			size float64
		}{{" µs", 1e3}, {" ms", 1e6}, {" s", 1e9}} {
			if math.Abs(high*nanoseconds) >= 0.9995*to.size {
				scale, suffix = to.size, to.name
			}
		}
		low, high = low*nanoseconds/scale, high*nanoseconds/scale
	} else if strings.HasPrefix(unit, "B/") {
		suffix = " B"
	}
	from, to := digits(low), digits(high)
	if from == to {
		return to + suffix
	}
	return from + "–" + to + suffix
}

// digits formats three significant digits, or more if the integer part is longer.
func digits(v float64) string {
	decimals := 2
	if size := math.Abs(v); v == math.Trunc(v) || size >= 99.95 {
		decimals = 0
	} else if size >= 9.995 {
		decimals = 1
	}
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	for i := len(text) - 3; decimals == 0 && i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func TestFiguresAreQuotedAsMediansAndRanges(t *testing.T) {
	t.Parallel()
	sections := parseFigures("commit: abc\ncommand: first\nBenchmarkX/impl=wheel/pending=1M/procs=1 1 100 ns/op 26.5 B/timer\n" +
		"BenchmarkX/impl=wheel/pending=1M/procs=2-2 1 60 ns/op\n\ncommit: def\nmodule-a: path v1.2.3\n" +
		"BenchmarkX/impl=wheel/pending=1M/procs=1 1 97.32 ns/op 26.5 B/timer\nBenchmarkX/impl=wheel/pending=1M/procs=1 1 2 ns/op\n" +
		"BenchmarkX/impl=wheel/pending=1M/procs=1 1 300 ns/op\nBenchmarkY/impl=b-2 1 24572 early 1600 late-ms\nBenchmarkY/impl=b-2 1 0 early 1600 late-ms\nBenchmarkZ/impl=b 1 1234567 calls\nBenchmarkW/impl=b 1 0 not-run 16 late-ms\nBenchmarkW/impl=b 1 9 not-run\n" +
		"--- FAIL: BenchmarkY/impl=a: timeout after 5s\n--- SKIP: BenchmarkX/impl=a: cannot\n")
	for name, want := range map[string]string{
		"X/pending=1M/procs=1 ns/op": "97.3–100 ns", "X/impl=wheel/procs=1 B/timer": "26.5 B", "X/procs=2 ns/op": "60 ns",
		"Y/impl=b early": "24,572", "Z/impl=b calls": "1,234,567", "W late-ms": "not run", "W not-run": "9", "Y late-ms": "1.60 s", "Y/impl=a early": "timeout", "X/impl=a ns/op": "n/a",
		"commit": "abc and def", "module-a": "v1.2.3",
	} {
		got, err := lookUp(sections, name)
		require.NoError(t, err)
		assert.Equal(t, want, got, name)
	}
	for _, name := range []string{"X ns/op", "X/procs=1 ms", "Z ns/op", "X", "date"} {
		_, err := lookUp(sections, name)
		assert.Error(t, err, name)
	}
}

// recentCommits is the number of commits of the engine after which the figures are too old for a
// release.
const recentCommits = 200

// The figures are of recent commits. An old figure is a warning, and with -release a failure.
func TestFiguresAreRecent(t *testing.T) {
	t.Parallel()
	report := t.Log
	if *release {
		report = t.Error
	}
	sections := parseFigures(read(t, figuresFile))
	require.NotEmpty(t, sections)
	for _, s := range sections {
		commit, isDirty := strings.CutSuffix(s.config["commit"], "-dirty")
		if isDirty {
			report("WARNING: measured with uncommitted changes:", s.config["command"])
		}
		n, err := engineCommits(t, commit)
		switch {
		case err != nil:
			report("WARNING: the age of the figures is unknown:", err)
		case n > recentCommits:
			report(fmt.Sprintf("WARNING: %d commits of the engine since %s, %s; measure again: %s", n, commit, s.config["date"], s.config["command"]))
		default:
			t.Logf("%d commits of the engine since %s: %s", n, commit, s.config["command"])
		}
	}
}

// engineCommits returns the number of commits since a commit that changed the root package or a
// package that it imports.
func engineCommits(t *testing.T, commit string) (int, error) {
	t.Helper()
	if commit == "" {
		return 0, errors.New("no commit")
	}
	list := exec.Command("go", "list", "-deps", ".")
	list.Dir = root
	packages, err := list.Output()
	require.NoError(t, err)
	args := []string{"rev-list", "--count", commit + "..HEAD", "--", ":(exclude,glob)**/*_test.go"}
	for _, path := range strings.Fields(string(packages)) {
		if folder, ok := strings.CutPrefix(path+"/", module+"/"); ok {
			args = append(args, ":(glob)"+folder+"*.go")
		}
	}
	count := exec.Command("git", args...)
	count.Dir = root
	out, err := count.Output()
	if err != nil {
		return 0, fmt.Errorf("git %v: %w", args[:3], err)
	}
	return strconv.Atoi(strings.TrimSpace(string(out)))
}
