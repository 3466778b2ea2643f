package storetest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

var restartTests = []test{
	{"Restart/States", only(kept, restartStates)},
	{"Restart/Acknowledged", only(kept, restartAcked)},
	{"Restart/Leases", only(kept, restartLeases)},
	{"Restart/Tokens", only(kept, restartTokens)},
	{"Restart/Repetition", only(kept, only(remote, restartRepetition))},
	{"Restart/Recurring", only(kept, restartRecurring)},
}

// restartStates restarts a paused partition with messages in all states. They do not change.
func restartStates(_ *testing.T, q *queue) {
	c := q.deliver("retried")
	c.Delay, c.Reason = far, "once"
	q.done(driver.OpRetry, c)
	c = q.deliver("dead")
	c.Reason = "too often"
	q.done(driver.OpBury, c)
	q.done(driver.OpExpire, q.deliver("expired"))
	q.done(driver.OpAck, q.deliver("acked"))
	q.deliver("firing")
	q.put(itemWith("leased", []byte{0, 1, 255}))
	q.claim(1)
	m := item("scheduled", 2*far)
	m.Body, m.MaxAttempts, m.Repeat = make([]byte, 100_000), 3, "daily"
	q.put(m, item("due", 0), item("never", 1<<63-1))
	before := make(map[string]driver.Record)
	for _, id := range []string{"retried", "dead", "firing", "leased", "scheduled", "due", "never"} {
		before[id] = q.get(id)
	}
	q.pause(true)
	counts := q.count()
	q = q.reopen()
	q.compareRestarted(before, counts)
}

// compareRestarted compares messages and counts after a restart with those before it.
func (q *queue) compareRestarted(before map[string]driver.Record, counts driver.Counts) {
	t := q.t
	t.Helper()
	for id, r := range before {
		got := withBody(q.get(id), r)
		if q.fixture.Embedded {
			got, r = withoutLease(got), withoutLease(r)
		}
		assert.Equal(t, r, got)
	}
	after := q.count()
	counts.Now, after.Now = 0, 0
	if q.fixture.Embedded {
		counts.Scheduled, counts.Due, counts.InFlight, counts.NextDue = 6, 3, 0,
			min(before["leased"].Due, before["firing"].Due, before["due"].Due)
		counts.Crashed = after.Crashed
	}
	assert.Equal(t, counts, after)
	q.audit(0, false, len(before))
	assert.Empty(t, q.claim(10), "paused")
	q.pause(false)
	q = q.reopen()
	claimed := idsOf(q.claim(10))
	if q.fixture.Embedded {
		assert.ElementsMatch(t, []string{"due", "leased", "firing"}, claimed)
		return
	}
	assert.Equal(t, []string{"due"}, claimed)
}

// withoutLease returns a record without its lease and crashes. The store decides whether a restart
// counts as a crash.
func withoutLease(r driver.Record) driver.Record {
	if r.State == driver.StateLeased || r.State == driver.StateFiring {
		r.State = driver.StateScheduled
	}
	if r.Crashes > 0 && r.Reason == crashReason(r.Crashes) {
		r.Reason = ""
	}
	r.Token, r.LeaseEnd, r.Crashes = 0, 0, 0
	return r
}

// restartAcked restarts after messages were removed. They do not reappear.
func restartAcked(t *testing.T, q *queue) {
	q.put(items("m", 100)...)
	changes := changesOf(q.claim(100))
	q.done(driver.OpCancel, changes[90:]...)
	q.done(driver.OpBegin, changes[:90]...)
	q.done(driver.OpAck, changes[:80]...)
	q.done(driver.OpBury, changes[80:90]...)
	q.done(driver.OpPurge, changes[80:90]...)
	q = q.reopen()
	for _, c := range changes {
		q.gone(c.ID)
	}
	assert.Empty(t, q.claimWith(driver.Claim{Horizon: far, Max: 100, Visibility: far}).Records)
	has(q, 0, 0, 0)
	assert.Equal(t, driver.StatusNotFound, q.status(driver.OpAck, changes[0]),
		"a repeated acknowledgement")
}

// restartLeases restarts while messages are leased. The tokens remain valid, and the messages are
// redelivered when their leases expire.
func restartLeases(t *testing.T, q *queue) {
	q.put(items("m", 4)...)
	changes := changesOf(q.claim(4))
	q.done(driver.OpBegin, changes[:2]...)
	q = q.reopen()
	if q.fixture.Embedded {
		checkLost(q, changes)
		return
	}
	q.done(driver.OpBegin, changes[3])
	q.done(driver.OpAck, changes[0], changes[3])
	left := changes[1:3]
	for i := range left {
		left[i].Delay = q.short()
	}
	q.done(driver.OpExtend, left...)
	q.pass()
	q = q.reopen()
	records := q.claimWith(driver.Claim{Horizon: soon, Max: 10, Visibility: far,
		MaxCrashes: 10}).Records
	require.Equal(t, []string{"m001", "m002"}, idsOf(records))
	assert.Equal(t, [2]int{1, 0}, [2]int{records[0].Crashes, records[1].Crashes})
	for i, r := range records {
		assert.Greater(t, r.Token, left[i].Token)
		assert.Equal(t, driver.StatusLeaseLost, q.status(driver.OpAck, left[i]))
	}
}

// checkLost asserts that a restart has ended leases and that their messages can be claimed
// immediately.
func checkLost(q *queue, changes []driver.Change) {
	q.t.Helper()
	for _, op := range []driver.Op{driver.OpBegin, driver.OpAck, driver.OpExtend} {
		for _, o := range q.apply(op, changes...) {
			assert.Equal(q.t, driver.StatusLeaseLost, o.Status, op.String())
		}
	}
	for _, r := range q.take(len(changes)) {
		for _, c := range changes {
			assert.Greater(q.t, r.Token, c.Token)
		}
	}
}

// restartTokens checks that tokens rise across restarts, even if no message is left.
func restartTokens(t *testing.T, q *queue) {
	var last uint64
	for range 4 {
		c := q.deliver("a")
		require.Greater(t, c.Token, last)
		last = c.Token
		q.done(driver.OpAck, c)
		q = q.reopen()
	}
}

// restartRepetition repeats calls after a restart.
func restartRepetition(t *testing.T, q *queue) {
	q.put(item("there", far))
	put := driver.Put{Call: q.newCall("p", 1), Items: []driver.PutItem{item("a", 0), item("there", 0)}}
	want := q.statuses(put)
	q = q.reopen()
	assert.Equal(t, want, q.statuses(put))
	changes := changesOf(q.claim(5))
	require.Len(t, changes, 1)
	q.done(driver.OpBegin, changes...)
	q = q.reopen()
	assert.Equal(t, want, q.statuses(put))
	q.done(driver.OpBegin, changes...)
	q.done(driver.OpRetry, changes...)
	q = q.reopen()
	q.done(driver.OpRetry, changes...)
	assert.Equal(t, 1, q.get("a").Attempts)
	q.done(driver.OpCancel, changes...)
	q = q.reopen()
	assert.Equal(t, want, q.statuses(put))
	q.gone("a")
}

// restartRecurring restarts while recurring and marked messages are in each state.
func restartRecurring(t *testing.T, q *queue) {
	q.put(recurring("marked", 0), recurring("replaced", 0), item("interrupted", 0), recurring("ended", 0))
	changes := changesOf(q.take(4))
	q.done(driver.OpBegin, changes...)
	q.put(driver.PutItem{ID: "never", At: driver.Never, Repeat: "daily"})
	q.apply(driver.OpCancel, driver.Change{ID: "marked", Interrupt: true}, driver.Change{ID: "interrupted", Interrupt: true})
	series := recurring("replaced", far)
	series.Body, series.Repeat = []byte("new"), "weekly"
	q.statuses(driver.Put{Replace: true, Items: []driver.PutItem{series}})
	q.done(driver.OpRepeat, driver.Change{ID: "ended"})
	before := make(map[string]driver.Record)
	for _, id := range []string{"marked", "replaced", "interrupted", "ended", "never"} {
		before[id] = q.get(id)
	}
	q = q.reopen()
	if q.fixture.Embedded {
		q.checkCrashed(before)
		return
	}
	for id, r := range before {
		assert.Equal(t, r, withBody(q.get(id), r))
	}
	q.done(driver.OpRelease, changes...)
	assert.Equal(t, driver.Counters{Enqueued: 6, Cancelled: 2}, has(q, 3, 0, 0).Counters)
	q.audit(0, true, 3)
}

// checkCrashed compares messages with those before a restart that has ended all leases. The marked
// ones are gone. A further crash makes a recurring one wait.
func (q *queue) checkCrashed(before map[string]driver.Record) {
	t := q.t
	t.Helper()
	q.gone("marked")
	q.gone("interrupted")
	for _, id := range []string{"replaced", "ended", "never"} {
		want := withoutLease(before[id])
		want.Due = max(want.Due, want.Planned)
		assert.Equal(t, want, withBody(withoutLease(q.get(id)), want))
	}
	assert.Equal(t, driver.Counters{Enqueued: 6, Crashed: 4, Cancelled: 2}, has(q, 3, 0, 0).Counters)
	q.done(driver.OpCancel, driver.Change{ID: "ended"}, driver.Change{ID: "never"})
	q.done(driver.OpReschedule, driver.Change{ID: "replaced"})
	before["replaced"] = q.get("replaced")
	q.beginNext()
	q = q.reopen()
	claim := driver.Claim{Horizon: 3 * far, Max: 9, Visibility: far, MaxCrashes: 2}
	claimed := q.claimWith(claim)
	assert.Empty(t, claimed.Records)
	assert.Equal(t, driver.Never, claimed.Next)
	r := q.get("replaced")
	assert.Equal(t, []any{driver.Never, crashReason(2), before["replaced"].Planned}, []any{r.Due, r.Reason, r.Planned})
	assert.Equal(t, driver.Counters{Enqueued: 6, Crashed: 5, Cancelled: 4}, has(q, 1, 0, 0).Counters)
	q.audit(0, true, 1)
	q.done(driver.OpReschedule, driver.Change{ID: "replaced"})
	assert.Equal(t, []string{"replaced"}, idsOf(q.claimWith(claim).Records))
}

// withBody returns a record with the empty body of another one: nil or not.
func withBody(r, other driver.Record) driver.Record {
	if len(r.Body) == 0 && len(other.Body) == 0 {
		r.Body = other.Body
	}
	return r
}
