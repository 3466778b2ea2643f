package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// TestDamagedRecords has somebody write into the records. The others of the partition are claimed as ever.
func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	for name, damaged := range map[string]string{"empty": "", "short": "\x01", "version": "\x02" + strings.Repeat("\x00", 30)} {
		q := openQueue(t, client, redisstore.Options{Prefix: name})
		batch := items("a", 3, 10, 0)
		put(t, q, batch)
		require.NoError(t, client.HSet(t.Context(), name+":{orders:0}:m", batch[1].ID, damaged).Err())

		records := claim(t, q, 10)
		require.Len(t, records, 2, name)
		apply(t, q, driver.OpBegin, changes(records)...)
		_, err := q.Get(t.Context(), 0, batch[1].ID)
		require.Error(t, err, name)
		report, err := q.Audit(t.Context(), 0, true)
		require.NoError(t, err, name)
		assert.Equal(t, driver.AuditReport{Records: 3, Orphans: 1}, report, name)
	}
}

// TestDamagedStates has somebody write into the states of messages whose leases are over.
func TestDamagedStates(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	batch := items("a", 3, 10, 0)
	put(t, q, batch)
	briefly := driver.Claim{Max: 10, MaxBytes: 1 << 20, Horizon: time.Second, Visibility: time.Millisecond}
	c, err := q.Claim(t.Context(), briefly)
	require.NoError(t, err)
	require.Len(t, c.Records, 3)
	for i, damaged := range []string{"", "L\x00", "F" + strings.Repeat("\x00", 20)} {
		require.NoError(t, client.HSet(t.Context(), "tw:{orders:0}:s", batch[i].ID, damaged).Err())
	}
	time.Sleep(20 * time.Millisecond) // the leases end
	require.Len(t, claim(t, q, 10), 3, "the records are whole")
}
