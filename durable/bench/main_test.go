package main

import (
	"bytes"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
)

func TestRunRejectsInvalidArguments(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-skip redis\x00aof":   `"redis aof" is not a part`, // one name, with a space
		"-skip cluster":        `"cluster" is not a part`,
		"-messages 999":        "it must be from 1,000 to 10,000,000",
		"-seconds 601":         "it must be from 1 to 600",
		"-pending 1":           "-pending is 1; it must be from 1,000 to 10,000,000",
		"extra":                `unexpected argument "extra"`,
		"-skip aof,river,disk": `"disk" is not a part`,
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
	commit := "unknown"
	if hash, err := exec.Command("git", "rev-parse", "--short=7", "HEAD").Output(); err == nil {
		commit = strings.TrimSpace(string(hash))
	}
	if !strings.Contains(out.String(), "commit "+commit+", ") {
		t.Errorf("the commit is missing: %s", out.String())
	}
}

// figures runs the parts that are not skipped, with the smallest sizes.
func figures(t *testing.T, skipped ...string) string {
	t.Helper()
	var out bytes.Buffer
	args := []string{"bench", "-messages", "1000", "-seconds", "1", "-pending", "1000"}
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
