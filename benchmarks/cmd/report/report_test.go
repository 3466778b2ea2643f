package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/workload"
)

var update = flag.Bool("update", false, "rewrite the golden file")

func runReport(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = report(append([]string{"report"}, args...), &out, &err)
	return code, out.String(), err.String()
}

func TestReportMatchesTheGoldenFile(t *testing.T) {
	directory := t.TempDir()
	code, stdout, stderr := runReport("-o", directory, "testdata/compare.txt")
	require.Equal(t, exitOK, code, stderr)
	assert.Equal(t, "wrote "+filepath.Join(directory, "README.md")+"\n", stdout)
	got, err := os.ReadFile(filepath.Join(directory, "README.md"))
	require.NoError(t, err)
	const golden = "testdata/report.md"
	if *update {
		require.NoError(t, os.WriteFile(golden, got, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))

	for file, series := range map[string][]string{
		"armstop.svg":  {"std", "wheel", "timeouts", "manual", "gozero", "1k", "100 ns"},
		"postpone.svg": {"std", "wheel"},
		"churn.svg":    {"std", "wheel"},
		"cores.svg":    {"std", "wheel", "floor", "1M pending"},
		"lateness.svg": {"std", "wheel", "gozero", "siddontang", "1 ms", "-10 ms"},
		"memory.svg":   {"std", "wheel", "siddontang", "1 kB"},
		"gc.svg":       {"std", "wheel", "timeouts"},
	} {
		assert.Contains(t, string(got), "]("+file+")")
		svg, err := os.ReadFile(filepath.Join(directory, file))
		require.NoError(t, err)
		text := textOf(t, svg)
		for _, name := range series {
			assert.Contains(t, text, name, file)
		}
	}
	again := t.TempDir()
	_, _, _ = runReport("-o", again, "testdata/compare.txt")
	for _, file := range []string{"README.md", "armstop.svg", "lateness.svg"} {
		first, err := os.ReadFile(filepath.Join(directory, file))
		require.NoError(t, err)
		second, err := os.ReadFile(filepath.Join(again, file))
		require.NoError(t, err)
		assert.Equal(t, string(first), string(second), "%s from the same figures", file)
	}
}

func TestPublishedReportIsThatOfTheFigures(t *testing.T) {
	t.Parallel()
	const published = "../../../docs/benchmarks"
	directory := t.TempDir()
	input := filepath.Join(directory, "figures.txt")
	figures, err := os.ReadFile(filepath.Join(published, "figures.txt"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(input, figures, 0o644))
	code, _, stderr := runReport("-o", directory, input)
	require.Equal(t, exitOK, code, stderr)
	got, err := os.ReadFile(filepath.Join(directory, "README.md"))
	require.NoError(t, err)
	want, err := os.ReadFile(filepath.Join(published, "README.md"))
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got), "run: make figures")
}

// textOf parses an SVG and returns its text.
func textOf(t *testing.T, svg []byte) string {
	t.Helper()
	var text strings.Builder
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		require.NoError(t, err)
		if data, ok := token.(xml.CharData); ok {
			text.Write(data)
			text.WriteByte('\n')
		}
	}
}

func TestReportOmitsWhatWasNotMeasured(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	input := filepath.Join(directory, "few.txt")
	require.NoError(t, os.WriteFile(input, []byte("BenchmarkFill/impl=wheel/pending=5 5 20 ns/op 30 B/timer\n"), 0o644))
	code, _, stderr := runReport("-o", directory, input)
	require.Equal(t, exitOK, code, stderr)
	got, err := os.ReadFile(filepath.Join(directory, "README.md"))
	require.NoError(t, err)
	assert.Contains(t, string(got), "| `wheel` | 20 ns | 30 B |")
	assert.Contains(t, string(got), "[few.txt](few.txt)")
	assert.NotContains(t, string(got), "## ArmStop")
	assert.NotContains(t, string(got), "Exactness")
	files, err := filepath.Glob(filepath.Join(directory, "*.svg"))
	require.NoError(t, err)
	assert.Equal(t, []string{filepath.Join(directory, "memory.svg")}, files)
}

func TestBadArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.txt")
	require.NoError(t, os.WriteFile(empty, []byte("PASS\n"), 0o644))
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "needs one file with figures, not 0"},
		{[]string{"a", "b"}, exitUsage, "needs one file with figures, not 2"},
		{[]string{"-o", "", "a"}, exitUsage, "-o must name a directory"},
		{[]string{"-fast", "a"}, exitUsage, "not defined: -fast"},
		{[]string{"-o", t.TempDir(), "testdata/none.txt"}, exitFailed, "testdata/none.txt: no such file"},
		{[]string{"-o", t.TempDir(), empty}, exitFailed, "no benchmark result in " + empty},
		{[]string{"-o", empty, "testdata/compare.txt"}, exitFailed, "not a directory"},
	} {
		code, stdout, stderr := runReport(c.args...)
		assert.Equal(t, c.code, code, "%v", c.args)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, c.want, "%v", c.args)
	}
	code, stdout, _ := runReport("-help")
	assert.Equal(t, exitOK, code)
	assert.Contains(t, stdout, "compare.txt")
}

func TestQuantities(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v    float64
		unit string
		want string
	}{
		{155.4e-9, "sec/op", "155 ns"}, {0, "sec/op", "0"}, {0.4e-9, "sec/op", "0.40 ns"}, {999.6e-9, "sec/op", "1.00 µs"},
		{1.234e-3, "gc-sec", "1.23 ms"}, {12.34e-3, "gc-sec", "12.3 ms"}, {2.5, "drain-sec", "2.50 s"}, {-0.0115, "late-sec", "-11.5 ms"},
		{30.31, "B/timer", "30.3 B"}, {2761.9, "B/timer", "2762 B"}, {1, "allocs/op", "1"}, {1729.5, "wakeups", "1730"}, {9.996, "x", "10.0"},
	} {
		assert.Equal(t, c.want, quantity(c.v, c.unit), fmt.Sprint(c.v))
	}
}

func TestEveryWorkloadHasColumnsAndEverySubjectAStyle(t *testing.T) {
	t.Parallel()
	for _, w := range workload.All {
		assert.True(t, len(columns[w.Name]) > 0 || w.Name == "Exact", w.Name)
	}
	seen := map[any]string{}
	for _, s := range workload.Subjects {
		if s.Coarse {
			continue
		}
		style, known := lineStyles[s.Name]
		assert.True(t, known, s.Name)
		assert.Empty(t, seen[style.colour], "%s has the colour of another implementation", s.Name)
		seen[style.colour] = s.Name
	}
}

func TestAxes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ v, below, above float64 }{{1, 1, 1}, {1e6, 1e6, 1e6}, {150, 100, 1000}, {1e-9, 1e-9, 1e-9}, {3e-7, 1e-7, 1e-6}} {
		assert.InEpsilon(t, c.below, decadeBelow(c.v), 1e-6)
		assert.InEpsilon(t, c.above, decadeAbove(c.v), 1e-6)
	}
	last := symlog(-10)
	for _, v := range []float64{-1, -1e-3, -linearBelow, -linearBelow / 2, 0, linearBelow / 2, linearBelow, 1e-3, 1, 10} {
		assert.Greater(t, symlog(v), last, "%v", v)
		last = symlog(v)
	}
	assert.InDelta(t, 2, axis{scale: symmetricLog}.at(1e-3), 1e-12)
	assert.InDelta(t, -3, axis{scale: logarithmic}.at(1e-3), 1e-12)
	assert.InDelta(t, 1e-3, axis{scale: percents}.at(1e-3), 0)
}
