package main

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
)

// This process has a directory open with a socket, and the commands use the directory.
func TestCommandsWorkOnADirectoryInUse(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "dq") // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	path := filepath.Join(dir, "q")
	d := tester{t, "dir:" + path}
	owner, err := pebblestore.Open(path, pebblestore.Options{Socket: true})
	require.NoError(t, err)
	q, err := durable.Open(t.Context(), owner, durable.Options{Queue: "default"})
	require.NoError(t, err)
	defer q.Close()
	for _, id := range []string{"first", "second"} {
		_, err = q.Enqueue(t.Context(), durable.Message{ID: id, Delay: time.Hour})
		require.NoError(t, err)
	}
	assert.Contains(t, d.ok("list"), "first")
	d.ok("enqueue", "-id", "third", "-body", "x", "-delay", "1h")
	_, err = q.Get(t.Context(), "third")
	require.NoError(t, err)
	d.ok("inspect", "third")
	d.ok("cancel", "first")
	_, err = q.Get(t.Context(), "first")
	require.ErrorIs(t, err, durable.ErrNotFound)
	d.ok("reschedule", "second", "-delay", "0s")
	d.ok("pause")
	d.ok("resume")
	d.ok("health")
	d.ok("consumers")
	d.ok("watch", "-n", "1")
	d.ok("dead", "list")
	assert.Contains(t, d.ok("-json", "check"), `"records":2`)
	for _, command := range [][]string{{"take"}, {"consume", "-exec", "true"}} {
		require.ErrorIs(t, d.fails(command, "Options.Socket"), durable.ErrLocked)
	}
	copied := filepath.Join(dir, "copy.tar")
	assert.Contains(t, d.ok("backup", copied), "bytes written")
	require.ErrorIs(t, d.fails([]string{"backup", copied}, "exist"), os.ErrExist)
	stream := d.ok("backup", "-")
	require.NoError(t, owner.Close())
	file, err := os.ReadFile(copied)
	require.NoError(t, err)
	for i, archive := range []string{string(file), stream} {
		restored := filepath.Join(dir, strconv.Itoa(i))
		extract(t, archive, restored)
		assert.Contains(t, tester{t, "dir:" + restored}.ok("list"), "third")
	}
	left, err := filepath.Glob(filepath.Join(path, "timingwheel.copy-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
	d.fails([]string{"-store", "memory:", "backup", copied}, `"memory:"; it must be dir:PATH`)
	err = d.fails([]string{"-store", "redis://me:secret@host", "backup", copied}, "it must be dir:PATH")
	assert.NotContains(t, err.Error(), "secret")
}

// extract extracts an archive of files into a new directory.
func extract(t *testing.T, archive, dir string) {
	t.Helper()
	require.NoError(t, os.Mkdir(dir, 0o700))
	for r := tar.NewReader(strings.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, h.Name), content, 0o600))
	}
}

// The reader of a backup is slow, and the user ends the command.
func TestInterruptedBackupLeavesNothing(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "a", "-body", "x")
	ctx, cancel := context.WithCancel(t.Context())
	stdout := writerFunc(func([]byte) (int, error) {
		cancel()
		return 1, nil
	})
	err := newApp(nil, stdout, io.Discard).run(ctx, []string{"delayq", "-store", d.store, "backup", "-"})
	require.Error(t, err)
	left, err := filepath.Glob(filepath.Join(strings.TrimPrefix(d.store, "dir:"), "timingwheel.copy-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}
