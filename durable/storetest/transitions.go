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
// the messages and the counts with the model. Each transition is also made from the state to
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
		m := modelOf(a, state, before)
		m.paused = paused
		m.compare(ids, state)
		for op := driver.OpBegin; op <= driver.OpRepeat; op++ {
			a.checkTransition(state, op, before, m)
		}
		a.audit(0, true, len(m.messages))
	}
}

// modelOf returns the model of the arranged messages.
func modelOf(a arranged, state string, records map[string]driver.Record) *model {
	r := newModel(a.queue)
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
func (a arranged) checkTransition(state string, op driver.Op, before map[string]driver.Record, m *model) {
	a.t.Helper()
	b := driver.Batch{Op: op, Visibility: far}
	var ids []string
	for _, kind := range tokenKinds {
		id := op.String() + "-" + kind
		token := map[string]uint64{rightToken: a.right[id], staleToken: a.stale[id],
			wrongToken: a.right[id] + 1_000_000, zeroToken: 0}[kind]
		b.Changes = append(b.Changes, driver.Change{ID: id, Token: token, Delay: 2 * far, Reason: "why"})
		ids = append(ids, id)
	}
	m.what = fmt.Sprintf("%s of messages in state %q", op, state)
	for i, changed := range m.makeChanges(b, a.now()) {
		if !changed && m.messages[ids[i]] != nil {
			assert.Equal(a.t, before[ids[i]], a.get(ids[i]), "%s: %s", ids[i], m.what)
		}
	}
	m.compare(ids, m.what)
}
