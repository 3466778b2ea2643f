package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestTablesMatchTheGoldenFiles(t *testing.T) {
	region := filepath.Join(t.TempDir(), "tables.md")
	require.NoError(t, os.WriteFile(region, []byte("before\n"+regionBegin+"old\n"+regionEnd+"after\n"), 0o644))
	input, err := os.ReadFile("testdata/bench.txt")
	require.NoError(t, err)
	var plain, none strings.Builder
	require.NoError(t, run(bytes.NewReader(input), &plain, ""))
	require.NoError(t, run(bytes.NewReader(input), &none, region))
	assert.Empty(t, none.String())
	markdown, err := os.ReadFile(region)
	require.NoError(t, err)
	for golden, got := range map[string]string{"tables.txt": plain.String(), "tables.md": string(markdown)} {
		path := filepath.Join("testdata", golden)
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(want), got)
	}
	assert.ErrorContains(t, run(bytes.NewReader(input), &none, "testdata/bench.txt"), "has no region")
}

func TestTableOfTheDocumentIsThatOfTheFigures(t *testing.T) {
	text, err := os.ReadFile("../../../docs/benchmarks.md")
	require.NoError(t, err)
	copied := filepath.Join(t.TempDir(), "benchmarks.md")
	require.NoError(t, os.WriteFile(copied, text, 0o644))
	figures, err := os.Open("../../../docs/benchmarks/figures.txt")
	require.NoError(t, err)
	defer figures.Close()
	require.NoError(t, run(figures, nil, copied))
	got, err := os.ReadFile(copied)
	require.NoError(t, err)
	assert.Equal(t, string(got), string(text), "run: make figures")
}

func TestVerdictAtTheBound(t *testing.T) {
	const input = "BenchmarkX/impl=wheel 1 %s n\nBenchmarkX/impl=std 1 100 n\n"
	for _, c := range []struct {
		figure string
		how    comparison
		bound  float64
		want   verdict
	}{
		{"50", ratio, 0.5, reached},
		{"51", ratio, 0.5, notReached},
		{"50", speedup, 2, reached},
		{"51", speedup, 2, notReached},
		{"102", difference, 2, reached},
		{"103", difference, 2, notReached},
		{"0", absolute, 0, reached},
		{"1", absolute, 0, notReached},
		{"1", ratio, unbounded, noTarget},
		{"160", ratioPlus(10), 1.5, reached},
		{"161", ratioPlus(10), 1.5, notReached},
		{"1", ratioPlus(10), unbounded, noTarget},
	} {
		m, err := results.Read(strings.NewReader(strings.ReplaceAll(input, "%s", c.figure)), "input", results.BenchStd)
		require.NoError(t, err)
		got := evaluate(m, []target{{"X", "n", c.how, std, c.bound}})
		require.Len(t, got, 1)
		assert.Equal(t, c.want, got[0].verdict, "%+v", c)
	}
}

func TestTargetWithoutBaselineHasNoData(t *testing.T) {
	m, err := results.Read(strings.NewReader("BenchmarkX/impl=wheel 1 5 n\n"), "input", results.BenchStd)
	require.NoError(t, err)
	got := evaluate(m, []target{{"X", "n", ratio, std, 1}, {"X", "other", absolute, "", 1}, {"Y", "n", absolute, "", 1}})
	require.Len(t, got, 3)
	for _, e := range got {
		assert.Equal(t, noData, e.verdict)
	}
}

func TestTargetWithoutPendingMatchesEveryPopulation(t *testing.T) {
	m, err := results.Read(strings.NewReader("BenchmarkX/pending=1k 1 5 n\nBenchmarkX/pending=1M 1 5 n\nBenchmarkX/pending=1M/procs=2 1 5 n\n"), "input", results.BenchStd)
	require.NoError(t, err)
	got := evaluate(m, []target{{"X", "n", absolute, "", 5}})
	require.Len(t, got, 2, "procs is 1 unless the target names another number")
}
