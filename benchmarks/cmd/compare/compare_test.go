package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
)

// The program starts itself for each job, so the test binary must be able to run one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerCommand {
		os.Exit(compare(context.Background(), os.Args, os.Stdout, os.Stderr))
	}
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil { // otherwise each process ends a second later
		panic(err)
	}
	os.Exit(m.Run())
}

func runCompare(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = compare(t.Context(), append([]string{"compare"}, args...), &out, &err)
	return code, out.String(), err.String()
}

func TestComparison(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "figures.txt")
	code, stdout, stderr := runCompare(t, "-impl", "std,wheel,siddontang", "-workload", "ArmStop,Fill", "-pending", "10,1k", "-procs", "1",
		"-count", "2", "-time", "1ms", "-limit", "1m", "-o", file)
	assert.Equal(t, exitOK, code, stderr)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "results in "+file)
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	m, err := results.Read(bytes.NewReader(written), file, results.Compare)
	require.NoError(t, err)
	for _, name := range []string{
		"Floor", "ArmStop/impl=std/pending=10", "ArmStop/impl=wheel/pending=1k",
		"Fill/impl=std/pending=10", "Fill/impl=wheel/pending=1k",
	} {
		assert.Len(t, m.Values[results.Series{Benchmark: results.Parse(name).String(), Unit: "sec/op"}], 2, name)
	}
	assert.Equal(t, "go -C benchmarks run ./cmd/compare -impl std,wheel,siddontang -workload ArmStop,Fill -pending 10,1k -procs 1"+
		" -count 2 -time 1ms -limit 1m", m.Config["command"])
	for _, key := range []string{"goos", "goarch", "go", "cores", "date"} {
		assert.NotEmpty(t, m.Config[key], key)
	}
	assert.Contains(t, m.Config["module-siddontang"], "github.com/siddontang/go v0.")
	assert.Equal(t, 1, strings.Count(string(written),
		"--- SKIP: BenchmarkArmStop/impl=siddontang/pending=10: cannot stop a timer\n"), "once, not in each turn")
}

// Spread takes three seconds, more than the limit. If the machine stalls, the floor exceeds the
// limit too and nothing is measured; then the test repeats the comparison.
func TestSlowJobIsKilledAndNotRepeated(t *testing.T) {
	t.Parallel()
	var code int
	var stdout, stderr string
	for attempts := 0; attempts == 0 || attempts < 10 && strings.Contains(stderr, errNothing.Error()); attempts++ {
		code, stdout, stderr = runCompare(t, "-impl", "std", "-workload", "Spread", "-pending", "1k,2k", "-count", "2",
			"-time", "1ms", "-limit", "2800ms", "-o", "-")
	}
	assert.Equal(t, exitOK, code, stderr)
	assert.Contains(t, stdout, "BenchmarkFloor")
	for _, want := range []string{
		"--- FAIL: BenchmarkSpread/impl=std/pending=1k: timeout after 2.8s",
		"--- FAIL: BenchmarkSpread/impl=std/pending=2k: already took too long with 1k timers",
	} {
		assert.Equal(t, 1, strings.Count(stdout, want), want)
	}
}

func TestInterruptKeepsTheResults(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out bytes.Buffer
	var log strings.Builder
	code := compare(ctx, []string{"compare", "-workload", "Spread", "-procs", "1", "-time", "1ms", "-limit", "1m", "-o", "-"}, &out,
		writer(func(b []byte) (int, error) {
			if bytes.Contains(b, []byte("Floor")) {
				cancel()
			}
			return log.Write(b)
		}))
	assert.Equal(t, exitOK, code)
	assert.Contains(t, log.String(), "interrupted")
	assert.Contains(t, log.String(), "1 results in standard output")
	assert.Contains(t, out.String(), "BenchmarkFloor")
	assert.NotContains(t, out.String(), "FAIL", "an interrupt is not a failure of the running job")
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestFailures(t *testing.T) {
	t.Parallel()
	code, _, stderr := runCompare(t, "-o", filepath.Join(t.TempDir(), "none", "file"))
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stderr, "no such file or directory")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var log bytes.Buffer
	assert.Equal(t, exitFailed, compare(ctx, []string{"compare", "-o", "-"}, io.Discard, &log))
	assert.Contains(t, log.String(), "nothing was measured")
}

func TestWorkerRefusesInvalidRequests(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]string{
		`{`:                                    "unexpected end of JSON",
		`{"Workload":"Nap"}`:                   `no workload "Nap"`,
		`{"Workload":"Fill","Subject":"none"}`: `no implementation "none"`,
		`{"Workload":"ArmStop","Subject":"siddontang","Pending":1}`: "siddontang cannot stop a timer",
	} {
		var stderr bytes.Buffer
		assert.Equal(t, exitFailed, compare(t.Context(), []string{"compare", workerCommand, request}, io.Discard, &stderr))
		assert.Contains(t, stderr.String(), want)
	}
	code, _, stderr := runCompare(t, workerCommand)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stderr, "needs one argument")
}

func TestStderrParser(t *testing.T) {
	t.Parallel()
	var p stderrParser
	for _, part := range []string{"phase: arm", "ing 5 timers\nsome", " words\npanic: no\n", "panic: again\n\ngoroutine 1\nrest"} {
		_, err := p.Write([]byte(part))
		require.NoError(t, err)
	}
	assert.Equal(t, "arming 5 timers", p.phase)
	assert.Equal(t, "panic: no", p.reason(io.EOF))
	assert.Equal(t, "goroutine 1", p.last)
	assert.Equal(t, "EOF", new(stderrParser).reason(io.EOF))
}
