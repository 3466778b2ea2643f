package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// openCopy opens a file with the content of a backup.
func openCopy(t *testing.T, content []byte) *Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "copy.db")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return openStore(t, path, Options{NoSync: true})
}

// Backups run while messages are put, delivered and acknowledged. Each backup opens and is sound.
// It has the messages that were confirmed before it began and not acknowledged before it ended.
func TestBackupUnderLoadHasAllConfirmedMessages(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true})
	q := openQueue(t, s, 1)
	var mu sync.Mutex
	confirmed, ending := map[string]bool{}, map[string]bool{}
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for g := range 4 {
		load.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprint(g, "-", i)
				put(t, q, id, time.Hour)
				mu.Lock()
				confirmed[id] = true
				gone := fmt.Sprint(g, "-", i-3)
				ending[gone] = i%2 == 0
				mu.Unlock()
				if i%2 == 0 {
					apply(t, q, driver.OpCancel, driver.Change{ID: gone})
				}
			}
		})
	}
	for range 5 {
		mu.Lock()
		before := make(map[string]bool, len(confirmed))
		for id := range confirmed {
			before[id] = true
		}
		mu.Unlock()
		var copied bytes.Buffer
		n, err := s.Backup(ctx, &copied)
		require.NoError(t, err)
		require.Equal(t, int64(copied.Len()), n)
		mu.Lock()
		for id, ends := range ending {
			if ends {
				delete(before, id)
			}
		}
		mu.Unlock()
		restored := openQueue(t, openCopy(t, copied.Bytes()), 0)
		for id := range before {
			_, err := restored.Get(ctx, 0, id)
			require.NoError(t, err)
		}
		report, err := restored.(driver.Auditor).Audit(ctx, 0, false)
		require.NoError(t, err)
		require.Zero(t, report.Orphans+report.Strays)
	}
	cancel()
	load.Wait()
}

// A backup ends if its writer fails, its context ends, or the store is closed.
func TestBackupEndsWithContextCloseOrWriter(t *testing.T) {
	t.Parallel()
	s, err := Open(filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true})
	require.NoError(t, err)
	q := openQueue(t, s, 1)
	put(t, q, "a", 0)
	_, err = s.Backup(t.Context(), nil)
	require.ErrorIs(t, err, driver.ErrInvalid)
	broken := errors.New("the tape is full")
	_, err = s.Backup(t.Context(), writerFunc(func([]byte) (int, error) { return 0, broken }))
	require.ErrorIs(t, err, broken)
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err = s.Backup(ctx, writerFunc(func(p []byte) (int, error) {
		cancel(broken)
		put(t, q, "b", 0) // commits do not wait
		return len(p), nil
	}))
	require.ErrorIs(t, err, broken)
	var closed atomic.Bool
	returned := make(chan error)
	_, err = s.Backup(t.Context(), writerFunc(func(p []byte) (int, error) {
		if !closed.Swap(true) {
			go func() { returned <- s.Close() }()
			for !s.closed.Load() {
				time.Sleep(time.Millisecond)
			}
		}
		return len(p), nil
	}))
	require.ErrorIs(t, err, driver.ErrClosed)
	require.NoError(t, <-returned, "Close waits for the backup")
	_, err = s.Backup(t.Context(), &bytes.Buffer{})
	require.ErrorIs(t, err, driver.ErrClosed)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// The copy of a file with many free pages is small and has the same content.
func TestCompactKeepsAllAndFreesSpace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "queue.db"), filepath.Join(dir, "small.db")
	s, err := Open(src, Options{NoSync: true, reserve: 1, FileMode: 0o640})
	require.NoError(t, err)
	q := openQueue(t, s, 2)
	fill(t, q, testscale.Size(20_000))
	drain(t, q)
	put(t, q, "left", 0)
	done(t, q, driver.OpBegin, changesOf(claim(t, q, 1))...)
	put(t, q, "later", time.Hour)
	before := count(t, q)
	require.ErrorIs(t, Compact(src, dst), driver.ErrLocked)
	require.NoError(t, s.Close())
	require.NoError(t, Compact(src, dst))
	large, err := os.Stat(src)
	require.NoError(t, err)
	small, err := os.Stat(dst)
	require.NoError(t, err)
	assert.Less(t, small.Size(), large.Size()/10)
	assert.Equal(t, large.Mode(), small.Mode())
	require.ErrorIs(t, Compact(src, dst), fs.ErrExist)
	for _, path := range []string{src, dst} {
		q = openQueue(t, openStore(t, path, Options{NoSync: true}), 0)
		after := count(t, q)
		assert.Equal(t, before.Enqueued, after.Enqueued)
		assert.Equal(t, before.Acked, after.Acked)
		assert.Equal(t, int64(2), after.Scheduled)
		assert.Equal(t, 1, get(t, q, "left").Crashes)
		assert.Equal(t, []string{"left"}, idsOf(claim(t, q, 10)))
	}
	matches, err := filepath.Glob(filepath.Join(dir, "*.tmp"))
	require.NoError(t, err)
	assert.Empty(t, matches)
}

func TestCompactRejectsBadPathsAndFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text, damaged := filepath.Join(dir, "text"), filepath.Join(dir, "damaged")
	require.NoError(t, os.WriteFile(text, make([]byte, 100_000), 0o600))
	content := damageFile(t)
	page, n := pageOf(t, content, kindBranch, 2)
	clear(page)
	require.NoError(t, os.WriteFile(damaged, content, 0o600))
	to := filepath.Join(dir, "new")
	require.ErrorIs(t, Compact(filepath.Join(dir, "missing"), to), driver.ErrInvalid)
	require.ErrorIs(t, Compact(text, to), driver.ErrVersion)
	err := Compact(damaged, to)
	require.ErrorIs(t, err, ErrCorrupt)
	assert.ErrorContains(t, err, fmt.Sprintf("page %d:", n))
	require.ErrorIs(t, Compact(damaged, filepath.Join(dir, "missing", "new")), driver.ErrInvalid)
	_, err = os.Stat(to)
	require.ErrorIs(t, err, fs.ErrNotExist)
}
