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

var callTests = []test{
	{"Call/Put", only(remote, callPut)},
	{"Call/Apply", only(remote, callApply)},
	{"Call/Callers", only(remote, callers)},
	{"Call/Rejected", only(remote, callRejected)},
	{"Call/Forgotten", only(remote, only(movable, callForgotten))},
}

// newCall returns a call that may take effect within a minute.
func (q *queue) newCall(caller string, seq uint64) driver.Call {
	q.t.Helper()
	return driver.Call{Caller: caller, Seq: seq, NotAfter: driver.InstantOf(q.now()).Add(time.Minute)}
}

// call makes a transition of one message without a token.
func (q *queue) call(op driver.Op, c driver.Call, id string, delay time.Duration) driver.Status {
	q.t.Helper()
	return q.batch(driver.Batch{Op: op, Call: c, Changes: []driver.Change{{ID: id, Delay: delay}}})[0].Status
}

// callPut repeats a put while its messages change, and when they are gone. The repetition must not
// restore them.
func callPut(t *testing.T, q *queue) {
	batch := items("m", driver.MaxBatch)
	q.put(batch[1])
	put := driver.Put{Call: q.newCall("p", 1), Items: batch}
	want := mapped(batch, func(driver.PutItem) driver.Status { return driver.StatusDone })
	want[1] = driver.StatusDuplicate
	repeat := func(what string) {
		t.Helper()
		assert.Equal(t, want, q.statuses(put), what)
		put.Call.NotAfter = put.Call.NotAfter.Add(time.Second) // copies may differ in NotAfter
	}
	repeat("first")
	repeat("again")
	assert.Equal(t, uint64(driver.MaxBatch), has(q, driver.MaxBatch, 0, 0).Enqueued, "a repetition is not counted")
	records := q.take(driver.MaxBatch)
	repeat("leased")
	q.begin(records...)
	repeat("firing")
	q.done(driver.OpAck, changesOf(records)...)
	repeat("acknowledged")
	has(q, 0, 0, 0)

	put.Call.Seq, put.Items = 3, batch[:1] // a call that never arrived leaves a gap in the numbers
	want = want[:1]
	repeat("another number is another call")
	put.Call.Seq, want[0] = 4, driver.StatusDuplicate
	repeat("another number is another call")
}

// callOps are the transitions with a driver.Call and without a token.
var callOps = []driver.Op{driver.OpCancel, driver.OpReschedule, driver.OpReplay, driver.OpPurge, driver.OpRepeat}

// callApply repeats each transition without a token after its message has changed. The answer is
// the same, and nothing changes.
func callApply(t *testing.T, q *queue) {
	all := mapped(callOps, func(op driver.Op) driver.PutItem { return itemWith(op.String(), []byte("body")) })
	for _, state := range allStates {
		a := arrange(q.in(state), state, all...)
		c := a.newCall("caller", 7)
		for _, op := range callOps {
			id, what := op.String(), op.String()+" of "+state+" again"
			first := a.call(op, c, id, far)
			a.statuses(driver.Put{Items: []driver.PutItem{item(id, 0)}})
			record, counts := a.get(id), a.count()
			for range 2 {
				assert.Equal(t, first, a.call(op, c, id, far), what)
			}
			after := a.count()
			after.Now, after.Due = counts.Now, counts.Due
			assert.Equal(t, counts, after, what)
			assert.Equal(t, record, a.get(id), what)
			c.Seq++
		}
	}
}

// callers checks that a store remembers each caller's last call.
func callers(t *testing.T, q *queue) {
	put := func(partition int, caller string, seq uint64) driver.Status {
		t.Helper()
		return q.statuses(driver.Put{Partition: partition, Call: q.newCall(caller, seq), Items: items("a", 1)})[0]
	}
	assert.Equal(t, driver.StatusDone, put(0, "p", 1))
	assert.Equal(t, driver.StatusDuplicate, put(0, "q", 1), "another caller with the same number")
	assert.Equal(t, driver.StatusDone, put(1, "p", 1), "the same call in another partition")
	assert.Equal(t, driver.StatusDuplicate, put(0, "", 1), "a call without a caller has no copies")
	assert.Equal(t, driver.StatusDone, put(0, "p", 1))
	for i := range 50 {
		name := fmt.Sprintf("other%d", i)
		assert.Equal(t, driver.StatusDuplicate, put(0, name, 1), name)
	}
	assert.Equal(t, driver.StatusDone, put(0, "p", 1), "remembered with the others")
	assert.Equal(t, driver.StatusDone, put(1, "p", 1))
}

// callRejected makes each kind of call after its NotAfter, with a NotAfter for which the store
// would have to remember the call for too long, and after a later call by its caller. They change
// nothing.
func callRejected(t *testing.T, q *queue) {
	q.done(driver.OpBury, q.deliver("dead"))
	q.put(item("a", far))
	now := driver.InstantOf(q.now())
	for _, name := range append(mapped(callOps, driver.Op.String), "Put", "Pause") {
		q.statuses(driver.Put{Call: driver.Call{Caller: name, Seq: 2, NotAfter: now.Add(time.Minute)},
			Items: []driver.PutItem{item("a", 0)}}) // a duplicate
		before := q.count()
		for what, c := range map[string]driver.Call{
			"late":          {Caller: name, Seq: 3, NotAfter: now - 1000},
			"too far ahead": {Caller: name, Seq: 3, NotAfter: now.Add(contract.MaxAhead + time.Hour)},
			"older":         {Caller: name, Seq: 1, NotAfter: now.Add(time.Minute)},
		} {
			var late *driver.LateError
			err := callsOf(q, c)[name]()
			require.ErrorAs(t, err, &late, "%s %s", what, name)
			require.NotErrorIs(t, err, driver.ErrUnavailable, "the rejection is definite")
			assert.GreaterOrEqual(t, late.Now, now-1)
			assert.False(t, late.Unknown, "the store has forgotten no call")
		}
		after := q.count()
		after.Now = before.Now
		assert.Equal(t, before, after, name)
	}
	put := driver.Put{Call: driver.Call{Caller: "Put", Seq: 3, NotAfter: now.Add(contract.MaxAhead - time.Minute)}, Items: items("b", 1)}
	assert.Equal(t, []driver.Status{driver.StatusDone}, q.statuses(put), "a call with the number of a rejected one")
}

// callForgotten makes calls that can no longer take effect. Calls from other callers make the store
// forget them. A copy of a forgotten call is rejected, and is not mistaken for a new call.
func callForgotten(t *testing.T, q *queue) {
	var calls []driver.Put
	for i := range 40 {
		put := driver.Put{Call: q.newCall(fmt.Sprint("p", i), 1), Items: items(fmt.Sprint(i, "-"), 1)}
		assert.Equal(t, []driver.Status{driver.StatusDone}, q.statuses(put))
		calls = append(calls, put)
	}
	endClaimed(q, driver.OpAck, len(calls))
	q.fixture.Advance(2 * time.Minute)
	last := q.newCall("", 1)
	for i := range 100 {
		last.Caller = fmt.Sprint("new", i)
		q.statuses(driver.Put{Call: last, Items: items("same", 1)})
	}
	unknown := 0
	for _, put := range calls {
		_, err := q.Put(t.Context(), put)
		q.gone(put.Items[0].ID)
		var late *driver.LateError
		if err == nil {
			continue // the store still remembers it
		}
		require.ErrorAs(t, err, &late)
		if late.Unknown {
			unknown++
		}
	}
	assert.Greater(t, unknown, 20, "forgotten calls")
}
