package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/timingwheel-go/timingwheel/durable/internal/pgtest"
)

func TestRunRejectsInvalidArguments(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"-skip=redis":   `"redis" is not a part`,
		"-messages=999": "it must be from 1,000 to 10,000,000",
		"extra":         `unexpected argument "extra"`,
	} {
		err := run(t.Context(), []string{"bench", arg}, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", arg, err, want)
		}
	}
}

func TestRunMeasuresPostgresAndRiver(t *testing.T) {
	t.Parallel()
	pgtest.Require(t)
	var table bytes.Buffer
	if err := run(t.Context(), []string{"bench", "-messages=1000", "-seconds=1", "-pending=1000"}, &table, io.Discard); err != nil {
		t.Fatal(err)
	}
	out := table.String()
	if n := strings.Count(out, "\nPostgreSQL: "); n != 23 {
		t.Errorf("%d figures of PostgreSQL, want 23", n)
	}
	if n := strings.Count(out, "\nRiver on PostgreSQL: "); n != 6 {
		t.Errorf("%d figures of River, want 6", n)
	}
}

// The server of -postgres does not exist.
func TestRunReturnsErrorOfUnreachableServer(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), []string{"bench", "-postgres=postgres://127.0.0.1:1/none"}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Error(err)
	}
}
