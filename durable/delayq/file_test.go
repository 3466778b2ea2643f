package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/boltstore"
)

// This process has a file open with a socket, and the commands use the file.
func TestCommandsWorkOnAFileInUse(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "dq") // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	path := filepath.Join(dir, "q.db")
	d := tester{t, "file:" + path}
	owner, err := boltstore.Open(path, boltstore.Options{Socket: true})
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
	assert.Contains(t, d.ok("take", "-wait", "1m", "-nack", "-json"), "second")
	d.ok("watch", "-n", "1")
	d.ok("dead", "list")
	d.ok("audit")
	copied, small := filepath.Join(dir, "copy.db"), filepath.Join(dir, "small.db")
	assert.Contains(t, d.ok("backup", copied), "bytes written")
	require.ErrorIs(t, d.fails([]string{"backup", copied}, "exist"), os.ErrExist)
	require.ErrorIs(t, d.fails([]string{"compact", small}, "End that process"), durable.ErrLocked)
	require.NoError(t, owner.Close())
	assert.Contains(t, tester{t, "file:" + copied}.ok("list"), "third")
	d.ok("compact", small)
	assert.Contains(t, tester{t, "file:" + small}.ok("list"), "third")
	d.fails([]string{"-store", "memory:", "backup", copied}, `"memory:"; it must be file:PATH`)
	err = d.fails([]string{"-store", "redis://me:secret@host", "backup", copied}, "it must be file:PATH")
	assert.NotContains(t, err.Error(), "secret")
}
