package boltstore

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// TestCommitsAreSynced is what all promises stand on: only NoSync leaves out the fsync.
func TestCommitsAreSynced(t *testing.T) {
	t.Parallel()
	for _, noSync := range []bool{false, true} {
		s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: noSync})
		assert.Equal(t, noSync, s.file.db.NoSync)
		assert.False(t, s.file.db.NoGrowSync)
		assert.False(t, s.file.db.NoFreelistSync, "opening would read the whole file")
	}
}

// TestOldDeadLettersGoWithClaims has a dead letter grow old while nothing else dies: the next claim drops it.
func TestOldDeadLettersGoWithClaims(t *testing.T) {
	t.Parallel()
	clock := newClock()
	q := openQueue(t, openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true, Now: clock.Now}), 1)
	put(t, q, "dead", 0)
	put(t, q, "later", 100*time.Hour)
	c := changesOf(claim(t, q, 1))
	done(t, q, driver.OpBegin, c...)
	done(t, q, driver.OpBury, c...)
	clock.Advance(59 * time.Minute)
	claim(t, q, 1)
	assert.Equal(t, int64(1), count(t, q).Dead)
	clock.Advance(2 * time.Minute)
	claim(t, q, 1)
	assert.Zero(t, count(t, q).Dead)
}

// TestTokensBeyondTheirRange claims where the tokens that the file allows are nearly used up: what is given out after a crash is higher.
func TestTokensBeyondTheirRange(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{})
	q := openQueue(t, s, 1)
	fill(t, q, 600)
	p := q.(*backend).queue.partitions[0]
	p.mu.Lock()
	p.token = p.state.tokens - driver.MaxBatch - 10
	p.mu.Unlock()
	last := uint64(0)
	for range 2 {
		records := claim(t, q, driver.MaxBatch)
		require.Len(t, records, driver.MaxBatch)
		last = records[driver.MaxBatch-1].Token
	}
	q = openQueue(t, openStore(t, crash(t, s), Options{}), 0)
	assert.Greater(t, claim(t, q, 1)[0].Token, last)
}

// TestUnknownCommit has a commit fail after its pages can be seen: the store must not go on with a memory that knows nothing of it.
func TestUnknownCommit(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "queue.db")
	s, err := Open(path, Options{})
	require.NoError(t, err)
	q := openQueue(t, s, 1)
	err = s.commits.do(t.Context(), &request{p: q.(*backend).queue.partitions[0], run: func(w *partitionWriter) error {
		w.tx.OnCommit(func() { panic("too late") })
		_, err := w.putOne(&driver.PutItem{ID: "a"}, false)
		return err
	}})
	require.ErrorIs(t, err, driver.ErrBroken)
	_, err = q.Get(t.Context(), 0, "a")
	require.ErrorIs(t, err, driver.ErrBroken)
	_, err = q.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "b"}}})
	require.ErrorIs(t, err, driver.ErrBroken)
	require.NoError(t, s.Close())
	q = openQueue(t, openStore(t, path, Options{}), 0)
	assert.Equal(t, []string{"a"}, idsOf(claim(t, q, 10)), "it has taken place")
}
