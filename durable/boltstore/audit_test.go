package boltstore

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// The records of a scheduled, a leased and a dead message are removed from the file. The repair
// also removes them from the counts.
func TestAuditCorrectsCountsOfLostRecords(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true})
	q := openQueue(t, s, 1)
	bury(t, q, "dead", "body")
	bury(t, q, "another", "two")
	put(t, q, "leased", 0)
	claim(t, q, 1)
	put(t, q, "scheduled", time.Hour)
	require.NoError(t, s.update(func(tx *bolt.Tx) error {
		b, err := q.(*backend).queue.buckets(tx, 0)
		return errors.Join(err, b.records.Delete([]byte("dead")), b.records.Delete([]byte("leased")), b.records.Delete([]byte("scheduled")))
	}))
	assert.EqualValues(t, 7, count(t, q).DeadBytes)
	for _, repair := range []bool{false, true} {
		report, err := q.(driver.Auditor).Audit(t.Context(), 0, repair)
		require.NoError(t, err)
		assert.EqualValues(t, 1, report.Wrong)
	}
	n := count(t, q)
	assert.Equal(t, [5]int64{0, 0, 0, 1, 3}, [5]int64{n.Scheduled, n.Due, n.InFlight, n.Dead, n.DeadBytes})
	report, err := q.(driver.Auditor).Audit(t.Context(), 0, false)
	require.NoError(t, err)
	assert.Equal(t, driver.AuditReport{Records: 1}, report)
}

// The file has a wrong number of bytes of dead letters.
func TestAuditCorrectsDeadBytes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "queue.db")
	s := openStore(t, path, Options{NoSync: true})
	q := openQueue(t, s, 1)
	bury(t, q, "dead", "body")
	require.NoError(t, s.update(func(tx *bolt.Tx) error {
		b, err := q.(*backend).queue.buckets(tx, 0)
		st, failed := decodeState(b.root.Get(keyState))
		st.deadBytes = 0
		return errors.Join(err, failed, b.root.Put(keyState, st.encode()))
	}))
	require.NoError(t, s.Close())
	q = openQueue(t, openStore(t, path, Options{NoSync: true}), 1)
	n := count(t, q)
	assert.Equal(t, [2]int64{1, 0}, [2]int64{n.Dead, n.DeadBytes})
	report, err := q.(driver.Auditor).Audit(t.Context(), 0, true)
	require.NoError(t, err)
	assert.Equal(t, driver.AuditReport{Records: 1, Wrong: 1, Repaired: 1}, report)
	assert.EqualValues(t, 4, count(t, q).DeadBytes)
}

// bury adds a dead letter.
func bury(t *testing.T, q driver.Backend, id, body string) {
	t.Helper()
	_, err := q.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: id, Body: []byte(body), MaxAttempts: 1}}})
	require.NoError(t, err)
	c := changesOf(claim(t, q, 1))
	done(t, q, driver.OpBegin, c...)
	done(t, q, driver.OpBury, c...)
}

// A lease has neither a message nor a key.
func TestAuditRemovesLeaseWithoutMessage(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true})
	q := openQueue(t, s, 1)
	put(t, q, "leased", 0)
	r := claim(t, q, 1)[0]
	require.NoError(t, s.update(func(tx *bolt.Tx) error {
		b, err := q.(*backend).queue.buckets(tx, 0)
		return errors.Join(err, b.records.Delete([]byte(r.ID)), b.index.Delete(key{r.Due, r.ID}.bytes()))
	}))
	for _, want := range []driver.AuditReport{{Strays: 1, Repaired: 1}, {}} {
		report, err := q.(driver.Auditor).Audit(t.Context(), 0, true)
		require.NoError(t, err)
		assert.Equal(t, want, report)
	}
	assert.Zero(t, count(t, q).InFlight)
}

// A leased message has a second key. The repair removes the key and keeps the lease.
func TestAuditKeepsLeaseOfMessageWithStrayKey(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true})
	q := openQueue(t, s, 1)
	put(t, q, "leased", 0)
	c := changesOf(claim(t, q, 1))
	require.NoError(t, s.update(func(tx *bolt.Tx) error {
		b, err := q.(*backend).queue.buckets(tx, 0)
		return errors.Join(err, b.index.Put(key{5, "leased"}.bytes(), empty))
	}))
	report, err := q.(driver.Auditor).Audit(t.Context(), 0, true)
	require.NoError(t, err)
	assert.Equal(t, driver.AuditReport{Records: 1, Strays: 1, Repaired: 1}, report)
	done(t, q, driver.OpBegin, c...)
}

// The first keys of the index belong to records of a newer version and to no record. Claims skip
// them and count each of them once.
func TestClaimSkipsAndCountsUnreadableAndLost(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true})
	q := openQueue(t, s, 1)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		put(t, q, id, 0)
	}
	require.NoError(t, s.update(func(tx *bolt.Tx) error {
		b, err := q.(*backend).queue.buckets(tx, 0)
		newer := append([]byte{recordVersion + 1}, b.records.Get([]byte("a"))[1:]...)
		return errors.Join(err, b.records.Put([]byte("a"), newer), b.records.Put([]byte("b"), newer), b.records.Delete([]byte("c")))
	}))
	for i := range 2 {
		c, err := q.Claim(t.Context(), driver.Claim{Horizon: time.Second, Max: 1, MaxBytes: 1000, Visibility: time.Hour})
		require.NoError(t, err)
		assert.Equal(t, []string{[]string{"d", "e"}[i]}, idsOf(c.Records))
		assert.Equal(t, 2, c.Unreadable)
	}
	n := count(t, q)
	assert.Equal(t, [4]int64{0, 0, 2, 2}, [4]int64{n.Scheduled, n.Due, n.InFlight, n.Unreadable})
	report, err := q.(driver.Auditor).Audit(t.Context(), 0, true)
	require.NoError(t, err)
	assert.Equal(t, driver.AuditReport{Records: 4, Strays: 1, Unreadable: 2, Repaired: 1}, report)
	n = count(t, q)
	assert.Equal(t, [2]int64{0, 2}, [2]int64{n.Scheduled, n.Unreadable})
}
