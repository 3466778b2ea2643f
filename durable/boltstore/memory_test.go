package boltstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// The clock steps forwards. Messages whose due time was skipped are due, and leases whose end was
// skipped have ended.
func TestClockForwardsMakesDueAndEndsLeases(t *testing.T) {
	t.Parallel()
	clock := newClock()
	q := openQueue(t, openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{Now: clock.Now}), 1)
	put(t, q, "firing", 0)
	begun := changesOf(claim(t, q, 1))
	done(t, q, driver.OpBegin, begun...)
	put(t, q, "later", 5*time.Hour)
	put(t, q, "last", 20*time.Hour)
	assert.Empty(t, claim(t, q, 10))
	clock.Advance(10 * time.Hour)
	records := claim(t, q, 10)
	assert.Equal(t, []string{"firing", "later"}, idsOf(records))
	assert.Equal(t, 1, records[0].Crashes)
	assert.Equal(t, driver.StatusLeaseLost, apply(t, q, driver.OpAck, begun...)[0].Status)
}

// The clock is set back. No message is claimed or begins before the clock shows its due time, and
// leases last longer.
func TestClockBackwardsDelaysAndProlongsLeases(t *testing.T) {
	t.Parallel()
	clock := newClock()
	q := openQueue(t, openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{Now: clock.Now}), 1)
	put(t, q, "prefetched", 0)
	put(t, q, "waiting", time.Minute)
	prefetched := changesOf(claim(t, q, 1))
	clock.Advance(-time.Hour)
	assert.Equal(t, driver.StatusEarly, apply(t, q, driver.OpBegin, prefetched...)[0].Status)
	assert.Empty(t, claim(t, q, 10))
	assert.Zero(t, count(t, q).Due)
	put(t, q, "new", 0)
	assert.Equal(t, []string{"new"}, idsOf(claim(t, q, 10)), "a new message is due on the new time")
	done(t, q, driver.OpCancel, driver.Change{ID: "new"})
	clock.Advance(time.Hour - time.Millisecond)
	assert.Equal(t, driver.StatusEarly, apply(t, q, driver.OpBegin, prefetched...)[0].Status)
	clock.Advance(time.Millisecond)
	done(t, q, driver.OpBegin, prefetched...)
	assert.Empty(t, claim(t, q, 10))
	clock.Advance(time.Minute + time.Millisecond) // due times are rounded up
	assert.Equal(t, []string{"waiting"}, idsOf(claim(t, q, 10)))
}

// The clock is in the middle of a millisecond. A delay of one millisecond ends no earlier than one
// millisecond later.
func TestDelaysAreRoundedUp(t *testing.T) {
	t.Parallel()
	clock := newClock() // …678.9 ms
	q := openQueue(t, openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{Now: clock.Now}), 1)
	put(t, q, "a", time.Millisecond)
	assert.False(t, get(t, q, "a").Due.Time().Before(clock.Now().Add(time.Millisecond)))
	clock.Advance(time.Millisecond)
	assert.Empty(t, claim(t, q, 1))
	clock.Advance(time.Millisecond)
	assert.Len(t, claim(t, q, 1), 1)
}

// Messages are put in a random order, many of them before messages that are claimed already, and
// more than maxFree.
func TestClaimsStayInOrderBeforeFront(t *testing.T) {
	t.Parallel()
	for _, kept := range []int{1, 7, 1000} {
		clock := newClock()
		s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true, Now: clock.Now, maxFree: kept})
		q := openQueue(t, s, 1)
		p := q.(*backend).queue.partitions[0]
		random := rand.New(rand.NewPCG(7, uint64(kept)))
		due, leased := make(map[string]driver.Instant), make(map[string]driver.Change)
		for i := range 400 {
			id := fmt.Sprintf("m%03d", i)
			put(t, q, id, time.Duration(random.IntN(1000))*time.Second)
			due[id] = get(t, q, id).Due
			if i%10 != 9 {
				continue
			}
			c, err := q.Claim(t.Context(), driver.Claim{Horizon: time.Hour, Max: 6, MaxBytes: 1 << 20, Visibility: time.Hour})
			require.NoError(t, err)
			require.Equal(t, earliest(due, leased, 6), idsOf(c.Records), "limit %d, after %d messages", kept, i)
			for _, c := range changesOf(c.Records) {
				leased[c.ID] = c
			}
			release := changesOf(c.Records[:2])
			done(t, q, driver.OpRelease, release...)
			delete(leased, release[0].ID)
			delete(leased, release[1].ID)
			assert.LessOrEqual(t, p.free.Len(), kept)
			assert.Len(t, p.freed, p.free.Len())
			next := earliest(due, leased, 1)[0]
			require.Equal(t, due[next], count(t, q).NextDue)
		}
	}
}

// earliest returns the ids of the first n messages that are not leased.
func earliest(due map[string]driver.Instant, leased map[string]driver.Change, n int) []string {
	var keys []key
	for id, at := range due {
		if _, ok := leased[id]; !ok {
			keys = append(keys, key{at, id})
		}
	}
	sort.Slice(keys, func(i, j int) bool { return keys[i].before(keys[j]) })
	ids := []string{}
	for _, k := range keys[:n] {
		ids = append(ids, k.id)
	}
	return ids
}

// Due messages are counted in small steps while the clock is moved in both directions.
func TestDueCountFollowsClock(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true, Now: clock.Now})
	q := openQueue(t, s, 1)
	b := q.(*backend)
	random := rand.New(rand.NewPCG(8, 9))
	start := clock.Now()
	for i := range 150 {
		put(t, q, fmt.Sprint("m", i), time.Duration(random.IntN(60))*time.Second)
		if i%4 == 3 {
			done(t, q, driver.OpCancel, driver.Change{ID: fmt.Sprint("m", i-random.IntN(3))})
		}
		clock.Advance(start.Add(time.Duration(random.IntN(60)) * time.Second).Sub(clock.Now()))
		now := local.Floor(clock.Now())
		require.NoError(t, b.view(t.Context(), 0, func(p *partition, parts buckets) error {
			for !p.due.advance(parts.index, now, 3) {
				require.Less(t, p.due.until, now)
			}
			return nil
		}))
		c := count(t, q)
		records, _, err := q.List(t.Context(), 0, driver.StateScheduled, "", 1000)
		require.NoError(t, err)
		want := sort.Search(len(records), func(i int) bool { return records[i].Due > now })
		require.Equal(t, [2]int{want, len(records)}, [2]int{int(c.Due), int(c.Scheduled)}, "step %d", i)
	}
}

// The file is truncated while the store is open. Calls return errors, and the process does not
// crash.
func TestFileCutOffWhileOpenIsCorrupt(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("other systems report the access in other ways, or forbid to truncate")
	}
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true})
	q := openQueue(t, s, 1)
	fill(t, q, 2000)
	require.NoError(t, os.Truncate(s.path, 8192))
	_, err := q.Claim(t.Context(), driver.Claim{Max: 10, MaxBytes: 1000})
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = q.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "new"}}})
	require.Error(t, err)
}

// The file is truncated within its meta pages while the store is open. All calls and Close return.
func TestCallsReturnIfFileIsEmptiedWhileOpen(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("this system forbids to truncate a file that is mapped")
	}
	for _, size := range []int64{0, 1, int64(os.Getpagesize())} {
		s, err := Open(filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true, reserve: smallReserve})
		require.NoError(t, err)
		q := openQueue(t, s, 1)
		put(t, q, "a", 0)
		require.NoError(t, os.Truncate(s.path, size))
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			for range 2 {
				_, err := q.Claim(t.Context(), driver.Claim{Max: 10, MaxBytes: 1000})
				assert.ErrorIs(t, err, ErrCorrupt)
				_, err = q.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "new"}}})
				assert.ErrorIs(t, err, ErrCorrupt)
			}
			_, err := s.Open(t.Context(), driver.Config{Queue: "another", DeadLimit: 1, DeadBytes: 1 << 30, DeadAge: time.Hour})
			assert.ErrorIs(t, err, ErrCorrupt)
			assert.NoError(t, s.Close())
		}()
		select {
		case <-returned:
		case <-time.After(time.Minute):
			require.Fail(t, "a call, or Close, does not return")
		}
	}
}

// There are more messages than one transaction visits, and most of them have the same due time.
func TestCountDueInSeveralSteps(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true})
	q := openQueue(t, s, 1)
	const n = 2*countStep + 1000
	now := driver.InstantOf(time.Now())
	require.NoError(t, s.update(func(tx *bolt.Tx) error { // the index alone, as CountDue reads nothing else
		b, err := q.(*backend).queue.buckets(tx, 0)
		for i := 0; i < n && err == nil; i++ {
			// Three quarters of the messages have the same time.
			due := now.Add(time.Duration(1+max(0, i-3*n/4)) * time.Hour)
			err = b.index.Put(key{due, fmt.Sprintf("%06d", i)}.bytes(), empty)
		}
		return err
	}))
	within := []time.Duration{time.Minute, 90 * time.Minute, 11*time.Hour + 30*time.Minute, 1<<63 - 1}
	counts, err := q.CountDue(t.Context(), 0, within)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 3*n/4 + 1, 3*n/4 + 11, n}, counts)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = q.CountDue(ctx, 0, within)
	require.ErrorIs(t, err, context.Canceled)
}
