package storetest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

var leaseTests = []test{
	{"Lease/EndsLeased", leaseEndsLeased},
	{"Lease/EndsFiring", leaseEndsFiring},
	{"Lease/Crashes", leaseCrashes},
	{"Lease/SuspectBeginsOnlyByBegin", leaseSuspect},
	{"Lease/ExpiredButNotEnded", leaseNotNoticed},
	{"Lease/Extended", leaseExtended},
	{"Lease/Batch", leaseBatch},
	{"Lease/AheadOfTime", leaseAhead},
}

// leaseEndsLeased lets the lease of a leased message expire. The message is scheduled again,
// unchanged.
func leaseEndsLeased(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	q.put(itemWith("a", []byte("body")))
	was := q.get("a")
	records := q.claimShort(1)
	require.Len(t, records, 1)
	q.pass()
	c := q.expire(1)
	assert.Equal(t, was.Due, c.Next)
	assert.Zero(t, c.Lease)
	r := q.get("a")
	r.Token = was.Token
	assert.Equal(t, was, r)
	assert.Equal(t, driver.StatusLeaseLost, q.status(driver.OpBegin, changesOf(records)[0]))
	again := q.take(1) // a claim that ends a lease, or the next one, returns the message
	assert.Greater(t, again[0].Token, records[0].Token)
	assert.Equal(t, driver.StatusLeaseLost, q.status(driver.OpBegin, changesOf(records)[0]))
	assert.Zero(t, q.count().Crashed, "it had not begun")
}

// leaseEndsFiring lets the lease of a firing message expire. The claim that ends the lease claims
// the message.
func leaseEndsFiring(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	q.put(item("a", 0))
	was := q.get("a")
	first := q.claim(1)
	begin := driver.Batch{Op: driver.OpBegin, Visibility: q.short(), Changes: changesOf(first)}
	assert.Equal(t, driver.StatusDone, q.batch(begin)[0].Status)
	q.pass()
	c := q.claimWith(driver.Claim{Horizon: soon, Max: 10, Visibility: far, MaxCrashes: 10})
	require.Len(t, c.Records, 1)
	r := c.Records[0]
	assert.Equal(t, 1, r.Crashes)
	assert.Zero(t, r.Attempts, "a crash is not a failed attempt")
	assert.Equal(t, was.Due, r.Due)
	assert.Equal(t, crashReason(1), r.Reason)
	assert.Greater(t, r.Token, first[0].Token)
	for op := driver.OpBegin; op <= driver.OpExtend; op++ {
		assert.Equal(t, driver.StatusLeaseLost, q.status(op, begin.Changes[0]), op.String())
	}
	assert.Equal(t, r, q.get("a"), "the late holder changed nothing")
	q.begin(r)
	q.done(driver.OpAck, changesOf(c.Records)...)
	assert.Equal(t, uint64(1), q.count().Crashed)
}

// leaseCrashes lets the leases of a firing message expire until it is dead. It is due again after a
// delay, and has the reason of its last crash.
func leaseCrashes(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	q.put(item("a", 0))
	const most = 3
	for crash := 1; crash <= most; crash++ {
		records := q.claimWith(driver.Claim{Horizon: soon, Max: 1, Visibility: q.short(),
			MaxCrashes: most}).Records
		require.Len(t, records, 1)
		assert.Equal(t, crash-1, records[0].Crashes)
		q.batch(driver.Batch{Op: driver.OpBegin, Visibility: q.short(), Changes: changesOf(records)})
		q.pass()
		before := q.now()
		q.expire(most)
		r := q.get("a")
		assert.Equal(t, crash, r.Crashes)
		assert.Equal(t, crashReason(crash), r.Reason)
		if delay := driver.CrashDelay(crash); delay > 0 {
			assertDelay(t, before, q.now(), delay, r.Due)
		}
		if crash < most {
			assert.Equal(t, driver.StateScheduled, r.State)
			q.done(driver.OpReschedule, driver.Change{ID: "a"})
			continue
		}
		assert.Equal(t, driver.StateDead, r.State)
		assert.GreaterOrEqual(t, r.Died, driver.Instant(before.UnixMilli()))
		assert.LessOrEqual(t, r.Died, driver.InstantOf(q.now()))
	}
	assert.Empty(t, q.claim(1))
	assert.Equal(t, uint64(most), has(q, 0, 0, 1).Crashed)
	q.done(driver.OpReplay, driver.Change{ID: "a"})
	r := q.get("a")
	assert.Equal(t, []any{driver.StateScheduled, 0, driver.Instant(0)}, []any{r.State, r.Crashes, r.Died})
}

// leaseSuspect claims a message that has crashed four times, without a limit. It does not begin
// with its claim. Its holder keeps its crashes and their reason, and a replay ends them.
func leaseSuspect(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	q.put(item("a", 0))
	for range 4 {
		q.done(driver.OpReschedule, driver.Change{ID: "a"})
		q.batch(driver.Batch{Op: driver.OpBegin, Visibility: q.short(), Changes: changesOf(q.claimShort(1))})
		q.pass()
		q.expire(0)
	}
	claim := driver.Claim{Max: 1, Begin: 1, Visibility: far}
	for _, op := range []driver.Op{driver.OpReschedule, driver.OpRelease, driver.OpBury, driver.OpReplay} {
		r := q.get("a")
		require.Equal(t, []any{4, crashReason(4)}, []any{r.Crashes, r.Reason})
		if op == driver.OpRelease || op == driver.OpBury {
			records := q.claimWith(claim).Records
			require.Len(t, records, 1)
			q.begin(records...)
			r.Token = records[0].Token
		}
		q.done(op, driver.Change{ID: "a", Token: r.Token, Reason: r.Reason})
	}
	assert.Equal(t, driver.StateFiring, q.claimWith(claim).Records[0].State)
}

// leaseNotNoticed uses leases that have expired and that no claim has ended. They are still valid.
func leaseNotNoticed(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	q.put(items("m", 6)...)
	changes := changesOf(q.claimShort(6))
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

func leaseExtended(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	q.put(items("m", 3)...)
	changes := changesOf(q.claimShort(3))
	q.batch(driver.Batch{Op: driver.OpBegin, Visibility: q.short(), Changes: changes[1:2]})
	for i := range changes {
		changes[i].Delay = far
	}
	q.done(driver.OpExtend, changes[:2]...)
	q.pass()
	c := q.expire(1)
	assert.Equal(t, []driver.State{driver.StateLeased, driver.StateFiring, driver.StateScheduled},
		[]driver.State{q.get("m000").State, q.get("m001").State, q.get("m002").State})
	assert.Equal(t, min(q.get("m000").LeaseEnd, q.get("m001").LeaseEnd), c.Lease)
}

// leaseBatch lets more leases expire than one claim handles. A few claims end all of them.
func leaseBatch(t *testing.T, newStore Factory) {
	q := open(t, newStore)
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

// leaseAhead claims a message ahead of its due time. The lease does not expire before the message
// is due.
func leaseAhead(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	q.put(item("a", far))
	records := q.claimWith(driver.Claim{Horizon: 2 * far, Max: 1, Visibility: q.short()}).Records
	require.Len(t, records, 1)
	q.pass()
	assert.Equal(t, records[0].LeaseEnd, q.expire(1).Lease)
	assert.Equal(t, driver.StateLeased, q.get("a").State)
	q.done(driver.OpExtend, driver.Change{ID: "a", Token: records[0].Token, Delay: far})
}
