package memstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

func openOne(t *testing.T, now func() time.Time, limits driver.Config) (*backend, *partition) {
	t.Helper()
	s := New(Options{Now: now})
	t.Cleanup(func() { _ = s.Close() })
	b, err := s.Open(t.Context(), limits)
	require.NoError(t, err)
	return b.(*backend), b.(*backend).queue.partitions[0]
}

func oneConfig() driver.Config {
	return driver.Config{Queue: "q", Partitions: 1, DeadLimit: 10, DeadBytes: 1 << 30,
		DeadAge: time.Hour}
}

// An audit finds and repairs every kind of fault that it checks for.
func TestAuditFindsAndRepairsEachFault(t *testing.T) {
	t.Parallel()
	b, p := openOne(t, nil, oneConfig())
	var put driver.Put
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		put.Items = append(put.Items, driver.PutItem{ID: id, Delay: time.Hour})
	}
	_, err := b.Put(t.Context(), put)
	require.NoError(t, err)

	p.scheduled.remove(p.entries["a"])            // in no set
	p.entries["b"].State = driver.StateFiring     // in the set of another state
	p.entries["c"].Due++                          // with another key
	delete(p.entries, "d")                        // without a record
	p.entries["e"].State = driver.StateDead       // dead, but in the set of scheduled messages
	p.entries["e"].Died = local.Floor(time.Now()) //
	p.leased.add(&entry{})                        // never had a record
	p.deadBytes = 7                               // there is no dead letter
	want := driver.AuditReport{Records: 5, Orphans: 4, Strays: 2, Wrong: 1}
	got, err := b.Audit(t.Context(), 0, false)
	require.NoError(t, err)
	assert.Equal(t, want, got)

	want.Repaired = 7
	got, err = b.Audit(t.Context(), 0, true)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	got, err = b.Audit(t.Context(), 0, false)
	require.NoError(t, err)
	assert.Equal(t, driver.AuditReport{Records: 5}, got)

	c, err := b.Count(t.Context(), 0)
	require.NoError(t, err)
	assert.Equal(t, [3]int64{4, 0, 1}, [3]int64{c.Scheduled, c.InFlight, c.Dead})
	claimed, err := b.Claim(t.Context(),
		driver.Claim{Horizon: 2 * time.Hour, Max: 10, MaxBytes: 1, Visibility: time.Hour})
	require.NoError(t, err)
	assert.Len(t, claimed.Records, 4)
}
