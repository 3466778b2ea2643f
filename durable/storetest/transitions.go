package storetest

import (
	"slices"
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

const gone = driver.State(0)

// verdict is the expected result of a transition. After StatusDone the message is in state then.
// Otherwise nothing has changed.
type verdict struct {
	statuses []driver.Status
	then     driver.State
}

func only(s driver.Status) verdict { return verdict{statuses: []driver.Status{s}} }

func doneTo(then driver.State) verdict { return verdict{[]driver.Status{driver.StatusDone}, then} }

// expect returns the verdict on a transition for the state of the message and the kind of the
// token.
func expect(state string, op driver.Op, token string) verdict {
	isDead := state == dead || state == deadByCrash
	switch op {
	case driver.OpCancel, driver.OpReschedule, driver.OpReplay, driver.OpPurge:
		return expectWithoutToken(state, op)
	case driver.OpAck, driver.OpExpire:
		switch {
		case state == absent:
			return only(driver.StatusNotFound)
		case isDead: // both statuses are correct
			return verdict{statuses: []driver.Status{driver.StatusNotFound, driver.StatusLeaseLost}}
		}
	}
	if token == rightToken {
		return expectWithToken(state, op)
	}
	return only(driver.StatusLeaseLost)
}

// expectWithoutToken is expect for the transitions that need no token.
func expectWithoutToken(state string, op driver.Op) verdict {
	isDead := state == dead || state == deadByCrash
	switch {
	case op == driver.OpReplay && isDead:
		return doneTo(driver.StateScheduled)
	case op == driver.OpPurge && isDead:
		return doneTo(gone)
	case op == driver.OpReplay || op == driver.OpPurge || isDead || state == absent:
		return only(driver.StatusNotFound)
	case state == firing:
		return only(driver.StatusFiring)
	case op == driver.OpCancel:
		return doneTo(gone)
	default:
		return doneTo(driver.StateScheduled)
	}
}

// expectWithToken is expect for the token of the last claim.
func expectWithToken(state string, op driver.Op) verdict {
	repetition := map[string]driver.Op{released: driver.OpRelease, retried: driver.OpRetry, dead: driver.OpBury}
	live := state == leased || state == firing
	switch {
	case repetition[state] == op:
		return doneTo(stateAfter(state))
	case (state == released || state == retried) && (op == driver.OpRelease || op == driver.OpRetry):
		// No holder makes both transitions. A store need not remember which one was made.
		return verdict{[]driver.Status{driver.StatusLeaseLost, driver.StatusDone}, driver.StateScheduled}
	case state == replayed && op == driver.OpBury: // done, and moved since then: both are correct
		return verdict{[]driver.Status{driver.StatusLeaseLost, driver.StatusDone}, driver.StateScheduled}
	case live && op == driver.OpBegin:
		return doneTo(driver.StateFiring)
	case live && op == driver.OpExtend:
		return doneTo(stateAfter(state))
	case live && op == driver.OpRelease, state == firing && op == driver.OpRetry:
		return doneTo(driver.StateScheduled)
	case state == firing && (op == driver.OpAck || op == driver.OpExpire):
		return doneTo(gone)
	case state == firing && op == driver.OpBury:
		return doneTo(driver.StateDead)
	default:
		return only(driver.StatusLeaseLost)
	}
}

// transitionTable makes every transition from every state with every kind of token.
func transitionTable(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	var ids []string
	for op := driver.OpBegin; op <= driver.OpExpire; op++ {
		for _, kind := range tokenKinds {
			ids = append(ids, op.String()+"-"+kind)
		}
	}
	for _, state := range allStates {
		a := q.in(state).arrange(state, ids)
		before := a.records(state, ids)
		for op := driver.OpBegin; op <= driver.OpExpire; op++ {
			a.checkTransition(state, op, before)
		}
		c := a.count()
		a.audit(0, false, int(c.Scheduled+c.InFlight+c.Dead))
	}
}

// records returns the arranged messages by id. It lists them, because Get would take a call for
// each message.
func (a arranged) records(state string, ids []string) map[string]driver.Record {
	a.t.Helper()
	byID := make(map[string]driver.Record)
	for _, s := range []driver.State{driver.StateScheduled, driver.StateLeased, driver.StateDead} {
		records, _, err := a.List(a.t.Context(), 0, s, "", driver.MaxBatch)
		require.NoError(a.t, err)
		for _, r := range records {
			require.Equal(a.t, stateAfter(state), r.State, "%s arranged", state)
			byID[r.ID] = r
		}
	}
	if state == absent {
		ids = nil
	}
	require.Len(a.t, byID, len(ids))
	return byID
}

// checkTransition makes one transition of the messages that were arranged for it.
func (a arranged) checkTransition(state string, op driver.Op, before map[string]driver.Record) {
	t := a.t
	var changes []driver.Change
	for _, kind := range tokenKinds {
		id := op.String() + "-" + kind
		token := map[string]uint64{rightToken: a.right[id], staleToken: a.stale[id],
			wrongToken: a.right[id] + 1_000_000, zeroToken: 0}[kind]
		changes = append(changes, driver.Change{ID: id, Token: token, Delay: 2 * far})
	}
	for i, o := range a.apply(op, changes...) {
		v := expect(state, op, tokenKinds[i])
		if !assert.True(t, slices.Contains(v.statuses, o.Status), "%s of a message in state %q with a %s token: status %d, expected one of %v",
			op.String(), state, tokenKinds[i], o.Status, v.statuses) {
			continue
		}
		after, err := a.Get(t.Context(), 0, changes[i].ID)
		switch {
		case o.Status == driver.StatusDone && v.then == gone:
			assert.ErrorIs(t, err, driver.ErrNotFound, "%s, %s", state, changes[i].ID)
		case o.Status == driver.StatusDone:
			assert.Equal(t, v.then, after.State, "%s, %s", state, changes[i].ID)
			assert.Equal(t, before[changes[i].ID].Body, after.Body)
		default:
			assert.Equal(t, before[changes[i].ID], after, "%s, %s: the message changed although the status is %d",
				state, changes[i].ID, o.Status)
		}
	}
}

// repetition repeats each transition immediately, without a driver.Call. Only times change.
func repetition(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	again := func(state string, op driver.Op, want driver.Status) {
		t.Helper()
		a := q.in(state+op.String()).arrange(state, []string{"m"})
		c := driver.Change{ID: "m", Token: a.right["m"], Delay: far, Reason: "why"}
		a.done(op, c)
		after := a.count()
		for range 3 {
			assert.Equal(t, want, a.status(op, c), "%s of %s again", op.String(), state)
		}
		then := a.count()
		then.Now, then.NextDue = after.Now, after.NextDue
		assert.Equal(t, after, then, "%s of %s again", op.String(), state)
	}
	again(leased, driver.OpBegin, driver.StatusDone)
	again(firing, driver.OpAck, driver.StatusNotFound)
	again(firing, driver.OpExpire, driver.StatusNotFound)
	again(firing, driver.OpRetry, driver.StatusDone)
	again(firing, driver.OpBury, driver.StatusDone)
	again(firing, driver.OpRelease, driver.StatusDone)
	again(leased, driver.OpRelease, driver.StatusDone)
	again(leased, driver.OpExtend, driver.StatusDone)
	again(firing, driver.OpExtend, driver.StatusDone)
	again(scheduled, driver.OpCancel, driver.StatusNotFound)
	again(leased, driver.OpCancel, driver.StatusNotFound)
	again(scheduled, driver.OpReschedule, driver.StatusDone)
	again(leased, driver.OpReschedule, driver.StatusDone)
	again(dead, driver.OpReplay, driver.StatusNotFound)
	again(dead, driver.OpPurge, driver.StatusNotFound)
}
