package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

func TestWatchPrintsALineForEachPartition(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-n", "5", "-body", "x", "-delay", "90m")
	out := d.ok("-partitions", "8", "watch", "-n", "3", "-interval", "20ms", "-partitions")
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	assert.Len(t, lines, 3*(1+8))
	assert.Contains(t, lines[0], "scheduled 5, due 0, in flight 0, dead 0, next in 1h")
	assert.NotContains(t, out, "\x1b")
}

func TestCtrlCEndsWatch(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	updates := 0
	stdout := writerFunc(func(p []byte) (int, error) {
		assert.Contains(t, string(p), "scheduled 0")
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
		Now: now, Scheduled: 7, Due: 3, InFlight: 2, Dead: 1, NextDue: now.Add(-2500 * time.Millisecond),
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
	assert.Equal(t, rates{"enqueued": 101, "acked": 50, "retried": 0.5, "buried": 0.1, "cancelled": 0, "crashed": 0}, s.rates(-1))
	assert.Equal(t, rates{"enqueued": 1, "acked": 0, "retried": 0, "buried": 0, "cancelled": 0, "crashed": 0}, s.rates(1))
	assert.Contains(t, s.lines(false), "next in now, overdue 3s, enqueued 101/s, acked 50/s, retried 0.5/s, dead 0.1/s")
	assert.Contains(t, s.lines(true), "partition 1: scheduled 0, due 0, in flight 0, dead 0, next in never, overdue 0s, enqueued 1.0/s")
	assert.Len(t, strings.Split(s.table(false), "\n"), 7)
	assert.Len(t, strings.Split(s.table(true), "\n"), 10)
	j := s.json(true)
	assert.EqualValues(t, 3000, j["overdueMs"])
	assert.Contains(t, s.lines(true), "partition 0: scheduled 7, due 3, in flight 2, dead 1, next in now, overdue 2.5s")
	assert.Len(t, j["partitions"], 2)
	s.before.Enqueued = 5000
	assert.Zero(t, s.rates(-1)["enqueued"], "a recreated queue has no negative rate")
}

func TestPainterRedrawsWithinTheScreen(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &painter{w: &out, size: func() (int, int) { return 10, 5 }}
	require.NoError(t, p.paint("one\ntwo"))
	assert.Equal(t, "\r\x1b[Jone\ntwo\n", out.String())
	out.Reset()
	require.NoError(t, p.paint(strings.Repeat("wider than the screen\n", 5)+"end"))
	assert.Equal(t, "\x1b[2A\r\x1b[Jwider than\nwider than\nwider than\n… 3 more l\n", out.String(), "the cursor goes up by the lines drawn last")
	out.Reset()
	require.NoError(t, p.paint("x"))
	assert.Equal(t, "\x1b[4A\r\x1b[Jx\n", out.String())
	for rows := 1; rows <= 3; rows++ {
		out.Reset()
		p = &painter{w: &out, size: func() (int, int) { return 80, rows }}
		require.NoError(t, p.paint("1\n2\n3\n4"))
		assert.Equal(t, max(rows-1, 1), strings.Count(out.String(), "\n"), "a screen with few rows")
		assert.Contains(t, out.String(), fmt.Sprintf("… %d more lines", 4-max(rows-2, 0)))
	}
}

func TestWatchRedrawsATerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := newApp(nil, &out, io.Discard)
	a.screen = func() (int, int) { return 200, 50 }
	require.NoError(t, a.run(t.Context(), []string{"delayq", "-store", "memory:", "watch", "-n", "2", "-interval", "10ms"}))
	assert.Equal(t, 2, strings.Count(out.String(), "\r\x1b[J"))
	assert.Equal(t, 1, strings.Count(out.String(), "\x1b[7A"))
	assert.Contains(t, out.String(), "in flight")
}

func TestErrorPrinterSkipsFrequentErrors(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := errorPrinter{w: &out, pause: time.Minute}
	for range 10 {
		c.add(errors.New("away"))
	}
	assert.Equal(t, "delayq: away\n", out.String(), "repeated errors are printed once")
	c.last = time.Now().Add(-time.Hour)
	c.add(errors.New("back"))
	assert.Equal(t, "delayq: away\ndelayq: back (and 9 more that were not shown)\n", out.String())
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
		0: "0s", 123: "123ns", 12345 * time.Nanosecond: "12.3µs", 1234567: "1.23ms", 48123 * time.Microsecond: "48.1ms",
		90 * time.Second: "1m30s", 36 * time.Hour: "36h0m0s", 51 * time.Hour: "2d3h", 48 * time.Hour: "2d0h",
	} {
		assert.Equal(t, want, formatDuration(d), d.String())
	}
}
