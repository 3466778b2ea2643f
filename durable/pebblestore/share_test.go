package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// socketDir returns a directory whose socket has a path that is short enough.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "p")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	return filepath.Join(dir, "q")
}

// withMessages opens a directory and stores some messages.
func withMessages(t *testing.T, dir string, options Options, ids ...string) *Store {
	t.Helper()
	s, err := Open(dir, options)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	q, err := s.Open(t.Context(), faultConfig)
	require.NoError(t, err)
	for _, id := range ids {
		putOne(t, q, id)
	}
	return s
}

func TestOtherProcessesWorkOnADirectoryWithASocket(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	_, err := Connect(dir)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	options := faultOptions(nil)
	options.Socket = true
	s := withMessages(t, dir, options, "a")
	info, err := os.Stat(filepath.Join(dir, socketName))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
	r, err := Connect(dir)
	require.NoError(t, err)
	defer r.Close()
	q, err := durable.Open(t.Context(), r, durable.Options{Queue: faultConfig.Queue, Existing: true})
	require.NoError(t, err)
	defer q.Close()
	for _, id := range []string{"b", "c"} {
		_, err = q.Enqueue(t.Context(), durable.Message{ID: id, Delay: time.Hour})
		require.NoError(t, err)
	}
	result, err := q.Cancel(t.Context(), "b")
	require.NoError(t, err)
	assert.Equal(t, durable.ResultCancelled, result)
	limits := durable.Options{Queue: faultConfig.Queue, MaxBody: 7}
	_, err = durable.Open(t.Context(), r, limits)
	require.ErrorIs(t, err, durable.ErrOptions)
	limits.Update = true
	changed, err := durable.Open(t.Context(), r, limits)
	require.NoError(t, err)
	changed.Close()
	local, err := s.Open(t.Context(), driver.Config{Queue: faultConfig.Queue})
	require.NoError(t, err)
	assert.Equal(t, 7, local.Config().MaxBody)
	to := filepath.Join(filepath.Dir(dir), "copy")
	require.NoError(t, r.Backup(t.Context(), to))
	require.ErrorIs(t, r.Backup(t.Context(), to), driver.ErrInvalid, "it exists")
	assert.Empty(t, copies(t, dir))
	requireIDs(t, to, "a", "c")
	require.NoError(t, s.Close())
	_, err = os.Stat(filepath.Join(dir, socketName))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, s.Close(), "again")
}

// requireIDs checks which messages a directory that no process has open holds.
func requireIDs(t *testing.T, dir string, ids ...string) {
	t.Helper()
	s, err := Open(dir, faultOptions(nil))
	require.NoError(t, err)
	assert.ElementsMatch(t, ids, idsOf(t, s))
	require.NoError(t, s.Close())
}

// idsOf returns the ids of the scheduled messages of a store.
func idsOf(t *testing.T, s driver.Store) (ids []string) {
	t.Helper()
	q, err := s.Open(t.Context(), faultConfig)
	require.NoError(t, err)
	for p := range q.Config().Partitions {
		records, _, err := q.List(t.Context(), p, driver.StateScheduled, "", driver.MaxBatch)
		require.NoError(t, err)
		for _, r := range records {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

func TestSocketWithALongPathIsRefused(t *testing.T) {
	t.Parallel()
	options := faultOptions(nil)
	options.Socket = true
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	_, err := Open(dir, options)
	require.ErrorIs(t, err, driver.ErrInvalid)
	require.ErrorContains(t, err, socketName)
	withMessages(t, dir, faultOptions(nil)) // it is not locked
}

// A snapshot is open while another process opens the directory and changes it.
func TestSnapshotOfAClosedDirectoryBlocksNobody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, withMessages(t, dir, faultOptions(nil), "a", "b").Close())
	s, err := OpenSnapshot(t.Context(), dir, faultOptions(nil))
	require.NoError(t, err)
	owner := withMessages(t, dir, faultOptions(nil), "c")
	require.NoError(t, owner.current.db.pebble.Compact(t.Context(), []byte{0}, []byte{255}, false))
	assert.ElementsMatch(t, []string{"a", "b"}, idsOf(t, s))
	q, err := s.Open(t.Context(), faultConfig)
	require.NoError(t, err)
	_, err = q.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "x"}}})
	require.ErrorIs(t, err, driver.ErrInvalid)
	_, err = q.Apply(t.Context(), driver.Batch{Op: driver.OpCancel, Changes: []driver.Change{{ID: "a"}}})
	require.ErrorIs(t, err, driver.ErrInvalid)
	_, err = q.Claim(t.Context(), driver.Claim{Max: 1})
	require.ErrorIs(t, err, driver.ErrInvalid, "it ends consumers")
	require.ErrorIs(t, q.Pause(t.Context(), driver.Pause{Paused: true}), driver.ErrInvalid)
	_, err = s.Open(t.Context(), driver.Config{Queue: faultConfig.Queue, Update: true, MaxBody: 1})
	require.ErrorIs(t, err, driver.ErrInvalid)
	require.NoError(t, s.Close())
	require.NoError(t, owner.Close())
	s, err = OpenSnapshot(t.Context(), dir, faultOptions(nil))
	require.NoError(t, err)
	assert.NoFileExists(t, filepath.Join(dir, ownerName), "this process no longer has the lock")
	require.NoError(t, s.Close())
	withMessages(t, dir, faultOptions(nil))
	assert.Empty(t, copies(t, dir))
	_, err = OpenSnapshot(t.Context(), dir, faultOptions(nil))
	require.ErrorIs(t, err, driver.ErrLocked, "the owner has no socket")
	assert.Empty(t, copies(t, dir))
}

func copies(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "timingwheel.copy-*"))
	require.NoError(t, err)
	return found
}

func TestSnapshotOfAnOpenDirectoryIsMadeByItsOwner(t *testing.T) {
	t.Parallel()
	dir, options := socketDir(t), faultOptions(nil)
	options.Socket = true
	owner := withMessages(t, dir, options, "a")
	s, err := OpenSnapshot(t.Context(), dir, options)
	require.NoError(t, err)
	q, err := owner.Open(t.Context(), faultConfig)
	require.NoError(t, err)
	putOne(t, q, "b")
	assert.Equal(t, []string{"a"}, idsOf(t, s))
	require.NoError(t, s.Close())
	assert.Empty(t, copies(t, dir))
}

// A process that had a snapshot open was killed, and another one still has its snapshot open.
func TestOpenRemovesTheCopiesOfKilledProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, withMessages(t, dir, faultOptions(nil), "a").Close())
	s, err := OpenSnapshot(t.Context(), dir, faultOptions(nil))
	require.NoError(t, err)
	defer s.Close()
	left := filepath.Join(dir, "timingwheel.copy-1-2")
	require.NoError(t, os.Mkdir(left, 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "lost+found"), 0o700))
	ago := time.Now().Add(-100 * time.Hour)
	for _, copied := range copies(t, dir) {
		require.NoError(t, os.Chtimes(copied, ago, ago))
	}
	require.Len(t, copies(t, dir), 2)
	withMessages(t, dir, faultOptions(nil))
	assert.Equal(t, []string{s.dir}, copies(t, dir))
	assert.Equal(t, []string{"a"}, idsOf(t, s))
}

func TestSnapshotNeedsAStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := OpenSnapshot(t.Context(), filepath.Join(dir, "missing"), Options{})
	require.ErrorIs(t, err, driver.ErrInvalid)
	_, err = OpenSnapshot(t.Context(), dir, Options{Memory: 1})
	require.ErrorIs(t, err, driver.ErrInvalid)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600))
	_, err = OpenSnapshot(t.Context(), dir, Options{})
	require.ErrorIs(t, err, driver.ErrVersion)
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, names, 1)
}

// Every change of the file system fails.
func TestSnapshotOnAReadOnlyFileSystemIsOpenedInPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	owner := withMessages(t, dir, faultOptions(nil), "a", "b")
	q, err := owner.Open(t.Context(), faultConfig)
	require.NoError(t, err)
	_, err = q.Claim(t.Context(), driver.Claim{Partition: contract.PartitionOf("a", q.Config().Partitions),
		Horizon: 1000 * time.Hour, Max: 1, Begin: 1, MaxBytes: 1, Visibility: time.Hour})
	require.NoError(t, err)
	require.NoError(t, owner.Close())
	var written []string
	options := faultOptions(errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		written = append(written, filepath.Base(op.Path))
		return &fs.PathError{Op: "write", Path: op.Path, Err: syscall.EROFS}
	})))
	s, err := OpenSnapshot(t.Context(), dir, options)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"a", "b"}, idsOf(t, s))
	read, err := s.Open(t.Context(), faultConfig)
	require.NoError(t, err)
	for p := range read.Config().Partitions {
		report, err := read.(driver.Auditor).Audit(t.Context(), p, false)
		require.NoError(t, err)
		assert.Zero(t, report.Orphans+report.Strays+report.Unreadable+report.Wrong, "%+v", report)
	}
	require.NoError(t, s.Close())
	assert.Equal(t, []string{lockName}, written, "nothing else was tried")
	requireIDs(t, dir, "a", "b")
}

func TestSnapshotMayBeInterrupted(t *testing.T) {
	t.Parallel()
	dir, options := socketDir(t), faultOptions(nil)
	options.Socket = true
	withMessages(t, dir, options, "a")
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, err := OpenSnapshot(ctx, dir, options)
	require.ErrorIs(t, err, cause, fmt.Sprint(err))
	assert.Empty(t, copies(t, dir))
}

func TestRelativePathsSurviveAChangeOfTheWorkingDirectory(t *testing.T) {
	dir, options := socketDir(t), faultOptions(nil)
	options.Socket = true
	elsewhere := t.TempDir()
	t.Chdir(filepath.Dir(dir))
	owner := withMessages(t, filepath.Base(dir), options, "a")
	copied, err := OpenSnapshot(t.Context(), filepath.Base(dir), options)
	require.NoError(t, err)
	connected, err := Connect(filepath.Base(dir))
	require.NoError(t, err)
	t.Chdir(elsewhere)
	assert.Equal(t, []string{"a"}, idsOf(t, copied))
	require.NoError(t, copied.Close())
	assert.Empty(t, copies(t, dir))
	assert.Equal(t, []string{"a"}, idsOf(t, connected))
	require.NoError(t, connected.Backup(t.Context(), "backup"))
	require.NoError(t, owner.Close())
	withMessages(t, dir, options, "b")
	assert.ElementsMatch(t, []string{"a", "b"}, idsOf(t, connected), "the socket is found again")
	require.NoError(t, connected.Close())
	requireIDs(t, "backup", "a")
	s, err := OpenSnapshot(t.Context(), ".", options)
	require.Error(t, err)
	require.Nil(t, s)
}

// A file system without hard links may call that a lack of permission.
func TestCopiesNeedNoHardLinks(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	links := 0
	options := faultOptions(errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind != errorfs.OpLink {
			return nil
		}
		links++
		return &os.LinkError{Op: "link", Old: op.Path, Err: syscall.EPERM}
	})))
	options.Socket = true
	owner := withMessages(t, dir, options, "a")
	require.NoError(t, owner.current.db.pebble.Flush())
	r, err := Connect(dir)
	require.NoError(t, err)
	to := filepath.Join(filepath.Dir(dir), "copy")
	require.NoError(t, r.Backup(t.Context(), to))
	require.NoError(t, r.Close())
	requireIDs(t, to, "a")
	require.NoError(t, owner.Close())
	copied := links
	s, err := OpenSnapshot(t.Context(), dir, options)
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, idsOf(t, s))
	require.NoError(t, s.Close())
	assert.Positive(t, copied)
	assert.Greater(t, links, copied)
}

// A queue is closed while its messages are enqueued, directly or through the socket. No error says
// of a message that is stored that it is not.
func TestErrorsOfABatchAtCloseAreTrue(t *testing.T) {
	t.Parallel()
	options := faultOptions(nil)
	options.Socket = true
	dir := socketDir(t)
	owner, err := Open(dir, options)
	require.NoError(t, err)
	defer owner.Close()
	client, err := Connect(dir)
	require.NoError(t, err)
	defer client.Close()
	all, err := durable.Open(t.Context(), owner, durable.Options{Queue: "q", Partitions: 1})
	require.NoError(t, err)
	defer all.Close()
	for i := range 20 {
		q, err := durable.Open(t.Context(), []driver.Store{owner, client}[i%2], durable.Options{Queue: "q"})
		require.NoError(t, err)
		messages := make([]durable.Message, 1000)
		for k := range messages {
			messages[k] = durable.Message{ID: fmt.Sprint(i, "-", k), Delay: time.Hour}
		}
		time.AfterFunc(time.Duration(i)*200*time.Microsecond, q.Close)
		ids, err := q.EnqueueBatch(t.Context(), messages)
		var failed *durable.BatchError
		if !errors.As(err, &failed) {
			continue // all are stored, or none was tried
		}
		for k, err := range failed.Errors {
			_, missing := all.Get(t.Context(), ids[k])
			if err == nil {
				require.NoError(t, missing)
			} else if !errors.Is(err, durable.ErrOutcomeUnknown) {
				require.ErrorIs(t, missing, durable.ErrNotFound, err)
			}
		}
	}
}
