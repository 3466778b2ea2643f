package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

var openTests = []test{
	{"Open/Partitions", openPartitions},
	{"Open/OtherPartitions", openOtherPartitions},
	{"Open/Existing", openExisting},
	{"Open/Limits", openLimits},
	{"Open/Update", openUpdate},
	{"Open/Invalid", openInvalid},
	{"Close", closed},
	{"DeleteQueue", deleteQueue},
	{"DeleteQueue/Members", deleteQueueWithMembers},
	{"DeleteQueue/CreatedAgain", deleteAndCreate},
}

func openPartitions(t *testing.T, q *queue) {
	for _, c := range []struct {
		queue   string
		n, want int
	}{{"one", 1, 1}, {"seven-7", 7, 7}, {"MOST_.-9", contract.MaxPartitions, contract.MaxPartitions}, {"default", 0, 8}} {
		config := config()
		config.Queue, config.Partitions = c.queue, c.n
		assert.Equal(t, c.want, openAs(t, q.fixture, config).Config().Partitions, c.queue)
		if c.n == contract.MaxPartitions && !testscale.Full() {
			continue // each opening makes a call for each partition of a Redis store
		}
		config.Partitions = 0
		assert.Equal(t, c.want, openAs(t, q.fixture, config).Config().Partitions, "%s: 0 accepts the existing number", c.queue)
	}
}

// openOtherPartitions opens a queue with another number of partitions, also after a restart.
func openOtherPartitions(t *testing.T, q *queue) {
	q.put(item("a", 0))
	check := func(f Fixture) {
		c := q.config
		c.Partitions = 5
		_, err := f.Store.Open(t.Context(), c)
		require.ErrorIs(t, err, driver.ErrPartitions)
		require.NotErrorIs(t, err, driver.ErrUnavailable)
		assert.Contains(t, err.Error(), "2", "the error names the existing number")
		assert.Contains(t, err.Error(), "5", "the error names the requested number")
		c.Partitions = 0
		again := openAs(t, f, c)
		assert.Equal(t, 2, again.Config().Partitions)
		assert.Equal(t, int64(1), again.count().Scheduled)
	}
	check(q.fixture)
	check(reopened(t, q.fixture))
}

func openExisting(t *testing.T, q *queue) {
	f, c := q.fixture, q.config
	c.Queue, c.Existing = "misspelt", true
	for range 2 {
		_, err := f.Store.Open(t.Context(), c)
		require.ErrorIs(t, err, driver.ErrNoQueue, "the call must not create a queue")
		assert.NotErrorIs(t, err, driver.ErrUnavailable)
		assert.Contains(t, err.Error(), c.Queue)
	}
	c.Existing, c.Partitions = false, 3
	openAs(t, f, c)
	c.Existing, c.Partitions = true, 0
	assert.Equal(t, 3, openAs(t, f, c).Config().Partitions)
}

// limited is a queue with a limit of each kind.
var limited = driver.Config{
	Queue: "limited", Partitions: 2, MaxBody: 1, MaxAttempts: 2, DeadLimit: 3, DeadBytes: 4 << 40, DeadAge: 5*time.Hour + 1,
}

// openLimits opens a queue with other limits than those that it was created with, also after a
// restart.
func openLimits(t *testing.T, q *queue) {
	f := q.fixture
	before := contract.Limits(openAs(t, f, limited).Config())
	assert.Equal(t, contract.Limits(limited), before)
	other := driver.Config{Queue: "other"}
	assert.Equal(t, contract.Limits(contract.NewConfig(other)), contract.Limits(openAs(t, f, other).Config()), "the defaults")
	check := func(f Fixture) {
		assert.Equal(t, before, contract.Limits(openAs(t, f, driver.Config{Queue: "limited"}).Config()))
		openAs(t, f, limited)
		_, err := f.Store.Open(t.Context(), driver.Config{Queue: "limited", MaxBody: 7, MaxAttempts: 7, DeadLimit: 7, DeadBytes: 7, DeadAge: 7})
		require.ErrorIs(t, err, driver.ErrOptions)
		require.NotErrorIs(t, err, driver.ErrUnavailable)
		assert.ErrorContains(t, err, "MaxBody 7; the queue has 1, MaxAttempts 7; the queue has 2, DeadLimit 7; the queue has 3, "+
			"DeadBytes 7; the queue has 4398046511104, DeadAge 7ns; the queue has 5h0m0.000000001s")
		assert.Equal(t, before, contract.Limits(openAs(t, f, driver.Config{Queue: "limited"}).Config()), "nothing has changed")
	}
	check(f)
	check(reopened(t, f))
}

// openUpdate changes the limits of a queue, which apply to earlier openers too.
func openUpdate(t *testing.T, q *queue) {
	f := q.fixture
	q = openAs(t, f, limited)
	c := driver.Config{Queue: "limited", Partitions: 3, DeadLimit: 1, Update: true}
	_, err := f.Store.Open(t.Context(), c)
	require.ErrorIs(t, err, driver.ErrPartitions)
	for _, id := range []string{"a", "b"} {
		q.done(driver.OpBury, q.deliver(id))
	}
	assert.EqualValues(t, 2, q.count().Dead, "nothing has changed")
	c.Partitions, c.MaxBody = 0, 8
	want := []int64{8, 2, 1, 4 << 40, int64(limited.DeadAge)}
	assert.Equal(t, want, contract.Limits(openAs(t, f, c).Config()))
	q.beat("member", time.Minute)
	q.expire(0)
	assert.EqualValues(t, 1, q.count().Dead)
	assert.Equal(t, contract.Limits(limited), contract.Limits(q.Config()), "as opened")
	f = reopened(t, f)
	assert.Equal(t, want, contract.Limits(openAs(t, f, driver.Config{Queue: "limited"}).Config()))
	c.Queue = "new"
	assert.Equal(t, contract.Limits(contract.NewConfig(c)), contract.Limits(openAs(t, f, c).Config()), "Update creates a queue")
}

func openInvalid(t *testing.T, q *queue) {
	for name, spoil := range map[string]func(*driver.Config){
		"no queue":             func(c *driver.Config) { c.Queue = "" },
		"negative partitions":  func(c *driver.Config) { c.Partitions = -1 },
		"too many partitions":  func(c *driver.Config) { c.Partitions = contract.MaxPartitions + 1 },
		"a large MaxBody":      func(c *driver.Config) { c.MaxBody = 64<<20 + 1 },
		"negative MaxAttempts": func(c *driver.Config) { c.MaxAttempts = -1 },
		"negative DeadLimit":   func(c *driver.Config) { c.DeadLimit = -3 },
		"negative DeadBytes":   func(c *driver.Config) { c.DeadBytes = -3 },
		"negative age of dead": func(c *driver.Config) { c.DeadAge = -time.Second },
	} {
		c := config()
		spoil(&c)
		_, err := q.fixture.Store.Open(t.Context(), c)
		assert.ErrorIs(t, err, driver.ErrInvalid, name)
	}
}

func closed(t *testing.T, q *queue) {
	q.put(item("a", 0))
	require.NoError(t, q.fixture.Store.Close())
	calls := callsOf(q, driver.Call{})
	calls["Open"] = func() error { _, err := q.fixture.Store.Open(t.Context(), config()); return err }
	calls["Watch"] = func() error { _, err := q.Watch(t.Context()); return err }
	if l, ok := q.fixture.Store.(driver.Lister); ok {
		calls["Queues"] = func() error { _, err := l.Queues(t.Context()); return err }
		calls["DeleteQueue"] = func() error { return l.DeleteQueue(t.Context(), "orders") }
	}
	for name, call := range calls {
		assert.ErrorIs(t, call(), driver.ErrClosed, name)
	}
}

// lister returns the store of a fixture, which must list and delete queues.
func lister(t *testing.T, f Fixture) driver.Lister {
	t.Helper()
	l, ok := f.Store.(driver.Lister)
	if !ok {
		t.Skip("this store neither lists nor deletes queues")
	}
	return l
}

// isQueues asserts the names of the queues of a store.
func isQueues(t *testing.T, l driver.Lister, want ...string) {
	t.Helper()
	names, err := l.Queues(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, names)
}

// fill brings messages of both partitions into several states.
func fill(q *queue) {
	q.t.Helper()
	q.deliver("firing")
	q.done(driver.OpBury, q.deliver("dead"))
	q.put(item("leased", 0))
	require.Len(q.t, q.claim(1), 1)
	q.put(items("due", 3)...)
	q.put(item("scheduled", far))
	_, err := q.Put(q.t.Context(), driver.Put{Partition: 1, Items: items("other", 2)})
	require.NoError(q.t, err)
}

// callsOf returns calls to a backend. A [driver.Call] makes those without a token take effect once.
func callsOf(q *queue, call driver.Call) map[string]func() error {
	ctx := q.t.Context()
	calls := map[string]func() error{
		"Put":       func() error { _, err := q.Put(ctx, driver.Put{Call: call, Items: items("b", 1)}); return err },
		"Claim":     func() error { _, err := q.Claim(ctx, driver.Claim{Max: 1, MaxBytes: 1, Visibility: far}); return err },
		"Pause":     func() error { return q.Pause(ctx, driver.Pause{Call: call, Paused: true}) },
		"Get":       func() error { _, err := q.Get(ctx, 0, "a"); return err },
		"List":      func() error { _, _, err := q.List(ctx, 0, driver.StateScheduled, "", 1); return err },
		"Count":     func() error { _, err := q.Count(ctx, 0); return err },
		"Heartbeat": func() error { _, err := q.Heartbeat(ctx, driver.Member{Name: "m"}, time.Second); return err },
		"Members":   func() error { _, err := q.Members(ctx); return err },
	}
	for op := driver.OpBegin; op <= driver.OpRepeat; op++ {
		calls[op.String()] = func() error {
			_, err := q.Apply(ctx, driver.Batch{Op: op, Call: call, Changes: []driver.Change{{ID: "a"}, {ID: "dead"}}})
			return err
		}
	}
	if auditor, ok := q.Backend.(driver.Auditor); ok {
		calls["Audit"] = func() error { _, err := auditor.Audit(ctx, 0, false); return err }
		calls["Lost"] = func() error { _, _, err := auditor.Lost(ctx, 0); return err }
	}
	return calls
}

// deleteQueue deletes one of two queues.
func deleteQueue(t *testing.T, q *queue) {
	l, other := lister(t, q.fixture), q.in(strings.Repeat("MOST_.-9", 15))
	fill(other)
	fill(q)
	isQueues(t, l, q.config.Queue, other.config.Queue)
	require.NoError(t, l.DeleteQueue(t.Context(), q.config.Queue))
	isQueues(t, l, other.config.Queue)
	for name, call := range callsOf(q, driver.Call{}) {
		err := call()
		require.ErrorIs(t, err, driver.ErrNoQueue, name)
		require.NotErrorIs(t, err, driver.ErrUnavailable, name)
	}
	for range 2 {
		require.ErrorIs(t, l.DeleteQueue(t.Context(), q.config.Queue), driver.ErrNoQueue)
	}
	c := q.config
	c.Existing = true
	_, err := q.fixture.Store.Open(t.Context(), c)
	require.ErrorIs(t, err, driver.ErrNoQueue)
	has(other, 4, 2, 1)
	other.audit(0, false, 7)
	other.audit(1, false, 2)
	has(q.reopen(), 0, 0, 0)
}

func deleteQueueWithMembers(t *testing.T, q *queue) {
	l := lister(t, q.fixture)
	q.put(item("m", far))
	q.beat("gone", q.short())
	q.beat("first", far)
	q.beat("second", far)
	q.pass()
	require.NoError(t, l.DeleteQueue(t.Context(), q.config.Queue))
	again := openAs(t, q.fixture, q.config)
	require.Empty(t, again.members())
	again.beat("first", far)
	again.beat("first", 0)
	require.NoError(t, l.DeleteQueue(t.Context(), q.config.Queue), "the last member has left")
}

// deleteAndCreate creates a deleted queue again, first with as many partitions.
func deleteAndCreate(t *testing.T, q *queue) {
	l := lister(t, q.fixture)
	fill(q)
	require.NoError(t, l.DeleteQueue(t.Context(), q.config.Queue))
	again := openAs(t, q.fixture, q.config)
	require.Equal(t, uint64(0), has(again, 0, 0, 0).Enqueued, "counters begin again")
	again.audit(0, false, 0)
	again.audit(1, false, 0)
	again.put(items("new", 3)...)
	has(q, 3, 0, 0)
	require.Len(t, again.claim(9), 3)
	for _, n := range []int{3, 1} {
		require.NoError(t, l.DeleteQueue(t.Context(), q.config.Queue))
		c := q.config
		c.Partitions = n
		last := openAs(t, q.fixture, c)
		calls := callsOf(q, driver.Call{})
		for _, name := range []string{"Put", "Pause", "Cancel", "Reschedule", "Replay", "Purge"} { // an id may be in another partition
			require.ErrorIs(t, calls[name](), driver.ErrPartitions, "%s with %d partitions", name, n)
		}
		has(last, 0, 0, 0)
	}
}
