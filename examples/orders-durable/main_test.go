package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
)

// TestMain runs the program if the environment variable is set.
func TestMain(m *testing.M) {
	if os.Getenv("ORDERS_DURABLE") != "" {
		timeToPay = 3 * time.Second
		main()
		return
	}
	os.Exit(m.Run())
}

// program returns a command of the program that runs in dir.
func program(ctx context.Context, dir string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, os.Args[0], args...)
	c.Dir, c.Env = dir, append(os.Environ(), "ORDERS_DURABLE=1")
	return c
}

// Killed processes lose no deadline, and deliver none early and none of a paid order.
func TestDeadlinesSurviveKills(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir, placed := t.TempDir(), time.Now()
	for _, args := range []string{"place a b c d e f", "pay b d"} {
		out, err := program(ctx, dir, strings.Fields(args)...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	cancelled := map[string]bool{}
	for len(cancelled) < 4 { // processes, each killed at its first new line
		c := program(ctx, dir)
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		for lines := bufio.NewScanner(out); lines.Scan(); { // it may have printed several lines
			assert.GreaterOrEqual(t, time.Since(placed), time.Second, "early")
			id, found := strings.CutSuffix(lines.Text(), " is cancelled")
			assert.True(t, found, lines.Text())
			if !cancelled[id] {
				_ = c.Process.Kill() // an error means that it was already killed
			}
			cancelled[id] = true
		}
		require.Error(t, c.Wait(), "the process was not killed")
	}
	assert.Equal(t, map[string]bool{"a": true, "c": true, "e": true, "f": true}, cancelled)
}

func TestSecondProcessCannotPlaceTheSameOrder(t *testing.T) {
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

func TestOrdersArePlacedAndPaidWhileAProcessConsumes(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	consumer := program(ctx, dir)
	out, err := consumer.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, consumer.Start())
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "orders", "timingwheel.sock"))
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	for _, args := range []string{"place a b", "pay a"} {
		out, err := program(ctx, dir, strings.Fields(args)...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	assert.Equal(t, "b is cancelled", lines.Text())
	require.NoError(t, consumer.Process.Kill())
	require.Error(t, consumer.Wait(), "the process was not killed")
}
