package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// One record is damaged. The other messages of the partition can be claimed.
func TestDamagedRecordDoesNotBlockItsPartition(t *testing.T) {
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
		report, err := q.(driver.Auditor).Audit(t.Context(), 0, true)
		require.NoError(t, err, name)
		assert.Equal(t, driver.AuditReport{Records: 3, Unreadable: 1}, report, name)
	}
}

// The states of messages with expired leases are damaged. The messages can be claimed.
func TestMessageWithDamagedStateIsClaimedAgain(t *testing.T) {
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
	require.Len(t, claim(t, q, 10), 3, "the records are not damaged")
}

func lost(t testing.TB, b driver.Backend) uint64 {
	t.Helper()
	n, err := b.(driver.Auditor).Lost(t.Context(), 0)
	require.NoError(t, err)
	return n
}

func counts(t testing.TB, b driver.Backend) driver.Counts {
	t.Helper()
	c, err := b.Count(t.Context(), 0)
	require.NoError(t, err)
	return c
}

// setVersion writes the version of another program into the records of messages.
func setVersion(t testing.TB, client *redis.Client, batch []driver.PutItem, version byte) {
	t.Helper()
	pipe := client.Pipeline()
	for i := range batch {
		record, err := client.HGet(t.Context(), "tw:{orders:0}:m", batch[i].ID).Result()
		require.NoError(t, err)
		pipe.HSet(t.Context(), "tw:{orders:0}:m", batch[i].ID, string(rune(version))+record[1:])
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
}

// Messages of a newer version come before all others; most are scheduled, and the lease of one
// ends. These messages stay and are counted, other messages are claimed, and the newer version
// claims all of them.
func TestUnreadableMessagesAreSetAside(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	newer, leased := items("a", 600, 10, 0), items("b", 2, 10, 0)
	put(t, q, leased)
	_, err := q.Claim(t.Context(), driver.Claim{Max: 10, MaxBytes: 1 << 20, Visibility: time.Millisecond})
	require.NoError(t, err)
	for i := 0; i < len(newer); i += 200 {
		put(t, q, newer[i:i+200])
	}
	setVersion(t, client, newer, 9)
	setVersion(t, client, leased[:1], 9)
	require.NoError(t, client.HDel(t.Context(), "tw:{orders:0}:s", leased[0].ID).Err())
	put(t, q, items("c", 3, 10, 0))
	time.Sleep(5 * time.Millisecond) // the leases end

	var got []driver.Record
	for range 8 {
		got = append(got, claim(t, q, 100)...)
	}
	require.Len(t, got, 4)
	c := counts(t, q)
	assert.Equal(t, [4]int64{0, 0, 4, 601}, [4]int64{c.Scheduled, c.Due, c.InFlight, c.Unreadable})
	assert.Zero(t, lost(t, q))
	assert.Zero(t, c.NextDue)
	for _, repair := range []bool{true, false} {
		report, err := q.(driver.Auditor).Audit(t.Context(), 0, repair)
		require.NoError(t, err)
		assert.Equal(t, driver.AuditReport{Records: 605, Unreadable: 601}, report)
	}
	listed, next, err := q.List(t.Context(), 0, driver.StateScheduled, "", 10)
	require.NoError(t, err)
	assert.Empty(t, listed)
	assert.Empty(t, next)
	apply(t, q, driver.OpCancel, driver.Change{ID: newer[0].ID})
	apply(t, q, driver.OpAck, changes(func() []driver.Record { apply(t, q, driver.OpBegin, changes(got)...); return got }())...)

	// The scripts of a newer version have a higher number than the scripts that have set the
	// messages aside.
	setVersion(t, client, newer[1:], 1)
	setVersion(t, client, leased[:1], 1)
	require.NoError(t, client.HSet(t.Context(), "tw:{orders:0}:c", "aside", 0).Err())
	got = nil
	for range 8 {
		got = append(got, claim(t, q, 100)...)
	}
	require.Len(t, got, 600)
	for _, r := range got {
		assert.LessOrEqual(t, r.Due, c.Now)
		assert.Positive(t, r.Due)
	}
	c = counts(t, q)
	assert.Equal(t, [3]int64{0, 600, 0}, [3]int64{c.Scheduled, c.InFlight, c.Unreadable})
	assert.Zero(t, client.HExists(t.Context(), "tw:{orders:0}:c", "aside").Val())
}

// An older version has set a message aside. Get reads it before a claim of a version that can read
// it puts it back.
func TestGetReadsMessageThatIsSetAside(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	batch := items("a", 1, 10, 0)
	put(t, q, batch)
	want, err := q.Get(t.Context(), 0, batch[0].ID)
	require.NoError(t, err)
	setVersion(t, client, batch, 2)
	require.Empty(t, claim(t, q, 1))
	setVersion(t, client, batch, 1)
	require.EqualValues(t, 1, counts(t, q).Unreadable)
	got, err := q.Get(t.Context(), 0, batch[0].ID)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

// Records of scheduled, leased and firing messages are deleted, and then all records, as by a
// server that evicts keys. The messages are counted as lost immediately, and only once.
func TestLostRecordsAreCounted(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	batch := items("a", 10, 10, 0)
	put(t, q, batch)
	c, err := q.Claim(t.Context(), driver.Claim{Max: 4, MaxBytes: 1 << 20, Visibility: time.Millisecond, Begin: 2})
	require.NoError(t, err)
	require.Len(t, c.Records, 4)
	for _, i := range []int{0, 2, 4, 5} {
		require.NoError(t, client.HDel(t.Context(), "tw:{orders:0}:m", batch[i].ID).Err())
	}
	require.NoError(t, client.HDel(t.Context(), "tw:{orders:0}:s", batch[0].ID).Err())
	assert.EqualValues(t, 4, lost(t, q))
	time.Sleep(5 * time.Millisecond)
	c, err = q.Claim(t.Context(), driver.Claim{Max: 10, MaxBytes: 1 << 20, Visibility: time.Hour})
	require.NoError(t, err)
	assert.Len(t, c.Records, 6)
	assert.EqualValues(t, 4, lost(t, q))
	report, err := q.(driver.Auditor).Audit(t.Context(), 0, false)
	require.NoError(t, err)
	assert.Equal(t, driver.AuditReport{Records: 6}, report)

	put(t, q, items("b", 5, 10, 0))
	require.NoError(t, client.Del(t.Context(), "tw:{orders:0}:m").Err())
	assert.EqualValues(t, 15, lost(t, q))
	_, err = q.(driver.Auditor).Audit(t.Context(), 0, true)
	require.NoError(t, err)
	n := counts(t, q)
	assert.EqualValues(t, 15, lost(t, q))
	assert.Equal(t, [2]int64{}, [2]int64{n.Scheduled, n.InFlight})
}

// A partition begins with thousands of unreadable messages and some without records. The consumer
// delivers the other messages, reports the unreadable ones, and does not call the server repeatedly
// without waiting.
func TestConsumerDeliversAmongUnreadableMessages(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	var unreadable, others atomic.Int64
	q, err := durable.Open(t.Context(), newStore(t, client, redisstore.Options{}), durable.Options{
		Queue: "orders", Partitions: 1, OnError: func(err error) {
			if assert.ErrorIs(t, err, durable.ErrVersion) {
				unreadable.Add(1)
			} else {
				others.Add(1)
			}
		},
	})
	require.NoError(t, err)
	t.Cleanup(q.Close)
	b, err := newStore(t, client, redisstore.Options{}).Open(t.Context(), driver.Config{Queue: "orders", Partitions: 1, DeadLimit: 1, DeadBytes: 1, DeadAge: time.Hour})
	require.NoError(t, err)
	const n = 10_000
	for i := 0; i < n; i += 200 {
		batch := items(fmt.Sprintf("%05d", i), 200, 10, 0)
		put(t, b, batch)
		setVersion(t, client, batch, 9)
		if i == 0 {
			require.NoError(t, client.HDel(t.Context(), "tw:{orders:0}:m", batch[0].ID, batch[1].ID).Err())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got, ended := make(chan string, 10), make(chan error, 1)
	go func() {
		ended <- q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error { got <- d.ID; return nil }, durable.ConsumerOptions{})
	}()
	deliver := func(id string) {
		t.Helper()
		_, err := q.Enqueue(t.Context(), durable.Message{ID: id})
		require.NoError(t, err)
		select {
		case d := <-got:
			assert.Equal(t, id, d)
		case <-time.After(time.Minute):
			require.Fail(t, "unreadable messages block the partition")
		}
	}
	deliver("first")
	require.Eventually(t, func() bool {
		s, err := q.Stats(t.Context())
		return err == nil && s.Unreadable == n-2 && s.Lost == 2 && s.Scheduled == 0
	}, time.Minute, 10*time.Millisecond)
	calls := func() (n int) {
		for _, line := range strings.Split(client.Info(t.Context(), "commandstats").Val(), "\n") {
			var calls int
			if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%d", &calls); err == nil {
				n = calls
			}
		}
		return n
	}
	deliver("second")
	before := calls()
	assert.Greater(t, before, n/driver.MaxBatch)
	time.Sleep(2 * time.Second)
	assert.Less(t, calls()-before, 40, "scripts in two seconds")
	deliver("third")
	cancel()
	require.NoError(t, <-ended)
	assert.EqualValues(t, 1, unreadable.Load(), "reports are rate-limited")
	assert.Zero(t, others.Load())
}

// A settlement or a crash sets Postponed to 0. Other transitions keep it.
func TestSettlementsEndPostponements(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	const states = "tw:{orders:0}:s"
	for op, want := range map[driver.Op]int{driver.OpRelease: 7, driver.OpRetry: 0, driver.OpBury: 0, driver.OpReplay: 0, driver.OpExtend: 0} {
		m := items(op.String(), 1, 1, 0)
		m[0].Key = "k"
		put(t, q, m)
		state := client.HGet(t.Context(), states, m[0].ID).Val()
		require.NoError(t, client.HSet(t.Context(), states, m[0].ID, state[:len(state)-2]+"\x07k").Err())
		c, err := q.Claim(t.Context(), driver.Claim{Max: 1, MaxBytes: 1, Visibility: time.Hour, Begin: 1})
		require.NoError(t, err)
		assert.Equal(t, 7, c.Records[0].Postponed)
		change := driver.Change{ID: m[0].ID, Token: c.Records[0].Token, Delay: time.Hour, Reason: "failed"}
		switch op {
		case driver.OpExtend: // to a lease that ends now
			change.Delay = 0
		case driver.OpReplay:
			apply(t, q, driver.OpBury, change)
			state := client.HGet(t.Context(), states, m[0].ID).Val()
			require.NoError(t, client.HSet(t.Context(), states, m[0].ID, state[:len(state)-8]+"\x07kfailed").Err())
		}
		apply(t, q, op, change)
		time.Sleep(2 * time.Millisecond)
		_, err = q.Claim(t.Context(), driver.Claim{})
		require.NoError(t, err)
		r, err := q.Get(t.Context(), 0, m[0].ID)
		require.NoError(t, err)
		assert.Equal(t, want, r.Postponed, m[0].ID)
		assert.Equal(t, "k", r.Key, m[0].ID)
		if r.State != driver.StateDead {
			apply(t, q, driver.OpReschedule, driver.Change{ID: m[0].ID, Delay: time.Hour})
		}
	}
}
