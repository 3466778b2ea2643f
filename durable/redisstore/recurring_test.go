package redisstore_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// daily returns recurring messages: see items.
func daily(prefix string, n int, delay time.Duration) []driver.PutItem {
	all := items(prefix, n, 10, delay)
	for i := range all {
		all[i].Repeat = "daily"
	}
	return all
}

// begin puts messages that are due, and begins them.
func begin(t *testing.T, q driver.Backend, items []driver.PutItem, visibility time.Duration) []driver.Change {
	t.Helper()
	put(t, q, items)
	c, err := q.Claim(t.Context(), driver.Claim{
		Max: len(items), MaxBytes: 1 << 20, Begin: len(items), Visibility: visibility, Hold: visibility,
	})
	require.NoError(t, err)
	require.Len(t, c.Records, len(items))
	return changes(c.Records)
}

// statuses makes a transition, and returns its statuses as digits.
func statuses(t *testing.T, q driver.Backend, batch driver.Batch) string {
	t.Helper()
	outcomes, err := q.Apply(t.Context(), batch)
	require.NoError(t, err)
	var all strings.Builder
	for _, o := range outcomes {
		fmt.Fprint(&all, uint8(o.Status))
	}
	return all.String()
}

// interrupt marks firing messages.
func interrupt(t *testing.T, q driver.Backend, c ...driver.Change) {
	t.Helper()
	c = append([]driver.Change(nil), c...)
	for i := range c {
		c[i].Interrupt = true
	}
	require.Equal(t, strings.Repeat("9", len(c)), statuses(t, q, driver.Batch{Op: driver.OpCancel, Changes: c}))
}

func get(t *testing.T, q driver.Backend, id string) driver.Record {
	t.Helper()
	r, err := q.Get(t.Context(), 0, id)
	require.NoError(t, err)
	return r
}

// assertEmpty checks that nothing is left of the messages of partition 0.
func assertEmpty(t *testing.T, client *redis.Client, q driver.Backend, prefix string) {
	t.Helper()
	assert.Equal(t, driver.AuditReport{}, audit(t, q, true))
	for _, key := range keysOf(prefix, "ms") {
		assert.EqualValues(t, 1, client.HLen(t.Context(), key).Val(), "%s: only the filler", key)
	}
	for _, key := range keysOf(prefix, "dlx") {
		assert.EqualValues(t, 1, client.ZCard(t.Context(), key).Val(), "%s: only the filler", key)
	}
}

// The replies to the ends of runs are lost, and the calls are repeated. Each run ends once.
func TestRunEndsOnceIfRepliesAreLost(t *testing.T) {
	t.Parallel()
	m := simulated(t)
	now := time.Now()
	m.SetTime(now)
	var lose atomic.Int32
	q, other := openQueue(t, lossyClient(t, m, &lose), redisstore.Options{}), openQueue(t, newClient(t, m.Addr()), redisstore.Options{})
	next, marked, ended := driver.InstantOf(now.Add(time.Hour)), driver.Change{Interrupt: true}, driver.Change{Delay: time.Minute}
	for _, c := range []struct {
		name   string
		op     driver.Op
		end    driver.Change
		marks  bool
		ends   bool // the series ends during the run
		again  string
		counts driver.Counters
	}{
		{"again", driver.OpRetry, driver.Change{Again: true, At: next}, false, false, "1", driver.Counters{Acked: 1, Enqueued: 2}},
		{"failed", driver.OpRetry, driver.Change{Again: true, At: next, Reason: "x"}, false, false, "1", driver.Counters{Retried: 1, Enqueued: 1}},
		{"last", driver.OpRetry, driver.Change{Again: true, At: next}, false, true, "5", driver.Counters{Acked: 1, Enqueued: 1}},
		{"last, failed", driver.OpRetry, driver.Change{Again: true, At: next, Reason: "x"}, false, true, "5", driver.Counters{Cancelled: 1, Enqueued: 1}},
		{"marked", driver.OpRetry, driver.Change{Again: true, At: next}, true, false, "5", driver.Counters{Acked: 1, Enqueued: 1}},
		{"retried", driver.OpRetry, driver.Change{Reason: "x"}, true, false, "5", driver.Counters{Cancelled: 1, Enqueued: 1}},
		{"postponed", driver.OpRetry, driver.Change{Uncounted: true}, true, false, "5", driver.Counters{Cancelled: 1, Enqueued: 1}},
		{"buried", driver.OpBury, driver.Change{}, true, false, "5", driver.Counters{Cancelled: 1, Enqueued: 1}},
		{"released", driver.OpRelease, driver.Change{}, true, false, "5", driver.Counters{Cancelled: 1, Enqueued: 1}},
		{"acked", driver.OpAck, driver.Change{}, true, false, "4", driver.Counters{Acked: 1, Enqueued: 1}},
	} {
		before := counts(t, other).Counters
		id := items(c.name, 1, 0, 0)[0].ID
		end := begin(t, other, daily(c.name, 1, 0), time.Hour)[0]
		c.end.ID, c.end.Token, c.end.Incarnation = id, end.Token, get(t, other, id).Planned
		ended.ID, marked.ID = id, id
		if c.ends {
			apply(t, other, driver.OpRepeat, ended)
		}
		if c.marks {
			interrupt(t, other, marked)
		}
		batch := driver.Batch{Op: c.op, Changes: []driver.Change{c.end}}
		_, err := q.Apply(t.Context(), driver.Batch{Op: c.op, Changes: []driver.Change{{ID: "another"}}})
		require.NoError(t, err, "the script is known from here on")
		lose.Store(1)
		_, err = q.Apply(t.Context(), batch)
		require.ErrorIs(t, err, driver.ErrUnavailable, c.name)
		assert.Equal(t, c.again, statuses(t, q, batch), c.name)
		after := counts(t, other).Counters
		assert.Equal(t, c.counts, driver.Counters{
			Enqueued: after.Enqueued - before.Enqueued, Acked: after.Acked - before.Acked, Retried: after.Retried - before.Retried,
			Buried: after.Buried - before.Buried, Cancelled: after.Cancelled - before.Cancelled,
		}, c.name)
		if c.again == "1" {
			r := get(t, other, id)
			assert.Equal(t, []driver.Instant{next, next}, []driver.Instant{r.Due, r.Planned}, c.name)
			apply(t, other, driver.OpCancel, driver.Change{ID: id})
		}
		assertEmpty(t, newClient(t, m.Addr()), other, "tw")
	}
}

// Calls that change firing messages are repeated after other changes. The copies change nothing.
func TestCopiesOfChangesOfASeriesChangeNothing(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, addr string) {
		q := openQueue(t, newClient(t, addr), redisstore.Options{})
		end := begin(t, q, daily("a", 1, 0), time.Hour)[0]
		replace := driver.Put{Call: calling("p", 1), Replace: true, Items: daily("a", 1, time.Hour)}
		replace.Items[0].Body = []byte("new")
		repeat := driver.Batch{Op: driver.OpRepeat, Call: calling("r", 1), Changes: []driver.Change{{ID: end.ID, Delay: 2 * time.Hour, Repeat: "weekly"}}}
		cancel := driver.Batch{Op: driver.OpCancel, Call: calling("c", 1), Changes: []driver.Change{{ID: end.ID, Interrupt: true}}}
		var after []driver.Record
		for round := range 2 {
			got, err := q.Put(t.Context(), replace)
			require.NoError(t, err)
			require.Equal(t, []driver.Status{driver.StatusDone}, got)
			after = append(after, get(t, q, end.ID))
			require.Equal(t, "1", statuses(t, q, repeat))
			after = append(after, get(t, q, end.ID))
			require.Equal(t, "9", statuses(t, q, cancel))
			after = append(after, get(t, q, end.ID))
			if round == 1 {
				assert.Equal(t, []driver.Record{after[2], after[2], after[2]}, after[3:], "the copies")
			}
		}
		assert.Equal(t, []string{"daily", "weekly", "weekly"}, []string{after[0].Repeat, after[1].Repeat, after[2].Repeat})
		assert.Equal(t, []string{"new", "new"}, []string{string(after[0].Body), string(after[2].Body)})
		assert.InDelta(t, int64(time.Hour/time.Millisecond), int64(after[1].Planned-after[0].Planned), 60_000)
		assert.Equal(t, driver.Never, after[2].Planned)
		apply(t, q, driver.OpAck, end)
		require.Equal(t, "9", statuses(t, q, cancel), "the message is gone, and the result is the same")
		assert.Equal(t, driver.Counters{Enqueued: 2, Acked: 1}, counts(t, q).Counters)
	})
}

// The process of a batch of marked messages ends. Nothing is left of the messages.
func TestMarkedMessagesEndWithTheirLeases(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	c := begin(t, q, append(daily("a", 100, 0), items("b", 156, 10, 0)...), time.Hour)
	interrupt(t, q, c...)
	for i := range c {
		c[i].Delay = -1 // the lease ends now
	}
	require.Equal(t, strings.Repeat("9", len(c)), statuses(t, q, driver.Batch{Op: driver.OpExtend, Changes: c}))
	time.Sleep(2 * time.Millisecond)
	got, err := q.Claim(t.Context(), driver.Claim{Max: 10, MaxBytes: 100, Visibility: time.Hour, MaxCrashes: 1})
	require.NoError(t, err)
	assert.Empty(t, got.Records)
	assert.Equal(t, driver.Counters{Enqueued: 256, Crashed: 256, Cancelled: 256}, counts(t, q).Counters)
	assertEmpty(t, client, q, "tw")
}

// Many messages are interrupted while the receiver of hints does not read. No id is lost.
func TestHintsOfInterruptedMessagesAreNotMerged(t *testing.T) {
	t.Parallel()
	server := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	options := redistest.ClientOptions(server.Options().Addr)
	options.Protocol = 2
	older := redis.NewClient(options)
	t.Cleanup(func() { _ = older.Close() })
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{}).Client(t)
	queues := map[string]driver.Backend{
		"server": openQueue(t, server, redisstore.Options{}), "RESP2": openQueue(t, older, redisstore.Options{Prefix: "older"}),
		"cluster": openQueue(t, cluster, redisstore.Options{}),
	}
	var err error
	store := newStore(t, cluster, redisstore.Options{Prefix: "unsharded"})
	queues["unsharded"], err = redisstore.OpenUnsharded(t.Context(), store, config())
	require.NoError(t, err)
	for name, q := range queues {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := append(daily("1 \x00\xff ", 20, 0), items("", 20, 0, 0)...)
			c := begin(t, q, all, time.Hour)
			hints := watchInTime(t, q)
			missing := make(map[driver.Hint]bool)
			for _, m := range all {
				missing[driver.Hint{ID: m.ID}] = true
			}
			for range 3 {
				interrupt(t, q, c...)
			}
			put(t, q, items("head", 1, 0, time.Hour))
			missing[driver.Hint{Due: get(t, q, items("head", 1, 0, 0)[0].ID).Due}] = true
			for timeout := time.After(patience); len(missing) > 0; {
				select {
				case h := <-hints:
					delete(missing, h)
				case <-timeout:
					require.Empty(t, missing)
				}
			}
		})
	}
}

// A receiver of an earlier version reads a hint with an id as one without a time, because what it
// reads is not a number.
func TestHintOfInterruptedMessageHasNoTimeForEarlierVersions(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	c := begin(t, q, items("a", 1, 0, 0), time.Hour)
	s := client.Subscribe(t.Context(), "tw:{orders:0}:h")
	t.Cleanup(func() { _ = s.Close() })
	_, err := s.Receive(t.Context())
	require.NoError(t, err)
	require.Equal(t, "3", statuses(t, q, driver.Batch{Op: driver.OpCancel, Changes: c}), "without a hint")
	interrupt(t, q, c...)
	message, err := s.ReceiveMessage(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "0 "+c[0].ID, message.Payload)
}

// Keys with recurring and marked messages are deleted. The audit keeps what is in the states.
func TestAuditKeepsSeriesAndMarks(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	for _, key := range keysOf("", "dlx") {
		prefix := "series" + key[len(key)-1:]
		q := openQueue(t, client, redisstore.Options{Prefix: prefix})
		put(t, q, daily("later", 1, time.Hour))
		crashed := begin(t, q, daily("waits", 1, 0), time.Millisecond)
		time.Sleep(5 * time.Millisecond)
		_, err := q.Claim(t.Context(), driver.Claim{MaxCrashes: 1})
		require.NoError(t, err)
		dead := begin(t, q, daily("dead", 1, 0), time.Hour)
		apply(t, q, driver.OpBury, dead...)
		changed := begin(t, q, daily("changed", 1, 0), time.Hour)
		apply(t, q, driver.OpRepeat, driver.Change{ID: changed[0].ID, Delay: time.Hour, Repeat: "weekly"})
		marked := begin(t, q, append(daily("m", 1, 0), items("n", 1, 1, 0)...), time.Hour)
		interrupt(t, q, marked...)
		before := make(map[string]driver.Record)
		for _, c := range append([]driver.Change{{ID: items("later", 1, 0, 0)[0].ID}, crashed[0], dead[0], changed[0]}, marked...) {
			before[c.ID] = get(t, q, c.ID)
		}
		require.Equal(t, driver.Never, before[crashed[0].ID].Due)

		require.NoError(t, client.Del(t.Context(), prefix+key).Err())
		assert.Positive(t, audit(t, q, true).Repaired)
		assert.Equal(t, driver.AuditReport{Records: 6}, audit(t, q, true))
		for id, r := range before {
			got := get(t, q, id)
			if r.LeaseEnd > 0 && strings.HasSuffix(key, "l") {
				assert.NotEqual(t, r.LeaseEnd, got.LeaseEnd, "a new lease")
				got.LeaseEnd = r.LeaseEnd
			}
			assert.Equal(t, r, got, "%s without %s", id, key)
		}
		apply(t, q, driver.OpReplay, driver.Change{ID: crashed[0].ID, Delay: time.Hour}, driver.Change{ID: dead[0].ID, Delay: time.Hour})
		apply(t, q, driver.OpRelease, append(marked, changed...)...)
		assert.Equal(t, driver.AuditReport{Records: 4}, audit(t, q, true))
		assert.Zero(t, counts(t, q).DeadBytes)
		require.NoError(t, client.Del(t.Context(), keysOf(prefix, "s")...).Err())
		got, err := q.Claim(t.Context(), driver.Claim{Max: 10, MaxBytes: 1000, Horizon: 3 * time.Hour, Visibility: time.Hour})
		require.NoError(t, err)
		require.Len(t, got.Records, 4)
		for _, r := range got.Records {
			assert.Empty(t, r.Repeat, "the series was in the state")
		}
	}
}

// The states of messages are damaged. Calls that read them succeed, and no mark is read or set.
func TestDamagedStatesAreNotMarked(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	item := daily("a", 1, 0)
	end := begin(t, q, item, time.Hour)[0]
	interrupt(t, q, end)
	const states = "tw:{orders:0}:s"
	state := client.HGet(t.Context(), states, end.ID).Val()
	for n := range len(state) {
		require.NoError(t, client.HSet(t.Context(), states, end.ID, state[:n]).Err())
		_, err := q.Put(t.Context(), driver.Put{Replace: true, Items: item})
		require.NoError(t, err, "%d bytes", n)
		for _, op := range []driver.Op{driver.OpRepeat, driver.OpCancel, driver.OpExtend, driver.OpReplay} {
			put(t, q, items(fmt.Sprint(n, op), 1, 1, time.Hour))
			require.NoError(t, client.HSet(t.Context(), states, end.ID, state[:n]).Err())
			c := []driver.Change{end, {ID: items(fmt.Sprint(n, op), 1, 0, 0)[0].ID, Repeat: "weekly"}}
			c[0].Interrupt = n < 32
			got := statuses(t, q, driver.Batch{Op: op, Changes: c})
			if op == driver.OpCancel && n > 0 && n < 32 {
				assert.Equal(t, "31", got, "firing and not interrupted, %d bytes", n)
			}
			if n < 32 && client.HExists(t.Context(), states, end.ID).Val() {
				assert.LessOrEqual(t, client.HStrLen(t.Context(), states, end.ID).Val(), int64(32+13), "%v", op)
			}
		}
	}
}

// Transitions of a firing recurring message have only the effects of their own arguments.
func TestRunIsUnchangedByOtherTransitions(t *testing.T) {
	t.Parallel()
	q := openQueue(t, newClient(t, redistest.Start(t, redistest.Options{}).Addr()), redisstore.Options{})
	end := begin(t, q, daily("a", 1, 0), time.Hour)[0]
	want := get(t, q, end.ID)
	require.Equal(t, "3", statuses(t, q, driver.Batch{Op: driver.OpReschedule, Changes: []driver.Change{{ID: end.ID, Repeat: "weekly", Delay: 1}}}))
	require.Equal(t, "4", statuses(t, q, driver.Batch{Op: driver.OpReplay, Changes: []driver.Change{{ID: end.ID}}}))
	assert.Equal(t, want, get(t, q, end.ID))
	end.Incarnation, end.Reason, end.Delay = want.Planned-1, "x", time.Hour // only with Again
	apply(t, q, driver.OpRetry, end)
	r := get(t, q, end.ID)
	assert.Equal(t, []any{want.Planned, 1}, []any{r.Planned, r.Attempts})
	assert.Greater(t, r.Due, want.Due.Add(time.Minute))
}

// A plain message was postponed, so its state has rare data. Cancel does not mark it, and the rare
// data ends with its next attempt.
func TestPostponedMessageIsNotMarked(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	end := begin(t, q, items("a", 1, 1, 0), time.Hour)[0]
	end.Uncounted = true
	apply(t, q, driver.OpRetry, end)
	c := changes(claim(t, q, 1))
	apply(t, q, driver.OpBegin, c...)
	want := get(t, q, end.ID)
	require.Equal(t, 1, want.Postponed)
	require.Equal(t, "3", statuses(t, q, driver.Batch{Op: driver.OpCancel, Changes: c}))
	assert.Equal(t, want, get(t, q, end.ID))
	apply(t, q, driver.OpRetry, c...)
	assert.EqualValues(t, 32, client.HStrLen(t.Context(), "tw:{orders:0}:s", end.ID).Val(), "the header of the state")
}
