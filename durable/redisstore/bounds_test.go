package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// batches puts and claims n full batches.
func batches(t *testing.T, q driver.Backend, n int, visibility time.Duration) []driver.Record {
	t.Helper()
	var records []driver.Record
	for i := range n {
		put(t, q, items(fmt.Sprint(i), driver.MaxBatch, 1, 0))
		c, err := q.Claim(t.Context(), driver.Claim{Horizon: time.Second, Max: driver.MaxBatch, MaxBytes: 1 << 20, Visibility: visibility})
		require.NoError(t, err)
		records = append(records, c.Records...)
	}
	require.Len(t, records, n*driver.MaxBatch)
	return records
}

// More leases have expired than one call may end.
func TestClaimEndsLeasesInSteps(t *testing.T) {
	t.Parallel()
	q := openQueue(t, newClient(t, redistest.Start(t, redistest.Options{}).Addr()), redisstore.Options{})
	records := batches(t, q, 3, time.Hour)
	for i := 0; i < len(records); i += driver.MaxBatch {
		apply(t, q, driver.OpExtend, changes(records[i:i+driver.MaxBatch])...) // to now
	}
	time.Sleep(5 * time.Millisecond)
	for left := int64(2 * driver.MaxBatch); left >= 0; left -= driver.MaxBatch {
		_, err := q.Claim(t.Context(), driver.Claim{})
		require.NoError(t, err)
		counts, err := q.Count(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, left, counts.InFlight)
	}
}

// commands returns how many commands a server has executed, including commands of scripts.
func commands(t *testing.T, client *redis.Client) (n int) {
	t.Helper()
	for _, line := range strings.Split(client.Info(t.Context(), "commandstats").Val(), "\r\n") {
		var calls int
		if _, numbers, ok := strings.Cut(line, ":"); ok {
			_, _ = fmt.Sscanf(numbers, "calls=%d", &calls)
		}
		n += calls
	}
	return n
}

// The answer to a claim is lost while more and more messages are in flight, whose leases end at the
// same time. The script of the next claim returns the messages with as many commands as before.
func TestLostAnswerIsFoundInConstantTime(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	at := driver.InstantOf(time.Now().Add(time.Hour))
	c := driver.Claim{Horizon: 2 * time.Hour, Max: 200, MaxBytes: 1 << 20, Visibility: time.Hour, Hold: time.Hour, Consumer: "c"}
	var used []int
	for i := range 100 {
		all := items(fmt.Sprintf("%05d-", i), 200, 1, 0)
		for j := range all {
			all[j].At = at
		}
		put(t, q, all)
		lost, err := q.Claim(t.Context(), c)
		require.NoError(t, err)
		require.Len(t, lost.Records, 200)
		before := commands(t, client)
		got, err := q.Claim(t.Context(), c)
		require.NoError(t, err)
		used = append(used, commands(t, client)-before)
		require.Len(t, got.Records, 200)
		for j := range got.Records {
			lost.Records[j].LeaseEnd = got.Records[j].LeaseEnd // renewed
		}
		require.Equal(t, lost.Records, got.Records)
		c.Seen = lost.Records[199].Token
	}
	assert.Equal(t, used[0], used[99], "commands for 200 and for 20,000 leases")
}

// The limit of dead letters is lowered by more than one call may remove. Nothing is left of the
// removed messages.
func TestDeadLettersAreTrimmedInSteps(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	records := batches(t, q, 3, time.Hour)
	for i := 0; i < len(records); i += driver.MaxBatch {
		apply(t, q, driver.OpBegin, changes(records[i:i+driver.MaxBatch])...)
		apply(t, q, driver.OpBury, changes(records[i:i+driver.MaxBatch])...)
	}
	c := config()
	c.DeadLimit, c.Update = driver.MaxBatch, true
	strict, err := newStore(t, client, redisstore.Options{}).Open(t.Context(), c)
	require.NoError(t, err)
	for _, want := range []int64{2, 1, 1} {
		_, err := strict.Claim(t.Context(), driver.Claim{})
		require.NoError(t, err)
		counts, err := q.Count(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, want*driver.MaxBatch, counts.Dead)
	}
	report, err := q.(driver.Auditor).Audit(t.Context(), 0, false)
	require.NoError(t, err)
	assert.Equal(t, driver.AuditReport{Records: driver.MaxBatch}, report)
}

// A claim leases nothing and ends a lease. The message becomes the earliest, so there is a hint.
func TestClaimSendsHintIfAnEndedLeaseIsEarliest(t *testing.T) {
	t.Parallel()
	q := openQueue(t, newClient(t, redistest.Start(t, redistest.Options{}).Addr()), redisstore.Options{})
	records := batches(t, q, 1, time.Hour)
	hints, err := q.Watch(t.Context())
	require.NoError(t, err)
	apply(t, q, driver.OpExtend, changes(records)...)
	time.Sleep(5 * time.Millisecond)
	_, err = q.Claim(t.Context(), driver.Claim{})
	require.NoError(t, err)
	assert.Contains(t, hintsOf(t, hints, 1), 0)
}

// The messages do not fit into one page. A page ends with the message that brings it to 4 MiB.
func TestPageEndsAtItsLimitOfBytes(t *testing.T) {
	t.Parallel()
	q := openQueue(t, newClient(t, redistest.Start(t, redistest.Options{}).Addr()), redisstore.Options{})
	put(t, q, items("a", 7, 1<<20, time.Hour))
	first, cursor, err := q.List(t.Context(), 0, driver.StateScheduled, "", 7)
	require.NoError(t, err)
	assert.Less(t, len(first), 7)
	rest, cursor, err := q.List(t.Context(), 0, driver.StateScheduled, cursor, 7)
	require.NoError(t, err)
	assert.Empty(t, cursor)
	assert.Equal(t, 7, len(first)+len(rest))
}

// The server would search a hash that is encoded as a list linearly for each id.
func TestSmallHashesAreEncodedAsTables(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	put(t, q, items("a", 1, 1, 0))
	require.Len(t, claim(t, q, 1), 1)
	for _, key := range []string{"tw:{orders:0}:m", "tw:{orders:0}:s"} {
		assert.Equal(t, "hashtable", client.ObjectEncoding(t.Context(), key).Val(), key)
	}
}
