package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCountsAreRight(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, 5000, t.TempDir()), out.String())
	assert.Contains(t, out.String(), "5,000 messages: ")
	assert.Contains(t, out.String(), "cancelled or rescheduled 448 messages: ")
	assert.Contains(t, out.String(), "delivered and acknowledged 50 messages: ")
	assert.Regexp(t, `at the end: 4,[78]\d\d scheduled, [12]\d\d cancelled, 50 acknowledged\n$`, out.String())
}

// interrupter is an output that cancels the context when the program prints.
type interrupter struct{ cancel context.CancelFunc }

func (i interrupter) Write(p []byte) (int, error) {
	i.cancel()
	return len(p), nil
}

func TestInterruptRemovesTheTemporaryDirectory(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("TMP", temp) // on Windows
	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, run(ctx, interrupter{cancel}, 1000, ""), context.Canceled)
	require.ErrorIs(t, run(ctx, io.Discard, 1000, ""), context.Canceled)
	files, err := os.ReadDir(temp)
	require.NoError(t, err)
	assert.Empty(t, files)
}
