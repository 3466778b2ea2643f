package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// Durations: soon is within a claim's horizon and far is not, even on a slow machine.
const soon, far = time.Second, time.Hour

// manyBytes is a claim limit that no test reaches.
const manyBytes = 256 << 20

// config returns the queue that most tests use.
func config() driver.Config {
	return driver.Config{Queue: "orders", Partitions: 2, DeadLimit: 1000, DeadBytes: 1 << 30, DeadAge: 24 * time.Hour}
}

// queue is a queue under test. Its methods use partition 0, and fail the test if the store returns
// an error.
type queue struct {
	t       *testing.T
	fixture Fixture
	config  driver.Config
	driver.Backend
}

func openAs(t *testing.T, f Fixture, c driver.Config) *queue {
	t.Helper()
	b, err := f.Store.Open(t.Context(), c)
	require.NoError(t, err)
	return &queue{t: t, fixture: f, config: c, Backend: b}
}

// in opens another queue of the same store, with other options.
func (q *queue) in(name string, options ...func(*driver.Config)) *queue {
	q.t.Helper()
	c := q.config
	c.Queue += "-" + name
	for _, set := range options {
		set(&c)
	}
	return openAs(q.t, q.fixture, c)
}

// reopen restarts the store, if it keeps its data, and opens the queue again.
func (q *queue) reopen() *queue {
	q.t.Helper()
	return openAs(q.t, reopened(q.t, q.fixture), q.config)
}

// reopened returns a fixture after a restart, or unchanged if the store keeps no data.
func reopened(t *testing.T, f Fixture) Fixture {
	t.Helper()
	if f.Reopen != nil {
		f.Store = f.Reopen(t)
	}
	return f
}

// short is a duration that the suite can wait for.
func (q *queue) short() time.Duration {
	if q.fixture.Advance != nil {
		return time.Minute
	}
	return 30 * time.Millisecond
}

// pass lets slightly more than a short time pass on the store's clock.
func (q *queue) pass() {
	if q.fixture.Advance != nil {
		q.fixture.Advance(q.short() + time.Second)
		return
	}
	time.Sleep(q.short() + 10*time.Millisecond)
}

// now returns the store's clock. A claim of partition 1, which these tests leave empty, reads it.
func (q *queue) now() time.Time {
	q.t.Helper()
	c, err := q.Claim(q.t.Context(), driver.Claim{Partition: 1})
	require.NoError(q.t, err)
	require.False(q.t, c.Now.IsZero(), "Claimed.Now")
	return c.Now
}

// crashReason returns the reason of a message that this process has begun and not settled.
func crashReason(crashes int) string {
	return fmt.Sprintf("the consumer process ended or hung %d times during delivery, last %s", crashes, contract.Process())
}

// item returns a message without a body.
func item(id string, delay time.Duration) driver.PutItem {
	return driver.PutItem{ID: id, Delay: delay, MaxAttempts: 25}
}

// itemWith returns a message with a body that is already due.
func itemWith(id string, body []byte) driver.PutItem {
	return driver.PutItem{ID: id, Body: body, MaxAttempts: 25}
}

// itemAt returns a message without a body that is due at an instant.
func itemAt(id string, at driver.Instant) driver.PutItem {
	return driver.PutItem{ID: id, At: at, MaxAttempts: 25}
}

// recurring returns a recurring message without a body.
func recurring(id string, delay time.Duration) driver.PutItem {
	return driver.PutItem{ID: id, Delay: delay, MaxAttempts: 25, Repeat: "daily"}
}

// items returns n messages that are already due: prefix000, prefix001 and so on.
func items(prefix string, n int) []driver.PutItem {
	all := make([]driver.PutItem, n)
	for i := range all {
		id := fmt.Sprintf("%s%03d", prefix, i)
		all[i] = itemWith(id, []byte(id))
	}
	return all
}

// put stores new messages.
func (q *queue) put(items ...driver.PutItem) {
	q.t.Helper()
	for i, s := range q.statuses(driver.Put{Items: items}) {
		require.Equal(q.t, driver.StatusDone, s, "put %q", items[i].ID)
	}
}

func (q *queue) statuses(p driver.Put) []driver.Status {
	q.t.Helper()
	statuses, err := q.Put(q.t.Context(), p)
	require.NoError(q.t, err)
	require.Len(q.t, statuses, len(p.Items))
	return statuses
}

// claim leases up to n messages that are due soon, for a long time.
func (q *queue) claim(n int) []driver.Record {
	q.t.Helper()
	return q.claimWith(driver.Claim{Horizon: soon, Max: n, Visibility: far}).Records
}

// take claims n messages, which must be due soon.
func (q *queue) take(n int) []driver.Record {
	q.t.Helper()
	records := q.claim(n)
	require.Len(q.t, records, n)
	return records
}

// claimWith makes a claim. If MaxBytes is 0, the size of bodies is not limited.
func (q *queue) claimWith(c driver.Claim) driver.Claimed {
	q.t.Helper()
	if c.MaxBytes == 0 {
		c.MaxBytes = manyBytes
	}
	claimed, err := q.Claim(q.t.Context(), c)
	require.NoError(q.t, err)
	require.LessOrEqual(q.t, len(claimed.Records), c.Max)
	for i, r := range claimed.Records {
		state := driver.StateLeased
		if i < c.Begin && r.Due <= driver.Instant(claimed.Now.UnixMilli()) && contract.CrashDelay(r.Crashes) == 0 {
			state = driver.StateFiring
		}
		require.Equal(q.t, state, r.State, "state of %q in the claim", r.ID)
		require.NotZero(q.t, r.Token, "token of %q", r.ID)
	}
	return claimed
}

// expire makes a claim that only ends expired leases.
func (q *queue) expire(maxCrashes int) driver.Claimed {
	q.t.Helper()
	return q.claimWith(driver.Claim{MaxCrashes: maxCrashes})
}

// apply makes a transition of messages. Leases end far in the future.
func (q *queue) apply(op driver.Op, changes ...driver.Change) []driver.Outcome {
	q.t.Helper()
	return q.batch(driver.Batch{Op: op, Visibility: far, Changes: changes})
}

func (q *queue) batch(b driver.Batch) []driver.Outcome {
	q.t.Helper()
	outcomes, err := q.Apply(q.t.Context(), b)
	require.NoError(q.t, err)
	require.Len(q.t, outcomes, len(b.Changes))
	for i, o := range outcomes {
		require.False(q.t, o.Now.IsZero(), "Outcome.Now")
		require.True(q.t, o.Now.Equal(outcomes[0].Now), "Outcome.Now differs within a batch")
		require.NotZero(q.t, o.Status, "status of %q", b.Changes[i].ID)
	}
	return outcomes
}

// done makes a transition that must succeed.
func (q *queue) done(op driver.Op, changes ...driver.Change) []driver.Outcome {
	q.t.Helper()
	outcomes := q.apply(op, changes...)
	for i, o := range outcomes {
		require.Equal(q.t, driver.StatusDone, o.Status, "%s of %q", op.String(), changes[i].ID)
	}
	return outcomes
}

// status makes one change and returns its status.
func (q *queue) status(op driver.Op, c driver.Change) driver.Status {
	q.t.Helper()
	return q.apply(op, c)[0].Status
}

// begin begins claimed messages, for a long time.
func (q *queue) begin(records ...driver.Record) {
	q.t.Helper()
	q.done(driver.OpBegin, changesOf(records)...)
}

// deliver stores a message and begins it.
func (q *queue) deliver(id string) driver.Change {
	q.t.Helper()
	q.put(item(id, 0))
	c := q.beginNext()
	require.Equal(q.t, id, c.ID)
	return c
}

// beginNext begins a message, which must be the only one that is due.
func (q *queue) beginNext() driver.Change {
	q.t.Helper()
	records := q.take(1)
	q.begin(records...)
	return changesOf(records)[0]
}

// endClaimed claims, begins and ends n messages.
func endClaimed(q *queue, op driver.Op, n int) []driver.Record {
	q.t.Helper()
	records := q.take(n)
	q.begin(records...)
	q.done(op, changesOf(records)...)
	return records
}

// changesOf returns changes of records with their tokens.
func changesOf(records []driver.Record) []driver.Change {
	return mapped(records, func(r driver.Record) driver.Change { return driver.Change{ID: r.ID, Token: r.Token} })
}

func idsOf(records []driver.Record) []string {
	return mapped(records, func(r driver.Record) string { return r.ID })
}

func itemIDs(items []driver.PutItem) []string {
	return mapped(items, func(m driver.PutItem) string { return m.ID })
}

// mapped returns the results of a function for all values.
func mapped[T, R any](values []T, f func(T) R) []R {
	results := make([]R, len(values))
	for i, v := range values {
		results[i] = f(v)
	}
	return results
}

// get returns a message, which must exist.
func (q *queue) get(id string) driver.Record {
	q.t.Helper()
	r, err := q.Get(q.t.Context(), 0, id)
	require.NoError(q.t, err, "get %q", id)
	require.Equal(q.t, id, r.ID)
	return r
}

// gone asserts that a message does not exist.
func (q *queue) gone(id string) {
	q.t.Helper()
	_, err := q.Get(q.t.Context(), 0, id)
	require.ErrorIs(q.t, err, driver.ErrNotFound, "get %q", id)
}

// readPages reads all pages of a list. There must be at most a given number of them.
func readPages(q *queue, state driver.State, limit, most int) (pages [][]driver.Record) {
	q.t.Helper()
	for cursor := ""; cursor != "" || len(pages) == 0; {
		require.Less(q.t, len(pages), most, "the pages do not end")
		records, next, err := q.List(q.t.Context(), 0, state, cursor, limit)
		require.NoError(q.t, err)
		require.LessOrEqual(q.t, len(records), limit)
		pages, cursor = append(pages, records), next
	}
	return pages
}

// audit asserts that an audit finds n records and no fault, if the store has audits.
func (q *queue) audit(partition int, repair bool, n int) {
	q.t.Helper()
	if auditor, ok := q.Backend.(driver.Auditor); ok {
		report, err := auditor.Audit(q.t.Context(), partition, repair)
		require.NoError(q.t, err)
		require.Equal(q.t, driver.AuditReport{Records: int64(n)}, report)
		lost, _, err := auditor.Lost(q.t.Context(), partition)
		require.Equal(q.t, []any{uint64(0), nil}, []any{lost, err})
	}
}

func (q *queue) count() driver.Counts {
	q.t.Helper()
	c, err := q.Count(q.t.Context(), 0)
	require.NoError(q.t, err)
	return c
}

// has asserts the numbers of messages and returns the counts.
func has(q *queue, scheduled, inFlight, dead int64) driver.Counts {
	q.t.Helper()
	c := q.count()
	assert.Equal(q.t, [3]int64{scheduled, inFlight, dead}, [3]int64{c.Scheduled, c.InFlight, c.Dead})
	return c
}
