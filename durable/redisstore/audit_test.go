package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// mixed returns a queue with 300 messages in each state: scheduled, rescheduled, leased, firing,
// dead.
func mixed(t *testing.T, client *redis.Client, prefix string) driver.Backend {
	t.Helper()
	q := openQueue(t, client, redisstore.Options{Prefix: prefix})
	const n = 100
	for i := range 3 {
		batch := func(name string, delay time.Duration) []driver.PutItem {
			return items(fmt.Sprintf("%s%d", name, i), n, 100, delay)
		}
		put(t, q, batch("dead", 0))
		c := changes(claim(t, q, n))
		apply(t, q, driver.OpBegin, c...)
		apply(t, q, driver.OpBury, c...)
		put(t, q, batch("firing", 0))
		apply(t, q, driver.OpBegin, changes(claim(t, q, n))...)
		put(t, q, batch("leased", 0))
		claim(t, q, n)
		put(t, q, batch("scheduled", time.Hour))
		put(t, q, batch("rescheduled", time.Minute))
		var later []driver.Change
		for _, m := range batch("rescheduled", 0) {
			later = append(later, driver.Change{ID: m.ID, Delay: 2 * time.Hour})
		}
		apply(t, q, driver.OpReschedule, later...)
	}
	return q
}

// mixedMessages is the number of messages in the partition of mixed.
const mixedMessages = 1500

// Each key of a partition is deleted. The audit repairs what can be repaired.
func TestAuditRepairsDeletedKeys(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	for key, want := range map[string]driver.AuditReport{
		"m": {Strays: 1500 + 1200, Wrong: 1},        // members of sets, and states
		"s": {Records: mixedMessages, Orphans: 300}, // dead letters that no call could replay
		"d": {Records: mixedMessages, Orphans: 600},
		"l": {Records: mixedMessages, Orphans: 600},
		"x": {Records: mixedMessages, Orphans: 300, Wrong: 1},
		"c": {Records: mixedMessages, Wrong: 1},
		"p": {Records: mixedMessages},
	} {
		auditAfterLoss(t, client, key, want)
	}
}

func auditAfterLoss(t *testing.T, client *redis.Client, key string, want driver.AuditReport) {
	t.Helper()
	q := mixed(t, client, "audit"+key)
	before, err := q.Count(t.Context(), 0)
	require.NoError(t, err)
	rescheduled := items("rescheduled0", 1, 0, 0)[0].ID
	due, err := q.Get(t.Context(), 0, rescheduled)
	require.NoError(t, err)
	require.NoError(t, client.Del(t.Context(), "audit"+key+":{orders:0}:"+key).Err())

	audit := func(repair bool, what string) {
		t.Helper()
		report, err := q.(driver.Auditor).Audit(t.Context(), 0, repair)
		require.NoError(t, err)
		assert.Equal(t, want, report, "%s, %s", key, what)
	}
	audit(false, "not repaired")
	if key == "x" {
		want.Wrong = 0 // the sum is correct when the dead letters are back
	}
	want.Repaired = want.Orphans + want.Strays + want.Wrong
	audit(true, "repaired")
	want = driver.AuditReport{Records: want.Records}
	audit(true, "after the repair")

	after, err := q.Count(t.Context(), 0)
	require.NoError(t, err)
	if key == "m" {
		assert.Zero(t, after.Scheduled+after.InFlight+after.Dead)
		return
	}
	assert.Equal(t, int64(mixedMessages), after.Scheduled+after.InFlight+after.Dead, key)
	assert.Equal(t, before.Dead, after.Dead, "%s: dead letters stay dead", key)
	assert.Positive(t, after.DeadBytes)
	assert.Equal(t, before.DeadBytes, after.DeadBytes, key)
	r, err := q.Get(t.Context(), 0, rescheduled)
	require.NoError(t, err)
	assert.Equal(t, due.Due, r.Due, "%s: the time to which the message was rescheduled", key)
	if key == "s" {
		dead, _, err := q.List(t.Context(), 0, driver.StateDead, "", 3)
		require.NoError(t, err)
		assert.Equal(t, driver.StateDead, dead[0].State)
		assert.Positive(t, dead[0].Died)
		apply(t, q, driver.OpReplay, changes(dead[:1])...)
		apply(t, q, driver.OpPurge, changes(dead[1:])...)
	}
	if key == "l" {
		assert.Equal(t, int64(600), after.InFlight, "what was in flight has a new lease")
		require.Empty(t, claim(t, q, driver.MaxBatch))
	}
}

// The states are lost, and messages that were dead are put or rescheduled. The limits of dead
// letters must not remove them.
func TestLimitOfDeadLettersKeepsScheduledMessages(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	put(t, q, items("a", 2, 10, 0))
	dead := changes(claim(t, q, 2))
	apply(t, q, driver.OpBegin, dead...)
	apply(t, q, driver.OpBury, dead...)
	require.NoError(t, client.Del(t.Context(), "tw:{orders:0}:s").Err())

	statuses, err := q.Put(t.Context(), driver.Put{Replace: true, Items: items("a", 1, 20, time.Hour)})
	require.NoError(t, err)
	require.Equal(t, []driver.Status{driver.StatusDone}, statuses)
	apply(t, q, driver.OpReschedule, driver.Change{ID: dead[1].ID, Delay: time.Hour})

	c := config()
	c.DeadAge, c.Update = time.Millisecond, true
	strict, err := newStore(t, client, redisstore.Options{}).Open(t.Context(), c)
	require.NoError(t, err)
	time.Sleep(5 * time.Millisecond) // the dead letters are too old now
	_, err = strict.Claim(t.Context(), driver.Claim{})
	require.NoError(t, err)
	for _, m := range dead {
		_, err := q.Get(t.Context(), 0, m.ID)
		require.NoError(t, err, m.ID)
	}
	counts, err := q.Count(t.Context(), 0)
	require.NoError(t, err)
	assert.Equal(t, int64(2), counts.Scheduled)
	assert.Zero(t, counts.Dead)
}

// The records are deleted. Claims continue, and remove the members without records.
func TestClaimRemovesMembersWithoutRecords(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	put(t, q, items("a", 200, 10, 0))
	require.NoError(t, client.Del(t.Context(), "tw:{orders:0}:m").Err())
	put(t, q, items("b", 3, 10, 0))
	var got []driver.Record
	for range 3 {
		got = append(got, claim(t, q, 101)...)
	}
	require.Len(t, got, 3)
	counts, err := q.Count(t.Context(), 0)
	require.NoError(t, err)
	assert.Zero(t, counts.Scheduled)
}

// The states are deleted. The due time to which a message was rescheduled is still in the set, and
// applies.
func TestRescheduledMessageKeepsItsTimeWithoutItsState(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	put(t, q, items("a", 1, 10, 0))
	id := items("a", 1, 0, 0)[0].ID
	apply(t, q, driver.OpReschedule, driver.Change{ID: id, Delay: time.Hour})
	want, err := q.Get(t.Context(), 0, id)
	require.NoError(t, err)
	require.NoError(t, client.Del(t.Context(), "tw:{orders:0}:s").Err())

	c, err := q.Claim(t.Context(), driver.Claim{Horizon: 2 * time.Hour, Max: 1, MaxBytes: 1 << 20, Visibility: time.Hour})
	require.NoError(t, err)
	require.Len(t, c.Records, 1)
	assert.Equal(t, want.Due, c.Records[0].Due)
	outcomes, err := q.Apply(t.Context(), driver.Batch{Op: driver.OpBegin, Visibility: time.Hour, Changes: changes(c.Records)})
	require.NoError(t, err)
	assert.Equal(t, driver.StatusEarly, outcomes[0].Status)
}

// The counters are deleted, and with them the size of the largest body.
func TestLostCountersKeepClaimsSmall(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	put(t, q, items("large", 20, 10_000, 0))
	require.NoError(t, client.Del(t.Context(), "tw:{orders:0}:c").Err())
	put(t, q, items("small", 1, 1, time.Minute))
	small := driver.Claim{Max: 20, MaxBytes: 25_000, Horizon: time.Second, Visibility: time.Hour}
	c, err := q.Claim(t.Context(), small)
	require.NoError(t, err)
	assert.Less(t, len(c.Records), 3, "two of 10,000 bytes fit into 25,000")
}

// Messages with the same due time are listed. The last message of each page is removed before the
// next page is read.
func TestListContinuesAfterItsCursorWasRemoved(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	at := driver.InstantOf(time.Now().Add(time.Hour))
	want := make([]string, 0, 100)
	batch := make([]driver.PutItem, 0, 100)
	for i := range 100 {
		id := fmt.Sprintf("%c%02d", "Aaz~é"[i/20], i) // é is two bytes
		want = append(want, id)
		batch = append(batch, driver.PutItem{ID: id, At: at, Body: make([]byte, 10)})
	}
	put(t, q, batch)
	var got []string
	cursor := ""
	for range 100 {
		records, next, err := q.List(t.Context(), 0, driver.StateScheduled, cursor, 7)
		require.NoError(t, err)
		for _, r := range records {
			got = append(got, r.ID)
			assert.Equal(t, at, r.Due)
		}
		if cursor = next; cursor == "" {
			break
		}
		apply(t, q, driver.OpCancel, driver.Change{ID: records[len(records)-1].ID})
	}
	assert.Equal(t, want, got)
	for _, cursor := range []string{"x", "1", "-1:a", "99999999999999999999:a", "1e3:a"} {
		_, _, err := q.List(t.Context(), 0, driver.StateScheduled, cursor, 7)
		require.ErrorIs(t, err, driver.ErrInvalid, cursor)
	}
}
