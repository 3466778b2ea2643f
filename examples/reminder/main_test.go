package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain runs the program if the environment variable is set.
func TestMain(m *testing.M) {
	if os.Getenv("REMINDER") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The second process delivers the message of the first one, which was killed.
func TestReminderSurvivesAKill(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	start := func() (*exec.Cmd, *bufio.Scanner) {
		c := exec.CommandContext(ctx, os.Args[0])
		c.Dir, c.Env, c.Stderr = dir, append(os.Environ(), "REMINDER=1"), os.Stderr
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		return c, bufio.NewScanner(out)
	}
	kill := func(c *exec.Cmd) {
		require.NoError(t, c.Process.Kill())
		require.Error(t, c.Wait(), "the process was not killed")
	}

	first, lines := start()
	require.True(t, lines.Scan())
	id, stored := strings.CutSuffix(lines.Text(), " is stored")
	require.True(t, stored, lines.Text())
	kill(first)

	second, lines := start()
	defer kill(second)
	for lines.Scan() {
		if lines.Text() == id+": meeting" {
			return
		}
	}
	require.Fail(t, "the message was lost", id)
}
