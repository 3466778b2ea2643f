package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

var leaseTests = []test{
	{"Lease/Ends", leaseEnds},
	{"Lease/Crashes", leaseCrashes},
	{"Lease/CrashesOfRecurring", leaseCrashesRecurring},
	{"Lease/EndOfMarked", leaseEndOfMarked},
	{"Lease/ExpiredButNotEnded", leaseNotNoticed},
	{"Lease/Batch", leaseBatch},
}

// leaseEnds lets leases expire. The claim that ends them claims the messages again. A message that
// had begun has a crash, and the other one is unchanged. Leases that were extended do not expire,
// and neither do leases of messages that are not due.
func leaseEnds(t *testing.T, q *queue) {
	q.put(item("ahead", far), item("extended", 0), item("firing", 0), item("leased", 0), item("running", 0))
	was, held := make(map[string]driver.Record), make(map[string]driver.Change)
	for _, r := range q.claimWith(driver.Claim{Horizon: 2 * far, Max: 5, Visibility: q.short()}).Records {
		was[r.ID], held[r.ID] = r, driver.Change{ID: r.ID, Token: r.Token, Delay: far}
	}
	q.batch(driver.Batch{Op: driver.OpBegin, Visibility: q.short(), Changes: []driver.Change{held["firing"], held["running"]}})
	q.done(driver.OpExtend, held["extended"], held["running"])
	if q.fixture.Advance != nil { // a lease expires at its end, and not before
		q.fixture.Advance(q.get("firing").LeaseEnd.Time().Sub(q.now()) - time.Second)
		q.expire(10)
		has(q, 0, 5, 0)
		q.fixture.Advance(time.Second)
	} else {
		q.pass()
	}
	c := q.claimWith(driver.Claim{Horizon: soon, Max: 10, Visibility: far, MaxCrashes: 10})
	require.Equal(t, []string{"firing", "leased"}, idsOf(c.Records))
	assert.Zero(t, c.Next)
	assert.Equal(t, min(q.get("ahead").LeaseEnd, q.get("extended").LeaseEnd, q.get("running").LeaseEnd), c.Lease)
	assert.Equal(t, driver.StateLeased, q.get("ahead").State)
	for _, r := range c.Records {
		want := was[r.ID]
		assert.Greater(t, r.Token, want.Token)
		want.Token, want.LeaseEnd = r.Token, r.LeaseEnd
		if r.ID == "firing" {
			want.Crashes, want.Reason = 1, crashReason(1)
		}
		assert.Equal(t, want, r)
		for op := driver.OpBegin; op <= driver.OpExtend; op++ {
			assert.Equal(t, driver.StatusLeaseLost, q.status(op, held[r.ID]), op.String())
		}
		assert.Equal(t, r, q.get(r.ID), "the late holder changed nothing")
	}
	q.begin(c.Records...)
	q.done(driver.OpAck, changesOf(c.Records)...)
	assert.Equal(t, uint64(1), has(q, 0, 3, 0).Crashed)
}

// crash makes message "a" due and lets its lease expire during its delivery.
func crash(m *model, most int) {
	m.t.Helper()
	m.change(driver.OpReschedule, driver.Change{ID: "a"})
	m.makeChanges(driver.Batch{Op: driver.OpBegin, Visibility: m.short(), Changes: m.hold(m.short())}, m.now())
	m.pass()
	m.makeClaim(driver.Claim{MaxCrashes: most}, m.now())
	m.compareLists(driver.MaxBatch)
}

// leaseCrashes lets the lease of a firing message expire until it is dead. The message is due again
// after a delay, and has the reason of its last crash. After several crashes it does not begin with
// its claim, until it is replayed.
func leaseCrashes(t *testing.T, q *queue) {
	m := newModel(q)
	a := driver.Change{ID: "a"}
	claim := func(state driver.State) []driver.Change {
		t.Helper()
		records := m.makeClaim(driver.Claim{Max: 1, Begin: 1, Visibility: far}, m.now())
		require.Len(t, records, 1)
		assert.Equal(t, state, records[0].State)
		return changesOf(records)
	}
	m.store(false, item("a", 0))
	const most = 5
	for range most - 1 {
		crash(m, most)
	}
	m.change(driver.OpReschedule, a)
	m.change(driver.OpRelease, claim(driver.StateLeased)...)
	crash(m, most)
	assert.Equal(t, driver.StateDead, m.get("a").State)
	assert.Empty(t, m.hold(far))
	m.change(driver.OpReplay, a)
	crash(m, most)
	m.change(driver.OpBury, claim(driver.StateFiring)...)
}

// leaseNotNoticed uses leases that have expired and that no claim has ended. They are still valid.
func leaseNotNoticed(t *testing.T, q *queue) {
	q.put(items("m", 6)...)
	changes := changesOf(q.claimWith(driver.Claim{Horizon: soon, Max: 6, Visibility: q.short()}).Records)
	q.batch(driver.Batch{Op: driver.OpBegin, Visibility: q.short(), Changes: changes[:4]})
	q.pass()
	assert.Equal(t, int64(6), q.count().InFlight)
	assert.Equal(t, driver.StatusFiring, q.status(driver.OpCancel, changes[0]))
	q.done(driver.OpAck, changes[0])
	q.done(driver.OpRetry, changes[1])
	q.done(driver.OpBury, changes[2])
	changes[3].Delay = far
	q.done(driver.OpExtend, changes[3])
	q.done(driver.OpBegin, changes[4])
	q.done(driver.OpCancel, changes[5])
	assert.Zero(t, q.expire(1).Records)
	assert.Zero(t, has(q, 1, 2, 1).Crashed)
}

// leaseBatch lets more leases expire than one claim handles. A few claims end all of them.
func leaseBatch(t *testing.T, q *queue) {
	const n = 2*driver.MaxBatch + 10
	for i := 0; i < n; i += 58 {
		q.put(items(string(rune('a'+i/58)), min(58, n-i))...)
	}
	var changes []driver.Change
	for range n/driver.MaxBatch + 1 {
		changes = append(changes, changesOf(q.claim(driver.MaxBatch))...)
	}
	for i := range changes {
		changes[i].Delay = q.short()
	}
	for i := 0; i < n; i += n / 6 {
		batch := changes[i : i+n/6]
		q.batch(driver.Batch{Op: driver.OpBegin, Visibility: q.short(), Changes: batch[:len(batch)/2]})
		q.done(driver.OpExtend, batch[len(batch)/2:]...)
	}
	require.Equal(t, int64(n), q.count().InFlight)
	q.pass()
	for range n/64 + 1 {
		c := q.expire(10)
		if c.Lease == 0 {
			break
		}
		assert.LessOrEqual(t, c.Lease, driver.InstantOf(c.Now), "the remaining leases have expired as well")
	}
	assert.Equal(t, uint64(6*(n/6/2)), has(q, n, 0, 0).Crashed)
	got := 0
	for range n/driver.MaxBatch + 1 {
		got += len(q.claim(driver.MaxBatch))
	}
	assert.Equal(t, n, got)
}

// leaseCrashesRecurring lets recurring messages crash too often. They wait for Replay, and do not
// become dead.
func leaseCrashesRecurring(t *testing.T, q *queue) {
	m := newModel(q)
	m.store(false, recurring("a", 0), itemAt("never", driver.Never))
	a := driver.Change{ID: "a"}
	for range 2 {
		crash(m, 2)
	}
	r := m.get("a")
	assert.Equal(t, []any{driver.Never, 2, crashReason(2)}, []any{r.Due, r.Crashes, r.Reason})
	assert.Empty(t, m.hold(far))
	m.change(driver.OpReplay, driver.Change{ID: "never"}, driver.Change{ID: "a", Incarnation: r.Enqueued})
	m.change(driver.OpPurge, a)
	m.change(driver.OpReplay, driver.Change{ID: "a", Delay: far})
	m.change(driver.OpReplay, a) // it does not wait
	m.audit(0, true, 2)
}

// leaseEndOfMarked lets the leases of marked messages expire. The messages are removed.
func leaseEndOfMarked(t *testing.T, q *queue) {
	m := newModel(q)
	m.store(false, recurring("a", 0), item("b", 0), recurring("c", 0))
	changes := m.hold(q.short())
	m.makeChanges(driver.Batch{Op: driver.OpBegin, Visibility: q.short(), Changes: changes}, m.now())
	m.change(driver.OpCancel, driver.Change{ID: "a", Interrupt: true}, driver.Change{ID: "b", Interrupt: true})
	m.pass()
	m.makeClaim(driver.Claim{MaxCrashes: 1}, m.now())
	m.change(driver.OpAck, changes[0])
	m.gone("b")
	assert.Equal(t, driver.Never, m.get("c").Due, "it has reached MaxCrashes")
	m.audit(0, true, 1)
}
