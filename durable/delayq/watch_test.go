package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

func TestWatchPrintsARowForEachPartition(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-n", "5", "-body", "x", "-delay", "90m")
	out := d.ok("-partitions", "8", "watch", "-n", "3", "-interval", "20ms", "-partitions")
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	assert.Len(t, lines, 3*(1+3+1+8+1+1), "a title, a header, a row for the queue and each partition, and the sums")
	assert.Contains(t, lines[0], "queue default, 8 partitions, ")
	assert.Regexp(t, `queue +│ +5 +│ +0 +│ +0 +│ +0 +│ 1h`, lines[4])
	assert.NotContains(t, out, "\x1b")
}

func TestCtrlCEndsWatch(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	updates := 0
	stdout := writerFunc(func(p []byte) (int, error) {
		assert.Regexp(t, `queue +│ +0 +│`, string(p))
		if updates++; updates == 3 {
			cancel()
		}
		return len(p), nil
	})
	require.NoError(t, onMemory(ctx, memstore.New(memstore.Options{}), stdout, io.Discard, "watch", "-interval", "10ms"))
	assert.Equal(t, 3, updates)
}

func TestWatchEndsIfItCannotPrint(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken pipe")
	require.ErrorIs(t, onMemory(t.Context(), memstore.New(memstore.Options{}), failing{broken}, io.Discard, "watch"), broken)
}

// sampleOf returns a snapshot of a queue with two partitions, ten seconds after the previous one.
func sampleOf() *sample {
	now := time.UnixMilli(1_800_000_000_000)
	part := durable.Counts{
		Now: now, Paused: true, Scheduled: 7, Due: 3, InFlight: 2, Dead: 1, NextDue: now.Add(-2500 * time.Millisecond),
		Counters: driver.Counters{Enqueued: 1000, Acked: 500, Retried: 5, Buried: 1},
	}
	rest := durable.Counts{Now: now, NextDue: driver.Never.Time(), Counters: driver.Counters{Enqueued: 10}}
	all := part
	all.Enqueued += rest.Enqueued
	old := durable.Counts{Now: now.Add(-10 * time.Second)}
	before := durable.Stats{Counts: old, Partitions: []durable.Counts{old, old}}
	stats := durable.Stats{Counts: all, Partitions: []durable.Counts{part, rest}, OverdueFor: 3 * time.Second} // one waits in a consumer
	return &sample{queue: "q", stats: stats, before: before}
}

func TestRatesCoverTheTimeBetweenTwoSnapshots(t *testing.T) {
	t.Parallel()
	s := sampleOf()
	parts := s.parts(true)
	assert.Equal(t, map[string]float64{"enqueued": 101, "acked": 50, "retried": 0.5, "buried": 0.1, "cancelled": 0, "crashed": 0}, parts[0].rates())
	assert.Equal(t, map[string]float64{"enqueued": 1, "acked": 0, "retried": 0, "buried": 0, "cancelled": 0, "crashed": 0}, parts[2].rates())
	assert.Equal(t, []string{"queue (paused)", "7", "3", "2", "1", "0s", "3s", "101", "50", "0.5", "0.1"}, cells(s.table(false, 0), 4))
	assert.Equal(t, []string{"0 (paused)", "7", "3", "2", "1", "0s", "2.5s", "100", "50", "0.5", "0.1"}, cells(s.table(true, 0), 5))
	assert.Equal(t, []string{"1", "0", "0", "0", "0", "never", "0s", "1", "0", "0", "0"}, cells(s.table(true, 0), 6))
	assert.Len(t, strings.Split(s.table(false, 0), "\n"), 7)
	assert.Len(t, strings.Split(s.table(true, 0), "\n"), 9)
	j := s.json(true)
	assert.EqualValues(t, 3000, j["overdueMs"])
	assert.Equal(t, "q", j["queue"])
	assert.Len(t, j["partitions"], 2)
	assert.NotContains(t, s.json(false), "partitions")
	s.before.Enqueued = 5000
	assert.Zero(t, s.parts(false)[0].rates()["enqueued"], "a recreated queue has no negative rate")
	s.before = durable.Stats{}
	assert.Zero(t, s.parts(true)[1].rates()["enqueued"], "the first sample")
}

// cells returns the cells of a line of a table.
func cells(table string, line int) []string {
	var all []string
	for _, cell := range strings.Split(strings.Trim(strings.Split(table, "\n")[line], "│"), "│") {
		all = append(all, strings.TrimSpace(cell))
	}
	return all
}

func TestWatchRedrawsATerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := newApp(nil, &out, io.Discard)
	a.columns = func() int { return 50 }
	require.NoError(t, a.run(t.Context(), []string{"delayq", "-store", "memory:", "watch", "-n", "2", "-interval", "10ms"}))
	assert.Equal(t, 2, strings.Count(out.String(), "\x1b[H\x1b[J"))
	assert.Contains(t, out.String(), "in flight")
	for _, line := range strings.Split(out.String(), "\n") {
		if strings.HasPrefix(line, "│") {
			assert.Equal(t, 50, utf8.RuneCountInString(line), "the table is cut to the terminal")
		}
	}
}

func TestLineWriterPassesWholeLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := &lineWriter{to: &out}
	for _, s := range []string{"a", "b\nc", "d", "\n\n e \ntail"} {
		n, err := l.Write([]byte(s))
		require.NoError(t, err)
		assert.Equal(t, len(s), n)
	}
	assert.Equal(t, "ab\ncd\n\n e \n", out.String(), "whole lines only")
	assert.Equal(t, "e", l.last)
	l.close()
	assert.True(t, strings.HasSuffix(out.String(), "\ntail\n"))
	assert.Equal(t, "tail", l.last)
	out.Reset()
	_, err := l.Write(bytes.Repeat([]byte("x"), longestLine))
	require.NoError(t, err)
	assert.Equal(t, longestLine, out.Len(), "a line without an end is passed on in parts")
}

func TestDurationsAreRounded(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 1234567: "1ms", 48123 * time.Microsecond: "48ms", 1234567 * time.Microsecond: "1.235s",
		90*time.Second + time.Millisecond: "1m30s", 36 * time.Hour: "36h0m0s", 51 * time.Hour: "2d3h", 48 * time.Hour: "2d0h",
	} {
		assert.Equal(t, want, formatDuration(d), d.String())
	}
}
