package pgstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/pgtest"
	"github.com/timingwheel-go/timingwheel/durable/pgstore"
)

// TestClaimReadsTheClockOnce has a clock that advances by a second whenever it is read. A message
// that becomes due, and a lease that ends, between two statements of a claim is either taken or
// reported as the next.
func TestClaimReadsTheClockOnce(t *testing.T) {
	t.Parallel()
	schema := fmt.Sprintf("test%d", schemas.Add(1))
	pool := newPool(t, pgtest.Shared(t).URL(), schema)
	options := pgstore.Options{Schema: schema}
	require.NoError(t, pgstore.Migrate(t.Context(), pool, options))
	t.Cleanup(func() { exec(t, pool, schema, `DROP SCHEMA {schema} CASCADE`) })
	exec(t, pool, schema, `
CREATE SEQUENCE {schema}.ticks START 2000000000;
CREATE FUNCTION {schema}.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
	$$SELECT pg_catalog.to_timestamp(pg_catalog.nextval('`+schema+`.ticks'))$$`)
	b, err := newStore(t, pool, options).Open(t.Context(), driver.Config{Queue: "q", Partitions: 1})
	require.NoError(t, err)
	claim := func() driver.Claimed {
		t.Helper()
		claimed, err := b.Claim(t.Context(), driver.Claim{Max: 1, Begin: 1, MaxBytes: 1, Visibility: time.Second})
		require.NoError(t, err)
		return claimed
	}
	for ahead := range 8 {
		id := fmt.Sprint(ahead)
		_, err := b.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: id, Delay: time.Duration(ahead) * time.Second, MaxAttempts: 1}}})
		require.NoError(t, err)
		record, err := b.Get(t.Context(), 0, id)
		require.NoError(t, err)
		claimed := claim()
		for ; len(claimed.Records) == 0; claimed = claim() {
			require.Equal(t, record.Due, claimed.Next)
			require.True(t, claimed.Now.Before(record.Due.Time()))
		}
		require.False(t, claimed.Now.Before(record.Due.Time()))
		_, err = b.Apply(t.Context(), driver.Batch{Op: driver.OpExtend, Changes: []driver.Change{{
			ID: id, Token: claimed.Records[0].Token, Delay: time.Duration(ahead) * time.Second,
		}}})
		require.NoError(t, err)
		record, err = b.Get(t.Context(), 0, id)
		require.NoError(t, err)
		claimed = claim()
		for ; len(claimed.Records) == 0; claimed = claim() {
			require.Equal(t, record.LeaseEnd, claimed.Lease)
		}
		require.False(t, claimed.Now.Before(record.LeaseEnd.Time()))
		_, err = b.Apply(t.Context(), driver.Batch{Op: driver.OpAck, Changes: []driver.Change{{ID: id, Token: claimed.Records[0].Token}}})
		require.NoError(t, err)
	}
}

// TestCountsWithoutConsumers enqueues messages that no consumer claims. The rows with the changes
// of the counts do not add up.
func TestCountsWithoutConsumers(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, pgstore.Options{})
	q, err := durable.Open(t.Context(), d.store, durable.Options{Queue: "idle", Partitions: 1})
	require.NoError(t, err)
	defer q.Close()
	const n = 300
	for range n {
		_, err := q.Enqueue(t.Context(), durable.Message{Delay: time.Hour})
		require.NoError(t, err)
	}
	var rows int
	require.NoError(t, d.pool.QueryRow(t.Context(), fmt.Sprintf(`SELECT count(*) FROM %q.counts`, d.schema)).Scan(&rows))
	assert.Less(t, rows, 256)
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, n, stats.Scheduled)
	assert.EqualValues(t, n, stats.Enqueued)
}
