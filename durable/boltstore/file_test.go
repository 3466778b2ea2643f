package boltstore

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

func TestSecondOpenReturnsErrLocked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "queue.db")
	first, err := Open(path, Options{})
	require.NoError(t, err)
	for _, timeout := range []time.Duration{-1, 10 * time.Millisecond, 200 * time.Millisecond} {
		_, err = Open(path, Options{LockTimeout: timeout})
		require.ErrorIs(t, err, driver.ErrLocked)
		assert.ErrorContains(t, err, path)
	}
	require.NoError(t, first.Close())
	openStore(t, path, Options{LockTimeout: -1})
}

func TestOpenWaitsForTheLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "queue.db")
	first, err := Open(path, Options{})
	require.NoError(t, err)
	closed := make(chan error)
	time.AfterFunc(100*time.Millisecond, func() { closed <- first.Close() })
	_, err = Open(path, Options{LockTimeout: time.Minute})
	require.NoError(t, err)
	require.NoError(t, <-closed)
}

func TestOpenRejectsBadPathsFilesAndModes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, make([]byte, 100_000), 0o600))
	short := filepath.Join(dir, "short")
	require.NoError(t, os.WriteFile(short, []byte("queue"), 0o600))
	other := filepath.Join(dir, "other.db")
	updateFile(t, other, func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket([]byte("users"))
		return err
	})
	newer := filepath.Join(dir, "newer.db")
	openStore(t, newer, Options{})
	for _, c := range []struct {
		path, text string
		options    Options
		is         error
	}{
		{dir, "is a directory", Options{}, driver.ErrInvalid},
		{filepath.Join(dir, "missing", "queue.db"), "it must be a file in a directory that exists", Options{}, driver.ErrInvalid},
		{filepath.Join(dir, "missing", "queue.db"), "no such file", Options{}, fs.ErrNotExist},
		{filepath.Join(text, "queue.db"), "not a directory", Options{}, driver.ErrInvalid},
		{text, "not a bbolt file", Options{}, driver.ErrVersion},
		{short, "it has 5 bytes", Options{}, ErrCorrupt},
		{short, "restore it from a backup, or delete it", Options{}, driver.ErrBroken},
		{other, `another program, with a bucket "users"`, Options{}, driver.ErrVersion},
		{filepath.Join(dir, "mode.db"), "FileMode", Options{FileMode: 0o400}, driver.ErrInvalid},
		{filepath.Join(dir, "mode.db"), "FileMode", Options{FileMode: fs.ModeDir | 0o600}, driver.ErrInvalid},
	} {
		_, err := Open(c.path, c.options)
		require.ErrorIs(t, err, c.is, c.path)
		assert.ErrorContains(t, err, c.text)
		assert.ErrorContains(t, err, c.path)
	}
	content, err := os.ReadFile(text)
	require.NoError(t, err)
	assert.Equal(t, make([]byte, 100_000), content, "Open does not change a file that it refuses")
}

func TestOpenNamesFormatVersions(t *testing.T) {
	t.Parallel()
	for _, version := range []uint64{formatVersion - 1, formatVersion + 1} {
		path := filepath.Join(t.TempDir(), "queue.db")
		s, err := Open(path, Options{})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		updateFile(t, path, func(tx *bolt.Tx) error {
			return tx.Bucket(bucketMeta).Put(keyVersion, binary.BigEndian.AppendUint64(nil, version))
		})
		_, err = Open(path, Options{})
		require.ErrorIs(t, err, driver.ErrVersion)
		assert.ErrorContains(t, err, fmt.Sprintf("the file has format version %d, this program reads and writes version %d", version, formatVersion))
	}
}

func TestOpenRefusesReadOnlyFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "queue.db")
	s, err := Open(path, Options{FileMode: 0o640})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Zero(t, info.Mode().Perm()&^0o640)
	require.NoError(t, os.Chmod(path, 0o400))
	if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
		_ = f.Close()
		t.Skip("this user may write to all files")
	}
	_, err = Open(path, Options{})
	require.ErrorIs(t, err, fs.ErrPermission)
}

func TestEmptyFileIsNew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "queue.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	assert.Equal(t, driver.DefaultPartitions, openQueue(t, openStore(t, path, Options{}), 0).Partitions())
}

func TestCallsOfClosedStoreReturnErrClosed(t *testing.T) {
	t.Parallel()
	s, err := Open(filepath.Join(t.TempDir(), "queue.db"), Options{})
	require.NoError(t, err)
	q := openQueue(t, s, 1)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_, err = s.Open(t.Context(), driver.Config{Queue: "orders", DeadLimit: 1, DeadBytes: 1 << 30, DeadAge: 1})
	require.ErrorIs(t, err, driver.ErrClosed)
	_, err = q.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "a"}}})
	require.ErrorIs(t, err, driver.ErrClosed)
	_, err = q.Count(t.Context(), 0)
	require.ErrorIs(t, err, driver.ErrClosed)
}

func TestCallsOfFailedStoreReturnErrBroken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "queue.db")
	s, err := Open(path, Options{})
	require.NoError(t, err)
	q := openQueue(t, s, 1)
	put(t, q, "a", 0)
	s.fail(fs.ErrInvalid)
	_, err = q.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "b"}}})
	require.ErrorIs(t, err, driver.ErrBroken)
	require.ErrorIs(t, err, fs.ErrInvalid)
	assert.ErrorContains(t, err, path)
	_, err = q.Claim(t.Context(), driver.Claim{Max: 1})
	require.ErrorIs(t, err, driver.ErrBroken)
	require.NoError(t, s.Close())
	q = openQueue(t, openStore(t, path, Options{}), 1)
	assert.Equal(t, int64(1), count(t, q).Scheduled)
}

// updateFile changes a file without the store.
func updateFile(t *testing.T, path string, f func(tx *bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(f))
	require.NoError(t, db.Close())
}

// bbolt returns these errors if a file cannot grow. Acknowledgements continue after ErrFull, but
// not after ErrBroken.
func TestFileTooLargeIsFull(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		berrors.ErrMaxSizeReached,
		fmt.Errorf("mmap allocate error: %s", "mmap too large"),
		fmt.Errorf("file resize error: %s", syscall.EFBIG),
		&fs.PathError{Op: "write", Path: "queue.db", Err: syscall.ENOSPC},
	} {
		require.ErrorIs(t, classify(err), driver.ErrFull)
	}
	require.ErrorIs(t, classify(syscall.EIO), driver.ErrBroken)
}

// The file is truncated before the last page in use. Open fails before a call reads the missing
// page.
func TestOpenFindsTruncation(t *testing.T) {
	t.Parallel()
	content := damageFile(t)
	size, pages := livePages(t, content)
	path := filepath.Join(t.TempDir(), "queue.db")
	require.NoError(t, os.WriteFile(path, content[:size*pages[len(pages)-1]], 0o600))
	_, err := Open(path, Options{})
	require.ErrorIs(t, err, ErrCorrupt)
}

// Opening a file without its list of free pages would read the whole file.
func TestOpenRefusesFileWithoutFreelist(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "queue.db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true})
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket([]byte("users"))
		return err
	}))
	require.NoError(t, db.Close())
	_, err = Open(path, Options{})
	require.ErrorIs(t, err, driver.ErrVersion)
	assert.ErrorContains(t, err, "without a list of free pages")
}
