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

// TestAuditCounts removes records behind the back of the store, of a scheduled message, a leased one and a dead one: the repair takes
// them out of the counts, too.
func TestAuditCounts(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true})
	q := openQueue(t, s, 1)
	put(t, q, "dead", 0)
	c := changesOf(claim(t, q, 1))
	done(t, q, driver.OpBegin, c...)
	done(t, q, driver.OpBury, c...)
	put(t, q, "leased", 0)
	claim(t, q, 1)
	put(t, q, "scheduled", time.Hour)
	require.NoError(t, s.update(func(tx *bolt.Tx) error {
		b, err := q.(*backend).queue.buckets(tx, 0)
		return errors.Join(err, b.records.Delete([]byte("dead")), b.records.Delete([]byte("leased")), b.records.Delete([]byte("scheduled")))
	}))
	_, err := q.Audit(t.Context(), 0, true)
	require.NoError(t, err)
	n := count(t, q)
	assert.Equal(t, [4]int64{}, [4]int64{n.Scheduled, n.Due, n.InFlight, n.Dead})
	report, err := q.Audit(t.Context(), 0, false)
	require.NoError(t, err)
	assert.Equal(t, driver.AuditReport{}, report)
}

// TestAuditFindsLeases has a lease whose message and key are gone.
func TestAuditFindsLeases(t *testing.T) {
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
		report, err := q.Audit(t.Context(), 0, true)
		require.NoError(t, err)
		assert.Equal(t, want, report)
	}
	assert.Zero(t, count(t, q).InFlight)
}

// TestAuditKeepsLease has a second key of a leased message: that goes, and the lease stays.
func TestAuditKeepsLease(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "queue.db"), Options{NoSync: true})
	q := openQueue(t, s, 1)
	put(t, q, "leased", 0)
	c := changesOf(claim(t, q, 1))
	require.NoError(t, s.update(func(tx *bolt.Tx) error {
		b, err := q.(*backend).queue.buckets(tx, 0)
		return errors.Join(err, b.index.Put(key{5, "leased"}.bytes(), empty))
	}))
	report, err := q.Audit(t.Context(), 0, true)
	require.NoError(t, err)
	assert.Equal(t, driver.AuditReport{Records: 1, Strays: 1, Repaired: 1}, report)
	done(t, q, driver.OpBegin, c...)
}
