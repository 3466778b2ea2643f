package storetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Kinds of tokens.
const (
	rightToken = "right"
	staleToken = "stale" // of the previous claim
	wrongToken = "wrong"
	zeroToken  = "zero"
)

var tokenKinds = []string{rightToken, staleToken, wrongToken, zeroToken}

// transitionTable makes every transition from every state with every kind of token, and compares
// the messages and the counts with the reference. Each transition is also made from the state to
// which it has led, without a driver.Call, like a repetition.
func transitionTable(_ *testing.T, q *queue) { checkTransitions(q, false) }

// pauseTransitions makes the same transitions while the partition is paused.
func pauseTransitions(_ *testing.T, q *queue) { checkTransitions(q, true) }

func checkTransitions(q *queue, paused bool) {
	var ids []string
	for op := driver.OpBegin; op <= driver.OpRepeat; op++ {
		for _, kind := range tokenKinds {
			ids = append(ids, op.String()+"-"+kind)
		}
	}
	for _, state := range allStates {
		a := q.in(state).arrange(state, ids)
		a.pause(paused)
		before := a.records(state, ids)
		expected := referenceOf(a, state, before)
		expected.paused = paused
		checkCounts(a, expected, state)
		for op := driver.OpBegin; op <= driver.OpRepeat; op++ {
			a.checkTransition(state, op, before, expected)
			checkCounts(a, expected, op.String()+" of "+state)
		}
		c := a.count()
		a.audit(0, true, int(c.Scheduled+c.InFlight+c.Dead))
	}
}

// referenceOf returns the reference of the arranged messages.
func referenceOf(a arranged, state string, records map[string]driver.Record) *reference {
	r := &reference{messages: make(map[string]*refMessage)}
	n := uint64(len(records))
	r.sums.Enqueued = n
	switch state {
	case acked:
		r.sums.Enqueued, r.sums.Acked = uint64(len(a.right)), uint64(len(a.right))
	case retried:
		r.sums.Retried = n
	case dead, replayed:
		r.sums.Buried = n
	case crashed:
		r.sums.Crashed = n
	case deadByCrash:
		r.sums.Crashed, r.sums.Buried = n, n
	}
	for id, record := range records {
		m := &refMessage{record: record, good: true, last: endOf[state]}
		m.record.Token = a.right[id]
		switch state {
		case scheduled, rescheduled, expired, crashed, deadByCrash, replayed:
			m.loseLease()
		}
		r.messages[id] = m
	}
	return r
}

// checkCounts compares the counts with those of the reference, which does not know the due times.
func checkCounts(a arranged, expected *reference, what string) {
	a.t.Helper()
	got := a.count()
	want := expected.counts(got.Now)
	want.Due, want.NextDue = got.Due, got.NextDue
	assert.Equal(a.t, want, got, what)
}

// records returns the arranged messages by id, and checks them. It lists them, because Get would
// take a call for each message.
func (a arranged) records(state string, ids []string) map[string]driver.Record {
	a.t.Helper()
	byID := make(map[string]driver.Record)
	for _, s := range []driver.State{driver.StateScheduled, driver.StateLeased, driver.StateDead} {
		records, _, err := a.List(a.t.Context(), 0, s, "", driver.MaxBatch)
		require.NoError(a.t, err)
		for _, r := range records {
			want := driver.Record{ID: r.ID, Body: []byte("body of " + r.ID), Enqueued: r.Enqueued, Due: r.Due,
				MaxAttempts: 25, State: stateAfter(state), Token: r.Token, LeaseEnd: r.LeaseEnd, Died: r.Died}
			switch state {
			case retried, dead:
				want.Attempts = 1
			case crashed, deadByCrash:
				want.Crashes, want.Reason = 1, crashReason(1)
			}
			require.Equal(a.t, want, r, "%s arranged", state)
			require.NotContains(a.t, byID, r.ID, "listed twice")
			byID[r.ID] = r
		}
	}
	if state == absent || state == acked {
		ids = nil
	}
	require.Len(a.t, byID, len(ids))
	return byID
}

// checkTransition makes one transition of the messages that were arranged for it.
func (a arranged) checkTransition(state string, op driver.Op, before map[string]driver.Record, expected *reference) {
	t := a.t
	var changes []driver.Change
	for _, kind := range tokenKinds {
		id := op.String() + "-" + kind
		token := map[string]uint64{rightToken: a.right[id], staleToken: a.stale[id],
			wrongToken: a.right[id] + 1_000_000, zeroToken: 0}[kind]
		changes = append(changes, driver.Change{ID: id, Token: token, Delay: 2 * far, Reason: "why"})
	}
	from := a.now()
	outcomes := a.apply(op, changes...)
	to := a.now()
	for i, o := range outcomes {
		id, what := changes[i].ID, fmt.Sprintf("%s of a message in state %q with a %s token: status %v", op, state, tokenKinds[i], o.Status)
		if !assert.Contains(t, expected.verdict(op, changes[i], driver.Never), o.Status, what) {
			continue
		}
		changed := o.Status == driver.StatusDone && expected.transition(op, changes[i])
		after, err := a.Get(t.Context(), 0, id)
		m := expected.messages[id]
		switch {
		case m == nil:
			assert.ErrorIs(t, err, driver.ErrNotFound, what)
		case changed:
			switch op {
			case driver.OpBegin, driver.OpExtend:
				m.record.LeaseEnd = after.LeaseEnd
			case driver.OpRetry, driver.OpReplay, driver.OpReschedule, driver.OpRepeat:
				m.record.Due = after.Due
			case driver.OpBury:
				assertDelay(t, from, to, 0, after.Died, what)
			}
			m.assertSame(t, after, what)
		default:
			assert.Equal(t, before[id], after, what)
		}
	}
}
