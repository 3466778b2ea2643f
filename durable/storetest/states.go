package storetest

import (
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
	released    = "released"    // from firing
	retried     = "retried"     // from firing
	rescheduled = "rescheduled" // from leased
	expired     = "expired"     // leased, until its lease expired
	crashed     = "crashed"     // firing, until its lease expired
	deadByCrash = "deadByCrash" // like crashed, with the last permitted crash
	replayed    = "replayed"    // from dead
)

var allStates = []string{absent, scheduled, leased, firing, dead, released, retried, rescheduled,
	expired, crashed, deadByCrash, replayed}

// endOf has the transition by which the holder ended the lease of a message in a state.
var endOf = map[string]driver.Op{
	released: driver.OpRelease, retried: driver.OpRetry, dead: driver.OpBury, replayed: driver.OpBury,
}

// arranged is a queue whose messages are all in one state, with their tokens of the last claim and
// of the claim before it. The tokens of messages that were never claimed are arbitrary.
type arranged struct {
	*queue
	right, stale map[string]uint64
}

// in opens another queue of the same store.
func (q *queue) in(name string) *queue {
	q.t.Helper()
	c := q.config
	c.Queue += "-" + name
	return openAs(q.t, q.fixture, c)
}

// arrange brings messages into a state. The queue must be empty.
func (q *queue) arrange(state string, ids []string) arranged {
	q.t.Helper()
	a := arranged{queue: q, right: make(map[string]uint64), stale: make(map[string]uint64)}
	for _, id := range ids {
		a.stale[id], a.right[id] = 1, 2
	}
	if state == absent {
		return a
	}
	q.put(mapped(ids, func(id string) driver.PutItem { return itemWith(id, []byte("body of "+id)) })...)
	if state == scheduled {
		return a
	}
	first := q.claim(len(ids))
	q.done(driver.OpRelease, changesOf(first)...)
	claim := q.claim
	if state == expired || state == crashed || state == deadByCrash {
		claim = q.claimShort
	}
	records := claim(len(ids))
	require.Len(q.t, records, len(ids))
	for _, r := range first {
		a.stale[r.ID] = r.Token
	}
	for _, r := range records {
		a.right[r.ID] = r.Token
	}
	q.proceed(state, records)
	return a
}

// proceed brings messages that were just claimed into a state.
func (q *queue) proceed(state string, records []driver.Record) {
	q.t.Helper()
	changes := changesOf(records)
	switch state {
	case leased:
		return
	case rescheduled:
		q.done(driver.OpReschedule, changes...)
		return
	case expired:
		q.pass()
		q.expire(0)
		return
	case crashed, deadByCrash:
		q.batch(driver.Batch{Op: driver.OpBegin, Visibility: q.short(), Changes: changes})
		q.pass()
		q.expire(map[string]int{crashed: 2, deadByCrash: 1}[state])
		return
	}
	q.begin(records...)
	if op, ok := endOf[state]; ok {
		q.done(op, changes...)
	}
	if state == replayed {
		q.done(driver.OpReplay, changes...)
	}
}

// stateAfter returns the state that Get returns.
func stateAfter(state string) driver.State {
	switch state {
	case absent:
		return 0
	case leased:
		return driver.StateLeased
	case firing:
		return driver.StateFiring
	case dead, deadByCrash:
		return driver.StateDead
	default:
		return driver.StateScheduled
	}
}
