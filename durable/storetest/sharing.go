package storetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

var sharingTests = []test{
	{"Heartbeat/JoinAndLeave", joinAndLeave},
	{"Heartbeat/Expiry", memberExpiry},
	{"Heartbeat/ClockSetBack", only(movable, membersClockSetBack)},
	{"Members/Details", memberDetails},
	{"Watch/Several", watchSeveral},
	{"Watch/Interrupted", watchInterrupted},
	{"Watch/End", watchEnd},
	{"Watch/UnreadHintsBlockNothing", watchUnread},
	{"Sharing/TwoBackends", twoBackends},
	{"Sharing/Separate", separate},
	{"Concurrent/Lifecycle", concurrentLifecycle},
	{"Concurrent/CancelAgainstBegin", cancelAgainstBegin},
}

func twoBackends(t *testing.T, a *queue) {
	b := openAs(t, a.fixture, a.config)
	a.put(item("m", 0))
	assert.Equal(t, a.get("m"), b.get("m"))
	put := driver.Put{Call: a.newCall("p", 1), Items: items("x", 1)}
	first := a.statuses(put)
	if a.fixture.Remote {
		assert.Equal(t, first, b.statuses(put), "a repetition through another backend")
	}
	b.done(driver.OpCancel, driver.Change{ID: "x000"})
	records := b.take(1)
	assert.Empty(t, a.claim(1), "the other backend has claimed it")
	a.begin(records...)
	assert.Equal(t, driver.StatusFiring, b.status(driver.OpCancel, driver.Change{ID: "m"}))
	a.done(driver.OpRetry, changesOf(records)...)
	again := a.take(1)
	assert.Greater(t, again[0].Token, records[0].Token)
	assert.Equal(t, []string{"one"}, a.beat("one", far))
	assert.Equal(t, []string{"one", "two"}, b.beat("two", far))
	x, y := a.count(), b.count()
	x.Now, y.Now = 0, 0
	assert.Equal(t, x, y)
}

// separate uses the same id and caller in two partitions of a queue, and in a queue whose name
// starts with the first one's name. No call affects another partition.
func separate(t *testing.T, q *queue) {
	other := q.in("more")
	call := q.newCall("p", 1)
	for i, p := range []struct {
		*queue
		partition int
	}{{q, 0}, {q, 1}, {other, 0}} {
		put := driver.Put{Partition: p.partition, Call: call, Items: []driver.PutItem{itemWith("m", []byte{byte(i)})}}
		assert.Equal(t, []driver.Status{driver.StatusDone}, p.statuses(put))
	}
	claimed := q.claimWith(driver.Claim{Partition: 1, Horizon: soon, Max: 5, Visibility: far}).Records
	require.Len(t, claimed, 1)
	assert.Equal(t, []byte{1}, claimed[0].Body)
	outcomes := q.batch(driver.Batch{Partition: 1, Op: driver.OpCancel, Changes: []driver.Change{{ID: "m"}}})
	assert.Equal(t, driver.StatusDone, outcomes[0].Status)
	_, err := q.Get(t.Context(), 1, "m")
	require.ErrorIs(t, err, driver.ErrNotFound)
	c, err := q.Count(t.Context(), 1)
	require.NoError(t, err)
	assert.Equal(t, driver.Counters{Enqueued: 1, Cancelled: 1}, c.Counters)
	assert.Zero(t, c.Scheduled+c.InFlight+c.Dead)
	for i, q := range []*queue{q, other} {
		assert.Equal(t, driver.Counters{Enqueued: 1}, has(q, 1, 0, 0).Counters)
		assert.Equal(t, []byte{byte(2 * i)}, q.take(1)[0].Body)
		has(q, 0, 1, 0)
		q.audit(0, true, 1)
	}
}

// parallel runs a function in n goroutines and waits for them. The function must not end the test,
// as require does.
func parallel(n int, f func(worker int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// concurrentLifecycle runs producers and consumers concurrently. Every message is acknowledged
// once.
func concurrentLifecycle(t *testing.T, q *queue) {
	const producers, batches, size = 4, 10, 20
	const total = producers * batches * size
	last := driver.InstantOf(q.now()).Add(contract.MaxAhead / 2)
	var mu sync.Mutex
	acked := make(map[string]int)
	parallel(2*producers, func(worker int) {
		if worker < producers {
			for i := range batches {
				put := driver.Put{Call: driver.Call{Caller: fmt.Sprint("p", worker),
					Seq: uint64(i + 1), NotAfter: last}, Items: items(fmt.Sprintf("%d-%d-", worker, i), size)}
				_, err := q.Put(t.Context(), put)
				assert.NoError(t, err)
			}
			return
		}
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			ids, err := q.consume(t, 16)
			if !assert.NoError(t, err) {
				return
			}
			mu.Lock()
			for _, id := range ids {
				acked[id]++
			}
			finished := len(acked) == total
			mu.Unlock()
			if finished {
				return
			}
			if len(ids) == 0 {
				time.Sleep(time.Millisecond) // a producer may be slower than the claims
			}
		}
	})
	assert.Len(t, acked, total)
	for id, n := range acked {
		assert.Equal(t, 1, n, id)
	}
	c := has(q, 0, 0, 0)
	assert.Equal(t, [2]uint64{total, total}, [2]uint64{c.Enqueued, c.Acked})
}

// consume claims, begins and acknowledges messages, and returns their ids. Another claim has not
// returned them as well: all transitions succeed.
func (q *queue) consume(t *testing.T, limit int) (ids []string, err error) {
	t.Helper()
	c, err := q.Claim(t.Context(), driver.Claim{Horizon: soon, Max: limit, MaxBytes: manyBytes, Visibility: far})
	if err != nil || len(c.Records) == 0 {
		return nil, err
	}
	b := driver.Batch{Visibility: far, Lead: soon, Changes: changesOf(c.Records)}
	for _, b.Op = range []driver.Op{driver.OpBegin, driver.OpAck} {
		outcomes, err := q.Apply(t.Context(), b)
		if err != nil {
			return nil, err
		}
		for i, o := range outcomes {
			assert.Equal(t, driver.StatusDone, o.Status, "%s of %q", b.Op.String(), b.Changes[i].ID)
		}
	}
	return idsOf(c.Records), nil
}

// cancelAgainstBegin cancels messages while another goroutine begins them. Exactly one of the two
// succeeds for each message.
func cancelAgainstBegin(t *testing.T, q *queue) {
	for range testscale.Size(5) {
		q.put(items("m", 40)...)
		changes := changesOf(q.claim(40))
		var statuses [40][2]driver.Status // of the two transitions
		parallel(2, func(worker int) {
			op := [2]driver.Op{driver.OpBegin, driver.OpCancel}[worker]
			for i := range changes {
				outcomes, err := q.Apply(t.Context(), driver.Batch{Op: op, Visibility: far, Changes: changes[i : i+1]})
				if !assert.NoError(t, err) {
					return
				}
				statuses[i][worker] = outcomes[0].Status
			}
		})
		for _, got := range statuses {
			assert.Contains(t, [][2]driver.Status{
				{driver.StatusDone, driver.StatusFiring}, {driver.StatusLeaseLost, driver.StatusDone}, {driver.StatusEarly, driver.StatusDone},
			}, got, "begin and cancel")
		}
		q.apply(driver.OpAck, changes...)
		c := q.count()
		require.Zero(t, c.Scheduled+c.InFlight)
	}
}

// beat sends a heartbeat of a member and returns the names of all members.
func (q *queue) beat(member string, ttl time.Duration) []string {
	q.t.Helper()
	members, err := q.Heartbeat(q.t.Context(), driver.Member{Name: member}, ttl)
	require.NoError(q.t, err)
	return namesOf(members)
}

// members returns the members according to their last heartbeats, which are not in the future.
func (q *queue) members() []driver.Member {
	q.t.Helper()
	members, err := q.Members(q.t.Context())
	require.NoError(q.t, err)
	for _, m := range members {
		assert.LessOrEqual(q.t, m.Seen, driver.InstantOf(q.now())+1, m.Name)
	}
	return members
}

func namesOf(members []driver.Member) []string {
	return mapped(members, func(m driver.Member) string { return m.Name })
}

func joinAndLeave(t *testing.T, q *queue) {
	assert.Equal(t, []string{"b"}, q.beat("b", far))
	assert.Equal(t, []string{"b", "c"}, q.beat("c", far))
	assert.Equal(t, []string{"a", "b", "c"}, q.beat("a", far))
	assert.Equal(t, []string{"a", "b", "c"}, q.beat("b", far), "again")
	assert.Equal(t, []string{"a", "c"}, q.beat("b", 0))
	assert.Equal(t, []string{"a", "c"}, q.beat("b", 0), "leaving again has no effect")
	assert.Equal(t, []string{"a", "c"}, q.beat("stranger", 0))
	assert.Equal(t, []string{"a", "b", "c"}, q.beat("b", far), "back again")
	q.beat("a", 0)
	q.beat("b", 0)
	assert.Empty(t, q.beat("c", 0))
	assert.Equal(t, []string{"ü 😀"}, q.beat("ü 😀", far))
}

// memberExpiry checks that members without further heartbeats expire.
func memberExpiry(t *testing.T, q *queue) {
	start := q.now()
	q.beat("short", q.short())
	q.beat("long", far)
	q.beat("renewed", q.short())
	q.beat("renewed", far)
	if members := q.members(); q.now().Sub(start) < q.short() { // otherwise the machine stalled
		require.Len(t, members, 3)
	}
	q.pass()
	members := q.members()
	require.Equal(t, []string{"long", "renewed"}, namesOf(members), "without another heartbeat")
	assert.Less(t, members[0].Seen, driver.Instant(q.now().UnixMilli()))
	assert.Equal(t, []string{"long", "renewed"}, q.beat("long", far))
	assert.Equal(t, []string{"long", "renewed", "short"}, q.beat("short", far), "back again")
	q.beat("long", q.short())
	q.pass()
	assert.Equal(t, []string{"renewed"}, q.beat("short", 0), "the last heartbeat counts, although its ttl was shorter")
}

// membersClockSetBack sets the clock back after the last heartbeat of a member. The member must not
// stay until the clock has caught up, because its partitions would have no owner until then. A list
// or a heartbeat notices the step first.
func membersClockSetBack(t *testing.T, q *queue) {
	for _, list := range []bool{true, false} {
		q := q.in(fmt.Sprint(list))
		q.beat("killed", q.short())
		q.beat("alive", 2*q.short())
		q.fixture.Advance(-far)
		if list {
			require.Len(t, q.members(), 2)
		}
		assert.Equal(t, []string{"alive", "killed", "other"}, q.beat("other", far),
			"the remaining time does not change")
		require.Len(t, q.members(), 3)
		q.pass()
		assert.Equal(t, []string{"alive", "other"}, namesOf(q.members()))
		assert.Equal(t, []string{"alive", "other"}, q.beat("other", far))
		q.pass()
		assert.Equal(t, []string{"other"}, q.beat("other", far))
	}
}

func memberDetails(t *testing.T, q *queue) {
	assert.Empty(t, q.members(), "Members does not join")
	before := driver.Instant(q.now().UnixMilli())
	all := make([]int, contract.MaxPartitions)
	for i := range all {
		all[i] = i
	}
	want := []driver.Member{
		{Name: "a", Host: "höst 1", PID: 17, Partitions: []int{0, 3}, Capacity: 64, Free: 3, Waiting: 2, WaitingFor: time.Hour + 1, OldestRun: 1<<63 - 1},
		{Name: "b", Host: strings.Repeat("x", 255), PID: 1 << 30, Partitions: all, Capacity: 1 << 20, Free: 1 << 20},
		{Name: strings.Repeat("c", 64)},
	}
	for i := range want {
		m := want[len(want)-1-i]
		_, err := q.Heartbeat(t.Context(), m, far)
		require.NoError(t, err)
	}
	all[7] = -1 // the store must have copied the list
	check := func() {
		t.Helper()
		members := q.members()
		for i := range members {
			m := &members[i]
			assert.GreaterOrEqual(t, m.Seen, before, m.Name)
			assert.InDelta(t, far.Milliseconds(), int64(m.Until-m.Seen), 1, m.Name)
			m.Seen, m.Until = 0, 0
		}
		assert.Equal(t, want, members)
	}
	all = append([]int(nil), all...)
	all[7] = 7
	want[1].Partitions = all
	check()
	want[0].Partitions, want[0].Host, want[0].PID, want[0].Free = []int{2}, "another", 18, 0
	_, err := q.Heartbeat(t.Context(), want[0], far)
	require.NoError(t, err)
	check()
	q.beat(want[1].Name, 0)
	want = append(want[:1], want[2])
	check()
	assert.Empty(t, q.in("other").members(), "members of another queue")
	q.beat(want[0].Name, 0)
	q.beat(want[1].Name, 0)
	assert.Empty(t, q.members())
}

// hintTimeout is the maximum time that a test waits for a hint. Stores send hints within
// milliseconds.
const hintTimeout = 15 * time.Second

// awaitHint creates new heads until the hint of one of them arrives, because hints may be lost and
// a store may need time to subscribe. Each head must be earlier than all previous ones. Late hints
// of other messages and hints with Due 0 are ignored.
func awaitHint(t *testing.T, hints <-chan driver.Hint, partition int, makeHead func(try int) driver.Instant) {
	t.Helper()
	known := make(map[driver.Instant]bool)
	deadline := time.Now().Add(hintTimeout)
	for try := 0; time.Now().Before(deadline); try++ {
		known[makeHead(try)] = true
		select {
		case h, open := <-hints:
			require.True(t, open, "the channel was closed")
			if known[h.Due] {
				require.Equal(t, partition, h.Partition)
				return
			}
		case <-time.After(50 * time.Millisecond):
		}
	}
	require.Fail(t, "no hint arrived", "within %v", hintTimeout)
}

// head stores a message that is earlier than the messages of earlier tries, of which partition 0
// has up to 500.
func (q *queue) head(partition, try int) driver.Instant {
	q.t.Helper()
	at := driver.InstantOf(q.now().Add(100*far - time.Duration(500*partition+try)*far/10))
	put := driver.Put{Partition: partition, Items: []driver.PutItem{itemAt(fmt.Sprintf("head%d", try), at)}}
	assert.Equal(q.t, []driver.Status{driver.StatusDone}, q.statuses(put))
	return at
}

// drain receives hints until none arrives for a while.
func drain(t *testing.T, hints <-chan driver.Hint) (got []driver.Hint) {
	t.Helper()
	for {
		select {
		case h, open := <-hints:
			require.True(t, open, "the channel was closed")
			got = append(got, h)
		case <-time.After(100 * time.Millisecond):
			return got
		}
	}
}

// watchTransitions creates a new head by transitions other than Put.
func watchTransitions(t *testing.T, q *queue) {
	for _, op := range []driver.Op{driver.OpRetry, driver.OpRelease, driver.OpReschedule, driver.OpReplay} {
		q := q.in(op.String())
		hints, err := q.Watch(t.Context())
		require.NoError(t, err)
		awaitHint(t, hints, 0, func(try int) driver.Instant { return q.head(0, try) })
		awaitHint(t, hints, 0, func(try int) driver.Instant {
			if try > 0 { // the message may be due, and would be claimed first
				q.done(driver.OpCancel, driver.Change{ID: fmt.Sprintf("m%d", try-1)})
			}
			c := q.deliver(fmt.Sprintf("m%d", try))
			switch op {
			case driver.OpReplay:
				q.done(driver.OpBury, c)
			case driver.OpReschedule:
				c.Delay = 200 * far
				q.done(driver.OpRetry, c)
			}
			drain(t, hints)
			c.Delay = far - time.Duration(try)*time.Minute/10
			q.done(op, c)
			return q.get(c.ID).Due
		})
	}
}

// watchSeveral watches both partitions of one queue, and another queue that gets no hints.
func watchSeveral(t *testing.T, q *queue) {
	one, err := q.Watch(t.Context())
	require.NoError(t, err)
	two, err := openAs(t, q.fixture, q.config).Watch(t.Context())
	require.NoError(t, err)
	other, err := q.in("other").Watch(t.Context())
	require.NoError(t, err)
	awaitHint(t, one, 0, func(try int) driver.Instant { return q.head(0, try) })
	awaitHint(t, two, 1, func(try int) driver.Instant { return q.head(1, try) })
	for _, h := range drain(t, other) {
		require.Zero(t, h.Due, "a hint of another queue: %v", h) // 0 names no message
	}
}

func watchEnd(t *testing.T, q *queue) {
	ctx, cancel := context.WithCancel(t.Context())
	ending, err := q.Watch(ctx)
	require.NoError(t, err)
	staying, err := q.Watch(t.Context())
	require.NoError(t, err)
	cancel()
	require.Eventually(t, func() bool { _, open := <-ending; return !open }, hintTimeout, time.Millisecond,
		"the channel was not closed when its context ended")
	awaitHint(t, staying, 0, func(try int) driver.Instant { return q.head(0, try) })
}

// watchUnread watches without receiving. No other call is blocked.
func watchUnread(t *testing.T, q *queue) {
	_, err := q.Watch(t.Context())
	require.NoError(t, err)
	for try := range 300 {
		q.head(0, try)
	}
	assert.Equal(t, int64(300), q.count().Scheduled)
}

// watchInterrupted interrupts a firing message until the hint with its id arrives.
func watchInterrupted(t *testing.T, q *queue) {
	hints, err := openAs(t, q.fixture, q.config).Watch(t.Context())
	require.NoError(t, err)
	id := "id é:1"
	q.deliver(id)
	for deadline := time.Now().Add(hintTimeout); time.Now().Before(deadline); {
		require.Equal(t, driver.StatusInterrupted, q.status(driver.OpCancel, driver.Change{ID: id, Interrupt: true}))
		for _, h := range drain(t, hints) {
			if h.ID != "" {
				require.Equal(t, driver.Hint{ID: id}, h)
				return
			}
		}
	}
	require.Fail(t, "no hint arrived", "within %v", hintTimeout)
}
