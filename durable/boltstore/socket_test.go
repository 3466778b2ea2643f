package boltstore

import (
	"bytes"
	"context"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/storetest"
)

// socketFile returns the path of a file whose socket has a path that is short enough.
func socketFile(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "bolt")
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, os.RemoveAll(dir)) })
	return filepath.Join(dir, "q.db")
}

// The suite of all stores runs through the socket.
func TestRemotePassesStoreSuite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) storetest.Fixture {
		t.Helper()
		clock := newClock()
		path := socketFile(t)
		var owner *Store
		open := func() driver.Store {
			var err error
			owner, err = Open(path, Options{Now: clock.Now, NoSync: true, Socket: true, reserve: smallReserve})
			require.NoError(t, err)
			r, err := Connect(path)
			require.NoError(t, err)
			return r
		}
		t.Cleanup(func() { assert.NoError(t, owner.Close()) })
		fixture := storetest.Fixture{Store: open(), Embedded: true, Remote: true, Advance: clock.Advance}
		fixture.Reopen = func(t testing.TB) driver.Store {
			t.Helper()
			require.NoError(t, owner.Close())
			return open()
		}
		return fixture
	})
}

// The owner of a file and a remote store use a queue at the same time.
func TestOwnerAndRemoteShareQueue(t *testing.T) {
	t.Parallel()
	path := socketFile(t)
	_, err := Connect(path)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	assert.ErrorContains(t, err, path)
	leaveSocket(t, socketPath(path))
	s, err := Open(path, Options{Socket: true})
	require.NoError(t, err)
	info, err := os.Stat(socketPath(path))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
	_, err = Open(path, Options{Socket: true, LockTimeout: -1})
	require.ErrorIs(t, err, driver.ErrLocked, "the socket of the owner stays")
	q, err := durable.Open(t.Context(), s, durable.Options{Queue: "orders", Partitions: 2})
	require.NoError(t, err)
	defer q.Close()
	_, err = q.Enqueue(t.Context(), durable.Message{ID: "a", Body: []byte("body"), Delay: time.Hour})
	require.NoError(t, err)
	r, err := Connect(path)
	require.NoError(t, err)
	other, err := durable.Open(t.Context(), r, durable.Options{Queue: "orders", RetryFor: time.Second, OnError: func(error) {}})
	require.NoError(t, err)
	defer other.Close()
	record, err := other.Get(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, []byte("body"), record.Body)
	_, err = other.Enqueue(t.Context(), durable.Message{ID: "a"})
	require.ErrorIs(t, err, durable.ErrDuplicate)
	_, err = other.Get(t.Context(), "b")
	require.ErrorIs(t, err, durable.ErrNotFound)
	_, err = durable.Open(t.Context(), r, durable.Options{Queue: "orders", Partitions: 3})
	require.ErrorIs(t, err, durable.ErrPartitions)
	var copied bytes.Buffer
	n, err := r.Backup(t.Context(), &copied)
	require.NoError(t, err)
	assert.Equal(t, int64(copied.Len()), n)
	restored, err := durable.Open(t.Context(), openCopy(t, copied.Bytes()), durable.Options{Queue: "orders"})
	require.NoError(t, err)
	defer restored.Close()
	_, err = restored.Get(t.Context(), "a")
	require.NoError(t, err)
	result, err := other.Cancel(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, durable.Cancelled, result)

	ctx, cancel := context.WithCancel(t.Context()) // a waiting call ends with the owner
	defer cancel()
	hints, err := mustOpen(t, r).Watch(ctx)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, open := <-hints
	assert.False(t, open)
	_, err = os.Stat(socketPath(path))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = other.Get(t.Context(), "a")
	require.ErrorIs(t, err, durable.ErrUnavailable)
}

// leaveSocket leaves a socket behind like a process that was killed.
func leaveSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
}

// A file of another kind is at the path of the socket.
func TestListenReplacesOnlySockets(t *testing.T) {
	t.Parallel()
	path := socketFile(t)
	require.NoError(t, os.WriteFile(socketPath(path), []byte("notes"), 0o600))
	s, err := Open(path, Options{Socket: true})
	if err == nil {
		require.NoError(t, s.Close())
	}
	require.ErrorIs(t, err, driver.ErrInvalid)
	assert.ErrorContains(t, err, socketPath(path))
	content, err := os.ReadFile(socketPath(path))
	require.NoError(t, err)
	assert.Equal(t, "notes", string(content))
	openStore(t, path, Options{}) // the file is not locked
}

// The mode of the file differs from Options.FileMode. Open leaves no other file in its directory.
func TestSocketHasModeOfFile(t *testing.T) {
	t.Parallel()
	path := socketFile(t)
	for _, mode := range []fs.FileMode{0o600, 0o660, 0o666} {
		s, err := Open(path, Options{})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.NoError(t, os.Chmod(path, mode))
		s, err = Open(path, Options{Socket: true, FileMode: 0o640})
		require.NoError(t, err)
		info, err := os.Lstat(socketPath(path))
		require.NoError(t, err)
		assert.Equal(t, mode|fs.ModeSocket, info.Mode())
		entries, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		assert.Len(t, entries, 2)
		require.NoError(t, s.Close())
		_, err = os.Lstat(socketPath(path))
		require.ErrorIs(t, err, fs.ErrNotExist)
		leaveSocket(t, socketPath(path))
		require.NoError(t, s.Close(), "again")
		require.NoError(t, os.Remove(socketPath(path)), "it is not the socket of this store")
	}
}

// A remote process asks for partitions that the queue does not have. The owner survives.
func TestSocketRejectsUnknownPartitions(t *testing.T) {
	t.Parallel()
	path := socketFile(t)
	s := openStore(t, path, Options{Socket: true})
	openQueue(t, s, 2)
	r, err := Connect(path)
	require.NoError(t, err)
	b := mustOpen(t, r)
	for _, p := range []int{-1, 2} {
		_, errs := b.Put(t.Context(), driver.Put{Partition: p, Items: []driver.PutItem{{ID: "a"}}})
		require.ErrorIs(t, errs, driver.ErrInvalid)
		_, errs = b.Claim(t.Context(), driver.Claim{Partition: p, Max: 1})
		require.ErrorIs(t, errs, driver.ErrInvalid)
		_, errs = b.Apply(t.Context(), driver.Batch{Partition: p, Op: driver.OpCancel, Changes: []driver.Change{{ID: "a"}}})
		require.ErrorIs(t, errs, driver.ErrInvalid)
		_, errs = b.Get(t.Context(), p, "a")
		require.ErrorIs(t, errs, driver.ErrInvalid)
	}
	_, err = b.Count(t.Context(), 1)
	require.NoError(t, err)
}

// The owner closes the file but still answers. Remote callers get an error that they retry, since
// their own store is not closed.
func TestClosingOwnerReturnsErrUnavailable(t *testing.T) {
	t.Parallel()
	path := socketFile(t)
	s := openStore(t, path, Options{Socket: true})
	openQueue(t, s, 1)
	r, err := Connect(path)
	require.NoError(t, err)
	b := mustOpen(t, r)
	s.closed.Store(true) // as Close begins
	_, put := b.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "a"}}})
	_, opened := r.Open(t.Context(), driver.Config{Queue: "orders", DeadLimit: 1, DeadBytes: 1, DeadAge: time.Hour})
	_, backup := r.Backup(t.Context(), new(bytes.Buffer))
	s.closed.Store(false)
	for _, err := range []error{put, opened, backup} {
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.NotErrorIs(t, err, driver.ErrClosed)
	}
	_, err = b.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "a"}}})
	require.NoError(t, err)
	require.NoError(t, r.Close())
	_, err = b.Get(t.Context(), 0, "a")
	require.ErrorIs(t, err, driver.ErrClosed)
}

func mustOpen(t *testing.T, s driver.Store) driver.Backend {
	t.Helper()
	b, err := s.Open(t.Context(), driver.Config{Queue: "orders", DeadLimit: 10, DeadBytes: 1 << 20, DeadAge: time.Hour})
	require.NoError(t, err)
	return b
}
