package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/examples/internal/processor"
)

// brief is a comparison that takes about seven seconds.
func brief() config {
	cfg := small()
	cfg.conns, cfg.timeout, cfg.duration = 60, 200*time.Millisecond, 800*time.Millisecond
	cfg.compare = true
	return cfg
}

// rows returns the cells of the last table in out, without its header.
func rows(out string) (rows [][]string) {
	_, body, _ := strings.Cut(out[strings.LastIndex(out, "┌"):], "├")
	for line := range strings.Lines(body) {
		if inner, ok := strings.CutPrefix(line, "│"); ok {
			var row []string
			for cell := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(inner), "│"), "│") {
				row = append(row, strings.TrimSpace(cell))
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// column returns one cell of each row.
func column(rows [][]string, i int) (cells []string) {
	for _, row := range rows {
		cells = append(cells, row[i])
	}
	return cells
}

func TestComparisonRunsEveryImplementation(t *testing.T) {
	t.Parallel()
	cfg := brief()
	require.NoError(t, cfg.validate())
	var out bytes.Buffer
	right, err := compare(context.Background(), cfg, &out)
	require.NoError(t, err)
	assert.True(t, right, out.String())
	got := rows(out.String())
	assert.Equal(t, []string{"none", "wheel", "wheelnet", "std", "net", "none"}, column(got, 0))
	assert.Equal(t, []string{"-", "right", "right", "right", "right", "-"}, column(got, 8), out.String())
	assert.Equal(t, "0 of 12", got[0][1])
	assert.Equal(t, "0 of 12", got[5][1])
	for i, row := range got {
		assert.NotEqual(t, "0", row[2], "beats")
		assert.Regexp(t, `^[0-9,]+ B$`, row[6])
		if processor.Time() > 0 {
			assert.Regexp(t, `^[0-9.]+µs$`, row[4])
		}
		if i > 0 {
			assert.Regexp(t, `^[+-][0-9]+ B$`, row[7])
		}
	}
	for _, impl := range column(got, 0) {
		assert.Contains(t, out.String(), "timers: "+impl+", seed 1\n", "the seed of all runs is the same")
	}
}

func TestComparisonPrintsDifferences(t *testing.T) {
	t.Parallel()
	cfg := brief()
	made := func(impl string, cpu time.Duration, heap uint64) *outcome {
		cfg.impl = impl
		return &outcome{cfg: cfg, beats: 1000, cpu: cpu, heap: heap}
	}
	wheel, wrong, interrupted := made("wheel", 41*time.Millisecond, 150_000), made("std", 39*time.Millisecond, 90_000), made("net", 1, 1)
	wheel.verdict.overdue = make([]time.Duration, 12)
	wrong.verdict.faults = []string{"a fault"}
	interrupted.interrupted = true
	var out bytes.Buffer
	printComparison(&out, []*outcome{made(none, 40*time.Millisecond, 120_000), wheel, wrong, interrupted})
	assert.Equal(t, [][]string{
		{"none", "0 of 12", "1,000", "40ms", "40.0µs", "", "2,000 B", "", "-"},
		{"wheel", "12 of 12", "1,000", "41ms", "41.0µs", "+1.0µs", "2,500 B", "+500 B", "right"},
		{"std", "0 of 12", "1,000", "39ms", "39.0µs", "-1.0µs", "1,500 B", "-500 B", "WRONG"},
		{"net", "", "", "", "", "", "", "", "interrupted"},
	}, rows(out.String()))
	assert.Contains(t, out.String(), "share this process")
}

// Only Unix tells the processor time of a process.
func TestComparisonWithoutProcessorTime(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := &outcome{cfg: brief(), beats: 1000, heap: 120_000}
	printComparison(&out, []*outcome{o, o})
	for _, row := range rows(out.String()) {
		assert.Equal(t, []string{"", "", ""}, row[3:6])
	}
}

func TestComparisonWithMistakesIsWrong(t *testing.T) {
	t.Parallel()
	cfg := brief()
	cfg.timeout, cfg.bound, cfg.duration = 100*time.Millisecond, 50*time.Millisecond, 300*time.Millisecond
	cfg.cutAfter = 10 * time.Millisecond
	require.NoError(t, cfg.validate())
	var out bytes.Buffer
	right, err := compare(context.Background(), cfg, &out)
	require.NoError(t, err)
	assert.False(t, right, out.String())
	assert.Contains(t, column(rows(out.String()), 8), "WRONG")
	assert.Contains(t, out.String(), "was cut though it beat")
}

// deafDeadlines accept no connection.
type deafDeadlines struct{ netDeadlines }

type deafListener struct{ net.Listener }

func (deafDeadlines) listener(l net.Listener) net.Listener { return deafListener{l} }
func (deafListener) Accept() (net.Conn, error)             { return nil, errors.New("out of files") }

func TestFailedRunEndsTheComparison(t *testing.T) {
	t.Parallel()
	cfg := brief()
	runs := 0
	cfg.newImpl = func() implementation {
		if runs++; runs == 2 {
			return deafDeadlines{}
		}
		return netDeadlines{}
	}
	var out bytes.Buffer
	_, err := compare(context.Background(), cfg, &out)
	assert.ErrorContains(t, err, "out of files")
	assert.Equal(t, []string{"none"}, column(rows(out.String()), 0), "the run before is in the table")
}

// interrupter cancels when a text has been written.
type interrupter struct {
	bytes.Buffer
	at     string
	cancel context.CancelFunc
}

func (w *interrupter) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Contains(w.String(), w.at) {
		w.cancel()
	}
	return n, err
}

// Ctrl-C in a run prints the runs before it.
func TestInterruptedComparisonPrintsTheRunsBefore(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out := &interrupter{at: "timers: wheelnet,", cancel: cancel}
	var stderr bytes.Buffer
	code := heartbeat(ctx, strings.Fields("heartbeat -compare -conns 60 -timeout 200ms -duration 800ms -silent 20"), out, &stderr)
	assert.Equal(t, exitRight, code, out.String())
	assert.Empty(t, stderr.String())
	got := rows(out.String())
	assert.Equal(t, []string{"none", "wheel", "wheelnet"}, column(got, 0))
	assert.Equal(t, []string{"-", "right", "interrupted"}, column(got, 8))
	assert.Regexp(t, "^[0-9]+ of 12$", got[1][1])
	assert.Empty(t, got[2][1])
}
