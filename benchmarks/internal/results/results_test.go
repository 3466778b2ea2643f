package results

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseReturnsTheCanonicalForm(t *testing.T) {
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
		assert.Equal(t, c.want, Parse(c.name).String(), c.name)
	}
}

func TestBaselineDiffersInOneParameter(t *testing.T) {
	b := Parse("ArmStop/impl=wheel/pending=1M/procs=2")
	assert.Equal(t, "ArmStop/impl=std/pending=1M/procs=2", b.Baseline("impl=std").String())
	assert.Equal(t, "ArmStop/pending=1M", b.Baseline("procs=1").String())
	assert.Equal(t, "Floor", b.Baseline("Floor").String())
	assert.Equal(t, "FloorPostpone/pending=1M", b.Baseline("FloorPostpone/pending=1M").String())
	assert.Equal(t, "ArmStop/pending=1M/procs=2", b.String(), "Baseline does not change its receiver")
}

func TestTimesAreConvertedToSeconds(t *testing.T) {
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
		m := &Measurements{Values: map[Series][]float64{{"X", "n"}: c.values}}
		got, ok := m.Median(Parse("X"), "n")
		require.True(t, ok)
		assert.InDelta(t, c.want, got, 0, "%v", c.values)
	}
	_, ok := new(Measurements).Median(Parse("X"), "n")
	assert.False(t, ok)
}

func TestBadInputIsRefused(t *testing.T) {
	_, err := Read(strings.NewReader("PASS\nok\n"), "standard input", Compare)
	require.ErrorIs(t, err, ErrNone)
	_, err = Read(strings.NewReader("BenchmarkX 12 nonsense ns/op\n"), "standard input", Compare)
	require.ErrorContains(t, err, "standard input:1")
}
