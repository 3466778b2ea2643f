package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

var callTests = []test{
	{"Call/Put", callPut},
	{"Call/PutLater", callPutLater},
	{"Call/Apply", callApply},
	{"Call/Callers", callers},
	{"Call/Late", callLate},
	{"Call/TooFarAhead", callTooFarAhead},
	{"Call/Forgotten", callForgotten},
}

// openRemote opens a queue like open. It skips the test if no call or answer of the store is lost.
func openRemote(t *testing.T, newStore Factory) *queue {
	t.Helper()
	q := open(t, newStore)
	if !q.fixture.Remote {
		t.Skip("this store loses no calls and answers")
	}
	return q
}

// newCall returns a call that may take effect within a minute.
func (q *queue) newCall(caller string, seq uint64) driver.Call {
	q.t.Helper()
	return driver.Call{Caller: caller, Seq: seq,
		NotAfter: driver.InstantOf(q.now()).Add(time.Minute)}
}

// call makes a transition of one message without a token.
func (q *queue) call(op driver.Op, c driver.Call, id string, delay time.Duration) driver.Status {
	q.t.Helper()
	return q.batch(driver.Batch{Op: op, Call: c,
		Changes: []driver.Change{{ID: id, Delay: delay}}})[0].Status
}

// assertLate asserts that a put is rejected, and returns the error.
func (q *queue) assertLate(put driver.Put) *driver.LateError {
	q.t.Helper()
	before := q.count()
	_, err := q.Put(q.t.Context(), put)
	var late *driver.LateError
	require.ErrorAs(q.t, err, &late)
	require.NotErrorIs(q.t, err, driver.ErrUnavailable, "the rejection is definite")
	after := q.count()
	before.Now, after.Now, before.Due, after.Due = 0, 0, 0, 0
	require.Equal(q.t, before, after)
	return late
}

func callPut(t *testing.T, newStore Factory) {
	q := openRemote(t, newStore)
	q.put(item("there", 0))
	put := driver.Put{Call: q.newCall("p", 1),
		Items: []driver.PutItem{item("a", 0), item("there", 0), item("b", 0)}}
	want := []driver.Status{driver.StatusDone, driver.StatusDuplicate, driver.StatusDone}
	for range 3 {
		assert.Equal(t, want, q.statuses(put))
		put.Call.NotAfter = put.Call.NotAfter.Add(time.Second) // copies may differ in NotAfter
	}
	c := q.count()
	assert.Equal(t, int64(3), c.Scheduled)
	assert.Equal(t, uint64(3), c.Enqueued, "a repetition is not counted")
	put.Call.Seq = 2
	duplicate := driver.StatusDuplicate
	assert.Equal(t, []driver.Status{duplicate, duplicate, duplicate}, q.statuses(put),
		"another number is another call")
	put.Call.Seq, put.Replace = 4, true
	assert.Equal(t, []driver.Status{driver.StatusDone, driver.StatusDone, driver.StatusDone},
		q.statuses(put), "a call that never arrived leaves a gap in the numbers")
	put.Call.Seq = 3
	q.assertLate(put)
}

// callPutLater repeats a put whose messages are gone. The repetition must not restore them.
func callPutLater(t *testing.T, newStore Factory) {
	q := openRemote(t, newStore)
	batch := items("m", driver.MaxBatch)
	put := driver.Put{Call: q.newCall("p", 1), Items: batch}
	first := q.statuses(put)
	assert.Len(t, first, driver.MaxBatch)
	records := q.claim(driver.MaxBatch)
	assert.Equal(t, first, q.statuses(put), "leased")
	q.begin(records...)
	assert.Equal(t, first, q.statuses(put), "firing")
	q.done(driver.OpAck, changesOf(records)...)
	assert.Equal(t, first, q.statuses(put), "acknowledged")
	has(q, 0, 0, 0)
	assert.Empty(t, q.claim(1))

	put.Replace, put.Call.Seq = true, 2
	put.Items = batch[:1]
	q.statuses(put)
	q.done(driver.OpCancel, driver.Change{ID: batch[0].ID})
	assert.Equal(t, []driver.Status{driver.StatusDone}, q.statuses(put))
	q.gone(batch[0].ID)
}

// callApply repeats each transition without a token after its message has changed. The answer is
// the same, and nothing changes.
func callApply(t *testing.T, newStore Factory) {
	q := openRemote(t, newStore)
	var ids []string
	for op := driver.OpCancel; op <= driver.OpPurge; op++ {
		ids = append(ids, op.String())
	}
	for _, state := range allStates {
		a := q.in(state).arrange(state, ids)
		c := a.newCall("caller", 7)
		for op := driver.OpCancel; op <= driver.OpPurge; op++ {
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
func callers(t *testing.T, newStore Factory) {
	q := openRemote(t, newStore)
	put := func(partition int, caller string, seq uint64) driver.Status {
		t.Helper()
		return q.statuses(driver.Put{Partition: partition, Call: q.newCall(caller, seq),
			Items: items("a", 1)})[0]
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

// callLate makes calls whose NotAfter has passed.
func callLate(t *testing.T, newStore Factory) {
	q := openRemote(t, newStore)
	now := driver.InstantOf(q.now())
	put := driver.Put{Call: driver.Call{Caller: "p", Seq: 1, NotAfter: now - 1000},
		Items: items("a", 1)}
	late := q.assertLate(put)
	assert.GreaterOrEqual(t, late.Now, now-1)
	assert.False(t, late.Unknown, "the store has forgotten no call")
	q.gone("a000")
	put.Call.NotAfter = late.Now.Add(time.Minute)
	assert.Equal(t, []driver.Status{driver.StatusDone}, q.statuses(put),
		"a call with the same number, which has not taken effect")
	for op := driver.OpCancel; op <= driver.OpPurge; op++ {
		b := driver.Batch{Op: op, Call: driver.Call{Caller: "c", Seq: 1, NotAfter: 1},
			Changes: []driver.Change{{ID: "a000"}}}
		_, err := q.Apply(t.Context(), b)
		require.ErrorAs(t, err, &late, op.String())
		assert.Equal(t, driver.StateScheduled, q.get("a000").State)
	}
}

// callTooFarAhead makes a call that the store would have to remember for too long.
func callTooFarAhead(t *testing.T, newStore Factory) {
	q := openRemote(t, newStore)
	put := driver.Put{Call: driver.Call{Caller: "p", Seq: 1,
		NotAfter: driver.InstantOf(q.now()).Add(driver.MaxAhead + time.Hour)}, Items: items("a", 1)}
	q.assertLate(put)
	put.Call.NotAfter = driver.InstantOf(q.now()).Add(driver.MaxAhead - time.Minute)
	assert.Equal(t, []driver.Status{driver.StatusDone}, q.statuses(put))
}

// callForgotten makes calls that can no longer take effect. Calls from other callers make the store
// forget them. A copy of a forgotten call is rejected, and is not mistaken for a new call.
func callForgotten(t *testing.T, newStore Factory) {
	q := openRemote(t, newStore)
	if q.fixture.Advance == nil {
		t.Skip("the test would take a minute")
	}
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
	assert.False(t, slices.ContainsFunc(calls, func(put driver.Put) bool {
		_, err := q.Get(t.Context(), 0, put.Items[0].ID)
		return err == nil
	}), "a forgotten call took effect again")
}
