package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
	"github.com/timingwheel-go/timingwheel/keyed"
)

// These tests parse the profiles of the library with the parser of pprof.

type profiled interface{ WriteProfile(w io.Writer) error }

func parsed(t *testing.T, w profiled) *profile.Profile {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, w.WriteProfile(&out))
	p, err := profile.ParseData(out.Bytes())
	require.NoError(t, err)
	require.NoError(t, p.CheckValid())
	return p
}

// stack returns the functions of a sample without their import path, from the innermost one to the
// last one of this test.
func stack(s *profile.Sample) (names []string) {
	for _, l := range s.Location {
		name := l.Line[0].Function.Name
		if strings.HasPrefix(name, "testing.") || strings.HasPrefix(name, "runtime.") {
			return names
		}
		names = append(names, strings.TrimPrefix(name, "github.com/timingwheel-go/timingwheel/examples/"))
	}
	return names
}

//go:noinline
func outer(arm func()) { arm() }

func TestProfileBeginsAtTheCaller(t *testing.T) {
	t.Parallel()
	opts := timingwheel.Options{ProfileRate: 1, Manual: true, Name: "calls"}
	tw, err := timingwheel.New(opts)
	require.NoError(t, err)
	defer tw.Stop()
	timeouts, err := timingwheel.NewTimeouts(opts, func([]int) {})
	require.NoError(t, err)
	defer timeouts.Stop()
	keys, err := keyed.New(opts, func([]string) {})
	require.NoError(t, err)
	defer keys.Stop()
	inTime := time.Hour

	for _, c := range []struct {
		name  string
		wheel profiled
		arm   func() (stop func())
	}{
		{"AfterFunc", tw, func() func() { timer := tw.AfterFunc(inTime, func() {}); return func() { timer.Stop() } }},
		{"FuncTimer", tw, func() func() { timer := tw.NewFuncTimer(inTime, func() {}); return func() { timer.Stop() } }},
		{"a plan", tw, func() func() {
			plan := tw.ScheduleFunc(timingwheel.Every(inTime), func() {})
			return func() { plan.Stop() }
		}},
		{"a context", tw, func() func() { _, cancel := tw.WithTimeout(context.Background(), inTime); return cancel }},
		{"a ticker", tw, func() func() { ticker := tw.NewTicker(inTime); return ticker.Stop }},
		{"Timeouts", timeouts, func() func() { timer := timeouts.Add(inTime, 1); return func() { timer.Stop() } }},
		{"keyed", keys, func() func() { keys.Set("key", inTime); return func() { keys.Delete("key") } }},
	} {
		var stop func()
		outer(func() { stop = c.arm() })
		p := parsed(t, c.wheel)
		require.Len(t, p.Sample, 1, c.name)
		s := p.Sample[0]
		require.Equal(t, []int64{1}, s.Value, c.name)
		names := stack(s)
		require.Len(t, names, 4, "%s: %v", c.name, names)
		require.Contains(t, names[0], "leak.TestProfileBeginsAtTheCaller.func", c.name)
		require.Contains(t, names[1], "leak.TestProfileBeginsAtTheCaller.func", c.name)
		require.Equal(t, "leak.outer", names[2], c.name)
		require.Equal(t, "leak.TestProfileBeginsAtTheCaller", names[3], c.name)
		require.Equal(t, map[string][]string{"wheel": {"calls"}}, s.Label, c.name)
		require.Equal(t, map[string][]int64{"age": {0}, "expires": {int64(inTime)}}, s.NumLabel, c.name)
		stop()
		require.Empty(t, parsed(t, c.wheel).Sample, c.name)
	}
}

// The timers of a stack are one sample for each pair of labels. The sum of all samples is the
// number of pending timers.
func TestProfileGroupsAndScales(t *testing.T) {
	t.Parallel()
	const rate, n = 8, 40_000
	tw, err := timingwheel.New(timingwheel.Options{ProfileRate: rate, Manual: true})
	require.NoError(t, err)
	defer tw.Stop()
	for range n {
		tw.AfterFunc(90*time.Minute, func() {})
	}
	tw.Advance(tw.Now().Add(30 * time.Minute))
	for range n {
		tw.AfterFunc(-time.Minute, func() {}) // overdue
	}
	p := parsed(t, tw)
	require.Len(t, p.SampleType, 1)
	require.Equal(t, profile.ValueType{Type: "timers", Unit: "count"}, *p.SampleType[0])
	require.EqualValues(t, rate, p.Period)
	require.Equal(t, *p.SampleType[0], *p.PeriodType)
	require.WithinDuration(t, time.Now(), time.Unix(0, p.TimeNanos), time.Hour)
	require.Len(t, p.Sample, 2)
	total := int64(0)
	for _, s := range p.Sample {
		require.Zero(t, s.Value[0]%rate)
		require.InEpsilon(t, n, s.Value[0], 0.1) // 7 standard deviations
		require.Equal(t, map[string][]string{"age": {"nanoseconds"}, "expires": {"nanoseconds"}}, s.NumUnit)
		total += s.Value[0]
	}
	require.Equal(t, []int64{int64(30 * time.Minute)}, p.Sample[0].NumLabel["age"])
	require.Equal(t, []int64{int64(3600 * time.Second)}, p.Sample[0].NumLabel["expires"])
	require.Equal(t, []int64{0}, p.Sample[1].NumLabel["age"])
	require.InEpsilon(t, tw.Len(), total, 0.1)
}

// A profile names functions, files and lines, so that pprof needs no binary of the program.
func TestProfileNeedsNoBinary(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "timers.pb.gz")
	require.NoError(t, run(file, io.Discard))
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	p, err := profile.ParseData(data)
	require.NoError(t, err)
	require.True(t, p.HasFunctions())
	require.True(t, p.HasFileLines())
	cached := false // "go tool pprof -tagfocus" finds it by its labels
	for _, s := range p.Sample {
		line := s.Location[0].Line[0]
		require.Equal(t, "main.go", filepath.Base(line.Function.Filename))
		require.Positive(t, line.Line)
		require.Equal(t, []string{"proxy"}, s.Label["wheel"])
		require.Contains(t, s.NumLabel, "age")
		require.Contains(t, s.NumLabel, "expires")
		cached = cached || strings.HasSuffix(line.Function.Name, ".(*proxy).cached") && s.NumLabel["expires"][0] >= int64(time.Minute)
	}
	require.True(t, cached)
}

// go tool pprof prints functions, files and lines without the binary of the program.
func TestGoToolPprof(t *testing.T) {
	t.Parallel()
	gotool, err := exec.LookPath("go")
	if err != nil || !testscale.Full() {
		t.Skip("compiles pprof; set TIMINGWHEEL_TESTS=full")
	}
	// Each "go tool pprof" would check that the tool is up to date, which takes longer than running
	// it.
	path, err := exec.Command(gotool, "tool", "-n", "pprof").Output()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "timers.pb.gz")
	require.NoError(t, run(file, io.Discard))
	for _, c := range []struct{ args, want string }{
		{"-top -lines", `leak\.\(\*proxy\)\.cached .*main\.go:\d+`},
		{"-top -tagfocus=wheel=proxy -tagfocus=expires=60s:", `leak\.\(\*proxy\)\.cached`},
		{"-tags", `(?s)age: Total.*expires: Total .*wheel: Total `},
	} {
		cmd := exec.Command(strings.TrimSpace(string(path)), append(strings.Fields(c.args), file)...)
		cmd.Env = append(cmd.Environ(), "PPROF_TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", c.args, out)
		require.Regexp(t, c.want, string(out), c.args)
	}
}
