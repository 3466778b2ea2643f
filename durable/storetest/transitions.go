package storetest

import (
	"fmt"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// States of messages, including how they were reached.
const (
	absent      = "absent"
	scheduled   = "scheduled"
	leased      = "leased"
	firing      = "firing"
	dead        = "dead"
	acked       = "acked"       // from firing, and removed
	released    = "released"    // from firing
	retried     = "retried"     // from firing
	returned    = "returned"    // released from leased
	rescheduled = "rescheduled" // from leased
	expired     = "expired"     // leased, until its lease expired
	crashed     = "crashed"     // firing, until its lease expired
	deadByCrash = "deadByCrash" // like crashed, with the last permitted crash
	replayed    = "replayed"    // from dead
)

var allStates = []string{absent, scheduled, leased, firing, dead, acked, released, retried,
	returned, rescheduled, expired, crashed, deadByCrash, replayed}

// endOf has the transition by which the holder ended the lease of a message in a state.
var endOf = map[string]driver.Op{
	acked: driver.OpAck, released: driver.OpRelease, returned: driver.OpRelease, retried: driver.OpRetry, dead: driver.OpBury, replayed: driver.OpBury,
}

// arrange brings new messages of an empty queue into a state.
func arrange(q *queue, state string, items ...driver.PutItem) *model {
	q.t.Helper()
	m := newModel(q)
	m.what = "arrange " + state
	if state == absent {
		return m
	}
	m.makePut(driver.Put{Items: items}, q.now())
	if state == scheduled {
		return m
	}
	lease := far
	if state == expired || state == crashed || state == deadByCrash {
		lease = q.short()
	}
	apply := func(op driver.Op, changes []driver.Change) {
		m.makeChanges(driver.Batch{Op: op, Visibility: lease, Changes: changes}, q.now())
	}
	apply(driver.OpRelease, m.hold(far))
	changes := m.hold(lease)
	require.Len(q.t, changes, len(items))
	switch state {
	case leased:
	case returned:
		apply(driver.OpRelease, changes)
	case rescheduled:
		apply(driver.OpReschedule, changes)
	case expired, crashed, deadByCrash:
		if state != expired {
			apply(driver.OpBegin, changes)
		}
		q.pass()
		m.makeClaim(driver.Claim{MaxCrashes: map[string]int{crashed: 2, deadByCrash: 1}[state]}, q.now())
	default:
		apply(driver.OpBegin, changes)
		if op, ok := endOf[state]; ok {
			apply(op, changes)
		}
		if state == replayed {
			apply(driver.OpReplay, changes)
		}
	}
	return m
}

// Kinds of tokens.
const (
	rightToken = "right" // of the last claim
	staleToken = "stale" // of the claim before it
	wrongToken = "wrong"
	zeroToken  = "zero"
)

var tokenKinds = []string{rightToken, staleToken, wrongToken, zeroToken}

// tokenOf returns a token for a message, an arbitrary one if the message was never claimed.
func tokenOf(m *model, kind, id string) uint64 {
	had := append([]uint64{1, 2}, m.tokens[id]...)
	right, stale := had[len(had)-1], had[len(had)-2]
	return map[string]uint64{rightToken: right, staleToken: stale, wrongToken: right + 1_000_000}[kind]
}

// checkTransitions makes every transition from every state with every kind of token, and compares
// the messages and the counts with the model. Each transition is also made from the state to which
// it has led, without a driver.Call, like a repetition.
func checkTransitions(q *queue, paused bool) {
	var all []driver.PutItem
	for op := driver.OpBegin; op <= driver.OpRepeat; op++ {
		for _, kind := range tokenKinds {
			id := op.String() + "-" + kind
			all = append(all, itemWith(id, []byte("body of "+id)))
		}
	}
	for _, state := range allStates {
		m := arrange(q.in(state), state, all...)
		m.paused = paused
		m.pause(paused)
		before := m.compareLists(driver.MaxBatch)
		for op := driver.OpBegin; op <= driver.OpRepeat; op++ {
			checkTransition(m, state, op, before)
		}
		m.audit(0, true, len(m.messages))
	}
}

// checkTransition makes one transition of the messages that were arranged for it.
func checkTransition(m *model, state string, op driver.Op, before map[string]driver.Record) {
	m.t.Helper()
	b := driver.Batch{Op: op, Visibility: far}
	var ids []string
	for _, kind := range tokenKinds {
		id := op.String() + "-" + kind
		b.Changes = append(b.Changes, driver.Change{ID: id, Token: tokenOf(m, kind, id), Delay: 2 * far, Reason: "why"})
		ids = append(ids, id)
	}
	m.what = fmt.Sprintf("%s of messages in state %q", op, state)
	for i, changed := range m.makeChanges(b, m.now()) {
		if !changed && m.messages[ids[i]] != nil {
			assert.Equal(m.t, before[ids[i]], m.get(ids[i]), "%s: %s", ids[i], m.what)
		}
	}
	m.compare(ids, m.what)
}
