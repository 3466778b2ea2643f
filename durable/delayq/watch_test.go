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
	assert.Len(t, lines, 3*(4+3+1+8+1), "the sums, a header, and a row for the queue and each partition")
	assert.Contains(t, lines[0], "queue default, 8 partitions, ")
	assert.Regexp(t, `queue +│ +5 +│ +0 +│ +0 +│ +0 +│ 1h`, lines[7])
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
	assert.Equal(t, map[string]float64{"enqueued": 100, "acked": 50, "retried": 0.5, "buried": 0.1, "cancelled": 0, "crashed": 0}, parts[1].rates())
	assert.Equal(t, []string{"queue (paused)", "7", "3", "2", "1", "0s", "3s"}, cells(s.table(false), 7))
	assert.Equal(t, []string{"0 (paused)", "7", "3", "2", "1", "0s", "2.5s"}, cells(s.table(true), 8))
	assert.Equal(t, []string{"1", "0", "0", "0", "0", "never", "0s"}, cells(s.table(true), 9))
	assert.Contains(t, s.table(false), "\nper second: 101.0 enqueued, 50.0 acked, 0.5 retried, 0.1 dead\ntotal: 1010 enqueued, 500 acked, 5 retried, 1 dead (0 dropped)\n")
	assert.Contains(t, s.table(false), "\n       0 cancelled, 0 crashed, 0 lost, 0 cannot be read\n")
	assert.Len(t, strings.Split(s.table(false), "\n"), 9)
	assert.Len(t, strings.Split(s.table(true), "\n"), 11)
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
	watch := func(columns, rows int) []string {
		var out bytes.Buffer
		a := newApp(nil, &out, io.Discard)
		a.size = func() (int, int) { return columns, rows }
		args := []string{"delayq", "-store", "memory:", "-partitions", "8", "watch", "-partitions", "-n", "2", "-interval", "10ms"}
		require.NoError(t, a.run(t.Context(), args))
		updates := strings.Split(out.String(), "\x1b[H\x1b[J")
		require.Len(t, updates, 3)
		assert.Empty(t, updates[0])
		lines := strings.Split(updates[2], "\n")
		for _, line := range lines {
			assert.LessOrEqual(t, utf8.RuneCountInString(line), columns, "a line is cut to the terminal")
		}
		return lines
	}
	assert.Contains(t, watch(80, 18)[5], " overdue ", "17 lines, and the cursor")
	assert.Equal(t, "… 2 more lines do not fit in the window", watch(80, 17)[15])
	assert.Len(t, watch(80, 17), 17)
	assert.Contains(t, watch(80, 18)[16], "└")
	assert.Len(t, watch(80, 18), 18)
	assert.Contains(t, watch(30, 17)[5], "scheduled")
	assert.Len(t, watch(80, 1), 3)
}

func TestTableOfUsualNumbersHas80Columns(t *testing.T) {
	t.Parallel()
	s := sampleOf()
	c := &s.stats.Counts
	c.Scheduled, c.Due, c.InFlight, c.Dead, c.NextDue = 12_345_678, 123_456, 12_345, 1234, c.Now.Add(23*time.Hour+59*time.Minute+59*time.Second)
	c.Counters = driver.Counters{Enqueued: 10_000_000, Acked: 9_000_000, Retried: 10_000, Buried: 1000, Cancelled: 1000, Crashed: 100}
	s.before.Enqueued, s.before.Acked, s.stats.OverdueFor = 9_900_000, 8_900_000, 90*time.Minute
	for line := range strings.Lines(s.table(true)) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
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
		90*time.Second + time.Millisecond: "1m30s", 36 * time.Hour: "36h0m0s", 51 * time.Hour: "2d3h", 48 * time.Hour: "2d", 250 * time.Hour: "10d10h", 720 * time.Hour: "30d",
	} {
		assert.Equal(t, want, formatDuration(d), d.String())
	}
}
