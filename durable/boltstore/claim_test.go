package boltstore

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// The context of a claim ends while the claim waits for the commit that buries another message. The
// claim returns the messages that it has leased, as no other consumer can receive them before the
// leases end.
func TestClaimReturnsLeasesIfContextEndsDuringBurial(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{Now: clock.Now})
	q := openQueue(t, s, 1)
	put(t, q, "poison", 0)
	done(t, q, driver.OpBegin, changesOf(claim(t, q, 1))...)
	s = openStore(t, crash(t, s), Options{Now: clock.Now})
	q = openQueue(t, s, 0)
	put(t, q, "good", 0)
	ctx, cancel := context.WithCancel(t.Context())
	s.writing.Lock() // the commit waits here
	type result struct {
		claimed driver.Claimed
		err     error
	}
	results := make(chan result, 1)
	go func() {
		c, err := q.Claim(ctx, driver.Claim{Max: 10, MaxBytes: 1 << 20, Visibility: time.Hour, MaxCrashes: 1})
		results <- result{c, err}
	}()
	waitForGroup(t, q, 0)
	cancel()
	r := <-results
	s.writing.Unlock()
	require.NoError(t, r.err)
	assert.Equal(t, []string{"good"}, idsOf(r.claimed.Records))
}

// A lease ends, and its crash cannot be written. The claim returns a later time for the next one.
func TestClaimOnFullDiskPostponesCrash(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{Now: clock.Now, reserve: 1})
	q := openQueue(t, s, 1)
	items := []driver.PutItem{{ID: "large", Body: make([]byte, 1<<20)}}
	_, err := q.Put(t.Context(), driver.Put{Items: items})
	require.NoError(t, err)
	done(t, q, driver.OpBegin, changesOf(claim(t, q, 1))...)
	clock.Advance(2 * time.Hour)
	s.writing.Lock()
	s.file.db.MaxSize = 1
	s.writing.Unlock()
	c, err := q.Claim(t.Context(), driver.Claim{Max: 10, MaxBytes: 1 << 20, Visibility: time.Hour})
	require.NoError(t, err)
	assert.Empty(t, idsOf(c.Records))
	assert.Greater(t, c.Lease, local.Floor(clock.Now()))
}

// The process crashes after a claim. The crash counts only if the claim has begun the message.
func TestCrashCountsForMessagesBegunByClaim(t *testing.T) {
	t.Parallel()
	for begin, want := range []int{0, 1} {
		s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{})
		q := openQueue(t, s, 1)
		put(t, q, "a", 0)
		c, err := q.Claim(t.Context(), driver.Claim{Max: 1, MaxBytes: 1, Visibility: time.Hour, Begin: begin})
		require.NoError(t, err)
		require.Len(t, c.Records, 1)
		q = openQueue(t, openStore(t, crash(t, s), Options{}), 0)
		r, err := q.Get(t.Context(), 0, "a")
		require.NoError(t, err)
		assert.Equal(t, want, r.Crashes)
	}
}

// A dead letter reaches the age limit and no other message dies. The next claim drops it.
func TestClaimDropsOldDeadLetters(t *testing.T) {
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

// Claims use up the tokens that the file allows. The tokens after a crash are higher.
func TestTokensRiseAfterCrashAtEndOfRange(t *testing.T) {
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
