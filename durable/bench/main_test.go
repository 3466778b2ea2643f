package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
)

func TestRunRejectsInvalidArguments(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-skip redis\x00aof":   `-skip is "redis aof"`, // one name, with a space
		"-skip cluster":        `-skip is "cluster"`,
		"-messages 999":        "it must be from 1,000 to 10,000,000",
		"-seconds 601":         "it must be from 1 to 600",
		"-reopen 1":            "-reopen is 1; it must be from 1,000 to 10,000,000",
		"extra":                `unexpected argument "extra"`,
		"-skip aof,river,disk": `-skip is "disk"`,
		"-messages 10_000_001": "-messages",
	} {
		words := strings.Fields(args)
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "\x00", " ")
		}
		all := append([]string{"bench", "-skip=redis,aof,directory"}, words...) // measures nothing
		if err := run(t.Context(), all, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}

func TestRun_Nothing(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), []string{"bench", "-skip", "redis,aof", "-skip", "directory"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "commit "+commit()+", ") {
		t.Errorf("the commit is missing: %s", out.String())
	}
	if exec.Command("git", "rev-parse", "HEAD").Run() == nil && commit() == "unknown" {
		t.Error("the commit is unknown in a Git repository")
	}
}

// figures runs the parts that are not skipped, with the smallest sizes.
func figures(t *testing.T, skipped ...string) string {
	t.Helper()
	var out bytes.Buffer
	args := []string{"bench", "-messages", "1000", "-seconds", "1", "-reopen", "1000"}
	for _, part := range skipped {
		args = append(args, "-skip", part)
	}
	if err := run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestRunMeasuresTheDirectoryAndRiver(t *testing.T) {
	t.Parallel()
	out := figures(t, "redis", "aof")
	if n := strings.Count(out, "\ndirectory: "); n != 12 {
		t.Errorf("%d figures of the directory, want 12", n)
	}
	if n := strings.Count(out, "\nRiver on SQLite, fsynced: "); n != 5 {
		t.Errorf("%d figures of River, want 5", n)
	}
}

func TestRunMeasuresRedisAndAsynq(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	out := figures(t, "directory")
	if n := strings.Count(out, "\nRedis"); n != 12 {
		t.Errorf("%d figures of Redis, want 12", n)
	}
	if n := strings.Count(out, "\nasynq: "); n != 4 {
		t.Errorf("%d figures of asynq, want 4", n)
	}
}

// The server of -redis does not exist.
func TestRunReturnsErrorOfUnreachableServer(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), []string{"bench", "-redis", "127.0.0.1:1", "-skip", "aof,directory"}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Error(err)
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestVerdictComparesFigureWithTarget(t *testing.T) {
	t.Parallel()
	r := results{progress: io.Discard}
	r.add("rate", 10_000, 10_000, false, perSecond)
	r.add("rate", 9_999, 10_000, false, perSecond)
	r.add("late", 5, 5, true, millis)
	r.add("late", 5.1, 5, true, millis)
	want := []row{
		{"rate", "≥ 10.0k/s", "10.0k/s", "reached"}, {"rate", "≥ 10.0k/s", "10.0k/s", "NOT reached"},
		{"late", "≤ 5.00 ms", "5.00 ms", "reached"}, {"late", "≤ 5.00 ms", "5.10 ms", "NOT reached"},
	}
	for i := range want {
		if r.rows[i] != want[i] {
			t.Errorf("%v, want %v", r.rows[i], want[i])
		}
	}
}

func TestLatenessPercentilesAreExact(t *testing.T) {
	t.Parallel()
	var l lateness
	if got := l.ms(0.5); got != 0 {
		t.Errorf("%v ms without a delivery", got)
	}
	for _, late := range []int{5, -3, 1, 2, 4, 3, 10, 9, 8, 7} {
		l.add(time.Duration(late) * time.Millisecond)
	}
	for share, want := range map[float64]float64{0: 0, 0.1: 0, 0.5: 4, 0.9: 9, 0.999: 10, 1: 10} {
		if got := l.ms(share); got != want {
			t.Errorf("%v of all: %v ms, want %v", share, got, want)
		}
	}
	if l.early != 1 || l.worst != 3*time.Millisecond {
		t.Errorf("%d early, by %v", l.early, l.worst)
	}
}
