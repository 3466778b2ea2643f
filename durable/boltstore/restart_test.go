package boltstore

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// Messages that were claimed before a restart are scheduled again immediately.
func TestRestartFreesClaimedMessages(t *testing.T) {
	t.Parallel()
	path, clock := filepath.Join(t.TempDir(), "queue.db"), newClock()
	s, err := Open(path, Options{Now: clock.Now})
	require.NoError(t, err)
	q := openQueue(t, s, 1)
	for i := range 4 {
		put(t, q, fmt.Sprint("m", i), 0)
	}
	leased := changesOf(claim(t, q, 4))
	done(t, q, driver.OpBegin, leased[:2]...)
	done(t, q, driver.OpAck, leased[0])
	require.NoError(t, s.Close())

	q = openQueue(t, openStore(t, path, Options{Now: clock.Now}), 0)
	c := count(t, q)
	assert.Equal(t, [3]int64{3, 3, 0}, [3]int64{c.Scheduled, c.Due, c.InFlight})
	for _, o := range apply(t, q, driver.OpBegin, leased[1:]...) {
		assert.Equal(t, driver.StatusLeaseLost, o.Status)
	}
	assert.Equal(t, driver.StatusNotFound, apply(t, q, driver.OpAck, leased[0])[0].Status)
	again := claim(t, q, 10)
	require.Equal(t, []string{"m1", "m2", "m3"}, idsOf(again))
	for _, r := range again {
		assert.Greater(t, r.Token, leased[3].Token)
	}
}

// The process crashes repeatedly while a message is firing. The message is dead after the second
// crash.
func TestMessageIsBuriedAfterMaxCrashes(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{Now: clock.Now})
	q := openQueue(t, s, 1)
	put(t, q, "poison", 0)
	put(t, q, "good", 0)
	put(t, q, "leased", 0)
	for crashes := range 2 {
		records := claim(t, q, 10)
		require.Equal(t, []string{"good", "leased", "poison"}, idsOf(records))
		assert.Equal(t, [3]int{0, 0, crashes}, [3]int{records[0].Crashes, records[1].Crashes, records[2].Crashes})
		done(t, q, driver.OpBegin, changesOf([]driver.Record{records[0], records[2]})...)
		done(t, q, driver.OpRelease, changesOf(records[:1])...)
		s = openStore(t, crash(t, s), Options{Now: clock.Now})
		q = openQueue(t, s, 0)
		assert.Equal(t, crashes+1, get(t, q, "poison").Crashes)
		assert.Equal(t, driver.StateScheduled, get(t, q, "poison").State, "only a claim has MaxCrashes")
	}
	assert.Equal(t, []string{"good", "leased"}, idsOf(claim(t, q, 10)))
	assert.Equal(t, driver.StateDead, get(t, q, "poison").State)
	c := count(t, q)
	assert.Equal(t, [2]uint64{2, 1}, [2]uint64{c.Crashed, c.Buried})
	assert.Equal(t, [3]int64{0, 2, 1}, [3]int64{c.Scheduled, c.InFlight, c.Dead})
}

// More messages had begun than one transaction counts.
func TestAllCrashesCountInSeveralTransactions(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "queue.db")
	s, err := Open(path, Options{NoSync: true, reserve: smallReserve})
	require.NoError(t, err)
	q := openQueue(t, s, 1)
	const messages = crashBytes/crashCost + 500
	fill(t, q, messages)
	for n := 0; n < messages; {
		c := changesOf(claim(t, q, driver.MaxBatch))
		done(t, q, driver.OpBegin, c...)
		n += len(c)
	}
	require.NoError(t, s.Close())
	q = openQueue(t, openStore(t, path, Options{NoSync: true}), 0)
	assert.Equal(t, uint64(messages), count(t, q).Crashed)
	for _, r := range claim(t, q, driver.MaxBatch) {
		assert.Equal(t, 1, r.Crashes)
	}
}

// Deliveries end in each way before a crash. The crash counts for none of them.
func TestEndedDeliveryCountsNoCrash(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{})
	q := openQueue(t, s, 1)
	for _, id := range []string{"acked", "buried", "released", "retried"} {
		put(t, q, id, 0)
	}
	changes := changesOf(claim(t, q, 4))
	done(t, q, driver.OpBegin, changes...)
	crash(t, s) // so that the begun messages are written
	done(t, q, driver.OpAck, changes[0])
	done(t, q, driver.OpBury, changes[1])
	done(t, q, driver.OpRelease, changes[2])
	done(t, q, driver.OpRetry, changes[3])
	q = openQueue(t, openStore(t, crash(t, s), Options{}), 0)
	assert.Equal(t, []string{"released", "retried"}, idsOf(claim(t, q, 10)))
	assert.Zero(t, count(t, q).Crashed)
	report, err := q.(driver.Auditor).Audit(t.Context(), 0, false)
	require.NoError(t, err)
	assert.Equal(t, driver.AuditReport{Records: 3}, report)
}

// A message has begun, and its group has a put of the same id. The put is a duplicate and writes
// nothing. The begun message must still be written before the crash.
func TestCrashCountsIfGroupOfBegunMessageWritesNothing(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{})
	q := openQueue(t, s, 2)
	put(t, q, "poison", 0)
	changes := changesOf(claim(t, q, 1))
	var wg sync.WaitGroup
	send := func(p driver.Put) {
		wg.Go(func() {
			_, err := q.Put(t.Context(), p)
			assert.NoError(t, err)
		})
	}
	s.writing.Lock() // the first group waits for this lock, and the others wait for the first
	send(driver.Put{Partition: 1, Items: []driver.PutItem{{ID: "first"}}})
	waitForGroup(t, q, 1)
	send(driver.Put{Items: []driver.PutItem{{ID: "poison"}}})
	waitForWaiting(t, s, 1)
	done(t, q, driver.OpBegin, changes...)
	s.writing.Unlock()
	wg.Wait()
	q = openQueue(t, openStore(t, crash(t, s), Options{}), 0)
	assert.Equal(t, 1, get(t, q, "poison").Crashes)
}

// The clock is set back by a year at each restart.
func TestTokensRiseAlthoughClockIsSetBack(t *testing.T) {
	t.Parallel()
	path, clock := filepath.Join(t.TempDir(), "queue.db"), newClock()
	last := uint64(0)
	for range 5 {
		s, err := Open(path, Options{Now: clock.Now, reserve: smallReserve})
		require.NoError(t, err)
		q := openQueue(t, s, 1)
		for range 3 {
			put(t, q, "a", 0)
			c := changesOf(claim(t, q, 1))
			require.Len(t, c, 1)
			require.Greater(t, c[0].Token, last)
			last = c[0].Token
			done(t, q, driver.OpCancel, c...)
		}
		require.NoError(t, s.Close())
		clock.Advance(-365 * 24 * time.Hour)
	}
}

// Opening a file of many messages reads only a few pages. The test does not sync, and uses the
// fastest of several tries, as the machine may pause during any of them.
func TestReopenReadsFewPages(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "queue.db")
	s, err := Open(path, Options{NoSync: true, reserve: smallReserve})
	require.NoError(t, err)
	q := openQueue(t, s, 4)
	messages := testscale.Size(100_000)
	fill(t, q, messages)
	quickest := time.Hour
	for range 3 {
		require.NoError(t, s.Close())
		start := time.Now()
		s = openStore(t, path, Options{NoSync: true})
		q = openQueue(t, s, 0)
		assert.Len(t, claim(t, q, 256), 256)
		quickest = min(quickest, time.Since(start))
	}
	assert.Less(t, quickest, 5*time.Second)
	total := int64(0)
	for p := range q.Partitions() {
		c, err := q.Count(t.Context(), p)
		require.NoError(t, err)
		total += c.Scheduled + c.InFlight
		assert.Equal(t, c.Scheduled, c.Due)
	}
	assert.EqualValues(t, messages, total)
}

// A queue with claimed and firing messages is paused, and the process crashes. The queue is paused
// when the file is opened again.
func TestPauseSurvivesCrash(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{Now: clock.Now})
	q := openQueue(t, s, 2)
	put(t, q, "begun", 0)
	put(t, q, "leased", 0)
	records := claim(t, q, 2)
	done(t, q, driver.OpBegin, changesOf(records)[:1]...)
	require.NoError(t, q.Pause(t.Context(), driver.Pause{Paused: true}))
	s = openStore(t, crash(t, s), Options{Now: clock.Now})
	q = openQueue(t, s, 0)
	require.True(t, count(t, q).Paused)
	other, err := q.Count(t.Context(), 1)
	require.NoError(t, err)
	require.False(t, other.Paused)
	assert.Empty(t, claim(t, q, 2))
	require.NoError(t, q.Pause(t.Context(), driver.Pause{}))
	q = openQueue(t, openStore(t, crash(t, s), Options{Now: clock.Now}), 0)
	require.False(t, count(t, q).Paused)
	assert.Len(t, claim(t, q, 2), 2)
}
