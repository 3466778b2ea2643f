package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
)

// TestMain is the program if the test binary is started as that.
func TestMain(m *testing.M) {
	if os.Getenv("ORDERS_DURABLE") != "" {
		timeToPay = time.Second
		main()
		return
	}
	os.Exit(m.Run())
}

// program is a command of the program, to be run in a directory.
func program(ctx context.Context, dir string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, os.Args[0], args...)
	c.Dir, c.Env = dir, append(os.Environ(), "ORDERS_DURABLE=1")
	return c
}

// Processes that are killed lose no deadline, deliver none early, and none of an order that was paid.
func TestOrdersSurviveKills(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir, placed := t.TempDir(), time.Now()
	for _, args := range []string{"place a b c d e f", "pay b d"} {
		out, err := program(ctx, dir, strings.Fields(args)...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	cancelled := map[string]bool{}
	for range 20 { // processes, each of which is killed at its first line
		if len(cancelled) == 4 {
			break
		}
		c := program(ctx, dir)
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		for lines := bufio.NewScanner(out); lines.Scan(); { // more than one may have been printed
			assert.GreaterOrEqual(t, time.Since(placed), time.Second, "early")
			id, found := strings.CutSuffix(lines.Text(), " is cancelled")
			assert.True(t, found, lines.Text())
			cancelled[id] = true
			_ = c.Process.Kill() // an error is that it was killed before
		}
		require.Error(t, c.Wait(), "it was killed")
	}
	assert.Equal(t, map[string]bool{"a": true, "c": true, "e": true, "f": true}, cancelled)
}

// An order is placed once, although each command is another process.
func TestOrderIsPlacedOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	out, err := program(ctx, dir, "place", "a").CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = program(ctx, dir, "place", "a").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), durable.ErrDuplicate.Error())
}
