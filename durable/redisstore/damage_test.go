package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	n, _, err := b.(driver.Auditor).Lost(t.Context(), 0)
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
	assert.EqualValues(t, 16, lost(t, q), "the key counts too")
	assert.Equal(t, [2]int64{}, [2]int64{n.Scheduled, n.InFlight})
}

// damage returns what Lost says about lost keys, or "". The error wraps ErrUnsafe if unsafe is set.
func damage(t testing.TB, b driver.Backend, unsafe bool) string {
	t.Helper()
	_, damage, err := b.(driver.Auditor).Lost(t.Context(), 0)
	require.NoError(t, err)
	if damage == nil {
		return ""
	}
	require.Equal(t, unsafe, errors.Is(damage, driver.ErrUnsafe))
	return damage.Error()
}

func audit(t testing.TB, b driver.Backend, repair bool) driver.AuditReport {
	t.Helper()
	report, err := b.(driver.Auditor).Audit(t.Context(), 0, repair)
	require.NoError(t, err)
	return report
}

// keysOf returns the names of keys of partition 0 by their last letters.
func keysOf(prefix, kinds string) []string {
	names := make([]string, len(kinds))
	for i := range kinds {
		names[i] = prefix + ":{orders:0}:" + kinds[i:i+1]
	}
	return names
}

// Keys of a partition are deleted, as by a server that evicts keys, and a message is put or not
// before the next claim of one of two consumers. The claim says that something was lost, no message
// whose record is left is lost or delivered twice, Lost has risen, and the keys are named until an
// audit has repaired the partition. With AllowEviction this is no error of the store.
func TestLostKeysAreMendedAndNamedUntilAnAudit(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	for i, kinds := range []string{"d", "s", "l", "x", "c", "m", "dl", "sl", "dsl", "msdlxc", "d+", "m+", "x+", "c+", "msdlxc+"} {
		o := redisstore.Options{Prefix: fmt.Sprint("p", i), AllowEviction: i%2 == 1}
		q, other := openQueue(t, client, o), openQueue(t, client, o)
		put(t, q, items("a", 200, 10, time.Hour))
		put(t, q, items("b", 3, 10, 0))
		firing := changes(claim(t, q, 1))
		apply(t, q, driver.OpBegin, firing...)
		require.Empty(t, damage(t, other, true))
		kinds, early := strings.CutSuffix(kinds, "+")
		names := keysOf(o.Prefix, kinds)
		require.NoError(t, client.Del(t.Context(), names...).Err())
		if early {
			put(t, q, items("c", 1, 10, 0))
		}
		for first, b := range []driver.Backend{q, other, q} {
			c, err := b.Claim(t.Context(), driver.Claim{})
			require.NoError(t, err, kinds)
			require.Equal(t, first == 0, c.Lost, "%s: once", kinds)
		}
		assert.GreaterOrEqual(t, lost(t, other), uint64(len(kinds)), kinds)
		text := damage(t, other, !o.AllowEviction)
		for _, name := range names {
			require.Contains(t, text, name)
		}
		if !strings.Contains(kinds, "m") {
			c := counts(t, q)
			assert.EqualValues(t, 203, c.Scheduled+c.InFlight-map[bool]int64{true: 1}[early], kinds)
			for _, r := range claim(t, other, 100) {
				assert.NotEqual(t, firing[0].ID, r.ID, "%s: is being delivered", kinds)
			}
		}
		audit(t, q, true)
		require.Empty(t, damage(t, other, true), kinds)
		assert.GreaterOrEqual(t, lost(t, q), uint64(len(kinds)), "the number stays")
		report := audit(t, q, false)
		assert.Zero(t, report.Orphans+report.Strays+report.Wrong, kinds)
	}
}

// A later loss does not hide an earlier one, and both count.
func TestLostKeysAddUp(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	var texts []string
	for i, kinds := range []string{"dl", "x", "x"} {
		time.Sleep(2 * time.Millisecond) // the times differ
		require.NoError(t, client.Del(t.Context(), keysOf("tw", kinds)...).Err())
		claim(t, q, 1)
		texts = append(texts, damage(t, q, true))
		for _, name := range keysOf("tw", "dlx"[:2+min(i, 1)]) {
			require.Equal(t, 1, strings.Count(texts[i], name), "%s in %q", name, texts[i])
		}
	}
	assert.NotEqual(t, texts[1], texts[2], "the same key was lost again, and is reported again")
	assert.EqualValues(t, 4, lost(t, q))
}

// The set of leases is lost while a message is being delivered, another waits in a consumer, and
// the answer to a claim is lost. The deliveries continue, and the claim is answered.
func TestLostLeasesAreRenewed(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	put(t, q, items("a", 4, 10, 0))
	request := driver.Claim{Max: 2, MaxBytes: 1 << 20, Visibility: time.Hour, Consumer: "c", Begin: 1}
	first, err := q.Claim(t.Context(), request)
	require.NoError(t, err)
	require.Len(t, first.Records, 2)
	request.Consumer = "d"
	unanswered, err := q.Claim(t.Context(), request)
	require.NoError(t, err)
	require.Len(t, unanswered.Records, 2)
	require.NoError(t, client.Del(t.Context(), keysOf("tw", "dl")...).Err())

	now := driver.InstantOf(time.Now())
	again, err := q.Claim(t.Context(), request)
	require.NoError(t, err)
	require.True(t, again.Lost)
	require.Len(t, again.Records, 2)
	for i, r := range again.Records {
		assert.Equal(t, unanswered.Records[i].Token, r.Token)
	}
	require.Empty(t, claim(t, q, 10), "all messages have a lease")
	for _, r := range first.Records {
		found, err := q.Get(t.Context(), 0, r.ID)
		require.NoError(t, err)
		assert.Equal(t, r.State, found.State)
		assert.GreaterOrEqual(t, found.LeaseEnd, now.Add(59*time.Minute), "the lease of the claim that found the loss")
	}
	running := changes(first.Records)
	apply(t, q, driver.OpBegin, running[1])
	apply(t, q, driver.OpExtend, driver.Change{ID: running[0].ID, Token: running[0].Token, Delay: time.Hour})
	apply(t, q, driver.OpAck, running...)

	put(t, q, items("b", 1, 10, 0))
	held := claim(t, q, 1)
	require.NoError(t, client.Del(t.Context(), keysOf("tw", "l")...).Err())
	assert.EqualValues(t, 3, audit(t, q, true).Repaired) // before any claim
	require.Empty(t, claim(t, q, 10))
	apply(t, q, driver.OpBegin, changes(held)...)
}

// stepHook counts the steps of a search for messages, and calls between before each.
type stepHook struct {
	steps   atomic.Int64
	between func(step int64)
}

func (h *stepHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *stepHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 && args[1] == redisstore.AuditRecordsHash {
			h.between(h.steps.Add(1))
		}
		return next(ctx, cmd)
	}
}
func (h *stepHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// The due times of many messages are lost, and the consumer that puts the messages back is
// cancelled in the middle. Until another has continued, where the first one ended, no claim leaves
// messages out. Other calls run between the steps.
func TestInterruptedMendContinues(t *testing.T) {
	t.Parallel()
	const n = 100 * 200
	addr := redistest.Start(t, redistest.Options{}).Addr()
	plain := newClient(t, addr)
	q := openQueue(t, plain, redisstore.Options{})
	for i := range n / 200 {
		put(t, q, items(fmt.Sprintf("%05d-", i), 200, 1, time.Hour))
	}
	open := func(between func(step int64)) (driver.Backend, *stepHook) {
		client, hook := newClient(t, addr), &stepHook{between: between}
		client.AddHook(hook)
		return openQueue(t, client, redisstore.Options{}), hook
	}
	ctx, cancel := context.WithCancel(t.Context())
	first, _ := open(func(step int64) {
		if step == 40 {
			cancel()
		}
	})
	second, after := open(func(step int64) { put(t, q, items(fmt.Sprint("new", step), 1, 1, time.Hour)) })
	require.NoError(t, plain.Del(t.Context(), keysOf("tw", "d")...).Err())

	c, err := first.Claim(ctx, driver.Claim{})
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, c.Lost)
	require.Contains(t, damage(t, q, true), "tw:{orders:0}:d", "from the first step on")
	half := counts(t, q).Scheduled
	require.Less(t, half, int64(n))
	c, err = second.Claim(t.Context(), driver.Claim{})
	require.NoError(t, err)
	require.True(t, c.Lost)
	assert.EqualValues(t, n+after.steps.Load(), counts(t, q).Scheduled)
	assert.Greater(t, after.steps.Load(), int64(20), "steps are small")
	assert.Less(t, after.steps.Load(), int64(65), "the first steps are not repeated")
	c, err = q.Claim(t.Context(), driver.Claim{})
	require.NoError(t, err)
	require.False(t, c.Lost)
}

// Keys are lost while no process has the queue open: all of a partition, or one. Each Open knows it
// until an audit. The keys of a new queue are not lost keys, even if a claim creates them.
func TestOpenNoticesLostKeys(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	for _, kinds := range []string{"d", "msdlxc"} {
		o := redisstore.Options{Prefix: kinds}
		put(t, openQueue(t, client, o), items("a", 3, 10, 0))
		require.NoError(t, client.Del(t.Context(), keysOf(kinds, kinds)...).Err())
		for range 2 {
			q := openQueue(t, client, o)
			assert.EqualValues(t, len(kinds), lost(t, q))
			assert.Contains(t, damage(t, q, true), kinds+":{orders:0}:d")
		}
		q := openQueue(t, client, o)
		if kinds == "d" {
			require.Len(t, claim(t, q, 5), 3)
		}
		audit(t, q, true)
		assert.Empty(t, damage(t, openQueue(t, client, o), true))
	}
	fresh := redisstore.BackendOf(newStore(t, client, redisstore.Options{Prefix: "new"}), config())
	put(t, fresh, items("a", 3, 10, 0))
	assert.Len(t, claim(t, fresh, 5), 3)
	assert.Zero(t, lost(t, fresh))
	assert.Empty(t, damage(t, fresh, true))
}

// An audit finds lost keys before any claim, and a key is lost while the audit runs. The audit
// counts the former, and does not declare the latter repaired.
func TestAuditHidesNoLostKeys(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t, redistest.Options{}).Addr()
	client, hooked := newClient(t, addr), newClient(t, addr)
	q := openQueue(t, client, redisstore.Options{})
	put(t, q, items("a", 3, 10, time.Hour))
	require.NoError(t, client.Del(t.Context(), keysOf("tw", "dx")...).Err())
	assert.Equal(t, driver.AuditReport{Records: 3, Orphans: 3, Repaired: 3}, audit(t, q, true))
	assert.EqualValues(t, 2, lost(t, q))
	assert.Empty(t, damage(t, q, true))

	require.NoError(t, client.Del(t.Context(), keysOf("tw", "d")...).Err())
	hooked.AddHook(&stepHook{between: func(step int64) {
		require.NoError(t, client.Del(t.Context(), keysOf("tw", "l")...).Err())
		claim(t, q, 1)
	}})
	audit(t, openQueue(t, hooked, redisstore.Options{}), true)
	assert.Contains(t, damage(t, q, true), "tw:{orders:0}:l")
}

// Keys are deleted under a running consumer. The queue reports it once, within a Fallback, and
// delivers what is left. Healthy fails until an audit.
func TestConsumerReportsLostKeysOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	for _, allow := range []bool{false, true} {
		client := newClient(t, server.Addr())
		require.NoError(t, client.FlushAll(t.Context()).Err())
		found := &logged{}
		o := durable.Options{Queue: "orders", Partitions: 1, OnError: found.report(t), Logger: slog.New(slog.DiscardHandler)}
		q, err := durable.Open(t.Context(), newStore(t, client, redisstore.Options{AllowEviction: allow}), o)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		got, ended := make(chan string, 10), make(chan error, 1)
		go func() {
			ended <- q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error { got <- d.ID; return nil }, durable.ConsumerOptions{})
		}()
		_, err = q.Enqueue(t.Context(), durable.Message{ID: "kept", Delay: 3 * time.Second})
		require.NoError(t, err)
		for i, kinds := range []string{"d", "msdlxc"} {
			require.NoError(t, client.Del(t.Context(), keysOf("tw", kinds)...).Err())
			require.Eventually(t, func() bool { return len(found.texts()) > i }, patience, 10*time.Millisecond)
			require.Contains(t, found.texts()[i], "tw:{orders:0}:d")
			require.Equal(t, allow, q.Healthy(t.Context()) == nil)
			if i == 0 {
				assert.Equal(t, "kept", <-got)
				require.Eventually(t, func() bool { // until its acknowledgement is in the store
					s, err := q.Stats(t.Context())
					return err == nil && s.Acked == 1
				}, patience, 10*time.Millisecond)
			}
			s, err := q.Stats(t.Context())
			require.NoError(t, err)
			assert.EqualValues(t, len(kinds), s.Lost)
		}
		time.Sleep(6 * time.Second) // another check
		require.Len(t, found.texts(), 2)
		_, err = q.Audit(t.Context(), true)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return q.Healthy(t.Context()) == nil }, patience, 10*time.Millisecond)
		cancel()
		require.NoError(t, <-ended)
		q.Close()
	}
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
	b, err := newStore(t, client, redisstore.Options{}).Open(t.Context(), driver.Config{Queue: "orders", Partitions: 1})
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
		m[0].Repeat = "k"
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
		assert.Equal(t, "k", r.Repeat, m[0].ID)
		if r.State != driver.StateDead {
			apply(t, q, driver.OpReschedule, driver.Change{ID: m[0].ID, Delay: time.Hour})
		}
	}
}
