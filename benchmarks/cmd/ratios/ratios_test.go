package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the tables that the tests expect")

func TestTablesOfCannedOutput(t *testing.T) {
	in, err := os.Open("testdata/bench.txt")
	require.NoError(t, err)
	defer in.Close()
	var out strings.Builder
	require.NoError(t, run(in, &out, func(cpu string) string { return cpu + ", some machine" }))
	const golden = "testdata/tables.txt"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(out.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), out.String())
}

func TestNamesHaveOneCanonicalForm(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"BenchmarkArmStop/impl=wheel/pending=1M-8", "ArmStop/pending=1M"},
		{"ArmStop/pending=1M/impl=wheel/procs=1", "ArmStop/pending=1M"},
		{"ArmStop/procs=2/pending=1M/impl=std-2", "ArmStop/impl=std/pending=1M/procs=2"},
		{"Manual/ArmStop/pending=1k", "ArmStop/impl=manual/pending=1k"},
		{"Manual/ArmStop/impl=std", "ArmStop/impl=std"},
		{"Timeouts/Fill/impl=wheel/pending=10M", "Fill/impl=timeouts/pending=10M"},
		{"ArmStop/impl=std/pending=1M#01/procs=2-2", "ArmStop/impl=std/pending=1M/procs=2"},
		{"ArmStop/pending=1M#01-2", "ArmStop/pending=1M"},
		{"Some/thing", "Some/thing"},
		{"Floor-2", "Floor"},
	} {
		assert.Equal(t, c.want, parseBenchmark(c.name).String(), c.name)
	}
}

func TestRivalDiffersInOneParameter(t *testing.T) {
	b := parseBenchmark("ArmStop/impl=wheel/pending=1M/procs=2")
	assert.Equal(t, "ArmStop/impl=std/pending=1M/procs=2", b.rival(std).String())
	assert.Equal(t, "ArmStop/pending=1M", b.rival("procs=1").String())
	assert.Equal(t, "Floor", b.rival("Floor").String())
	assert.Equal(t, "ArmStop/pending=1M/procs=2", b.String(), "the benchmark itself is unchanged")
}

func TestTimesAreReadInAnyUnit(t *testing.T) {
	for _, c := range []struct {
		value float64
		unit  string
		want  float64
		in    string
	}{
		{52, "ns/op", 52e-9, "sec/op"},
		{700, "cpu-ns/timer", 700e-9, "cpu-sec/timer"},
		{100, "p99.9-us", 100e-6, "p99.9-sec"},
		{100, "p99.9-µs", 100e-6, "p99.9-sec"},
		{1.2, "p99-ms", 1.2e-3, "p99-sec"},
		{2, "late-s", 2, "late-sec"},
		{0, "late-ns", 0, "late-sec"},
		{3, "allocs/op", 3, "allocs/op"},
		{3, "B/timer", 3, "B/timer"},
		{3, "wakeups", 3, "wakeups"},
	} {
		value, unit := inSeconds(c.value, c.unit)
		assert.InDelta(t, c.want, value, 1e-15, c.unit)
		assert.Equal(t, c.in, unit)
	}
}

func TestMedianOfSeveralRuns(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{9, 1}, 5},
		{[]float64{9, 1, 2}, 2},
		{[]float64{1, 100, 2, 4}, 3},
	} {
		m := &measurements{values: map[series][]float64{{"X", "n"}: c.values}}
		got, ok := m.median(parseBenchmark("X"), "n")
		require.True(t, ok)
		assert.InDelta(t, c.want, got, 0, "%v", c.values)
	}
	_, ok := new(measurements).median(parseBenchmark("X"), "n")
	assert.False(t, ok)
}

func TestVerdictAtTheBound(t *testing.T) {
	const input = "BenchmarkX/impl=wheel 1 %s n\nBenchmarkX/impl=std 1 100 n\n"
	for _, c := range []struct {
		ours  string
		how   comparison
		bound float64
		want  verdict
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
	} {
		m, err := read(strings.NewReader(strings.ReplaceAll(input, "%s", c.ours)))
		require.NoError(t, err)
		got := judge(m, []target{{"X", "n", c.how, std, c.bound}})
		require.Len(t, got, 1)
		assert.Equal(t, c.want, got[0].verdict, "%+v", c)
	}
}

func TestTargetWithoutItsRivalHasNoData(t *testing.T) {
	m, err := read(strings.NewReader("BenchmarkX/impl=wheel 1 5 n\n"))
	require.NoError(t, err)
	got := judge(m, []target{{"X", "n", ratio, std, 1}, {"X", "other", absolute, "", 1}, {"Y", "n", absolute, "", 1}})
	require.Len(t, got, 3)
	for _, j := range got {
		assert.Equal(t, noData, j.verdict)
	}
}

func TestTargetWithoutPendingSpeaksOfEveryPopulation(t *testing.T) {
	m, err := read(strings.NewReader("BenchmarkX/pending=1k 1 5 n\nBenchmarkX/pending=1M 1 5 n\nBenchmarkX/pending=1M/procs=2 1 5 n\n"))
	require.NoError(t, err)
	got := judge(m, []target{{"X", "n", absolute, "", 5}})
	require.Len(t, got, 2, "procs is 1 unless a target says otherwise")
}

func TestBadInputIsAnError(t *testing.T) {
	_, err := read(strings.NewReader("PASS\nok\n"))
	require.ErrorIs(t, err, errNoResults)
	_, err = read(strings.NewReader("BenchmarkX 12 nonsense ns/op\n"))
	require.ErrorContains(t, err, "standard input:1")
}

func TestThisMachineNamesWhatAFigureNeeds(t *testing.T) {
	got := thisMachine("Some CPU")
	assert.Regexp(t, `^Some CPU, \d+ cores, \w+/\w+, \S.*, (commit \w+|unknown commit)`, got)
	assert.Contains(t, thisMachine(""), "unnamed processor")
}
