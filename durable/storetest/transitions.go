package storetest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
)

// Kinds of tokens.
const (
	rightToken = "right"
	staleToken = "stale" // of the claim before
	wrongToken = "wrong"
	zeroToken  = "zero"
)

var tokenKinds = []string{rightToken, staleToken, wrongToken, zeroToken}

const gone = durable.State(0)

// verdict is what may come of a transition. Where it is done the message is in the state then; otherwise nothing has changed.
type verdict struct {
	statuses []durable.Status
	then     durable.State
}

func only(s durable.Status) verdict { return verdict{statuses: []durable.Status{s}} }

func doneTo(then durable.State) verdict { return verdict{[]durable.Status{durable.StatusDone}, then} }

// expect is the verdict on a transition, by the state of the message and the kind of the token.
func expect(state string, op durable.Op, token string) verdict {
	isDead := state == dead || state == deadByCrash
	switch op {
	case durable.OpCancel, durable.OpReschedule, durable.OpReplay, durable.OpPurge:
		return expectOfAnyone(state, op)
	case durable.OpAck:
		switch {
		case state == absent:
			return only(durable.StatusNotFound)
		case isDead: // both say the truth
			return verdict{statuses: []durable.Status{durable.StatusNotFound, durable.StatusLeaseLost}}
		}
	}
	if token == rightToken {
		return expectOfHolder(state, op)
	}
	return only(durable.StatusLeaseLost)
}

// expectOfAnyone is expect for the transitions that need no token.
func expectOfAnyone(state string, op durable.Op) verdict {
	isDead := state == dead || state == deadByCrash
	switch {
	case op == durable.OpReplay && (isDead || state == replayed):
		return doneTo(durable.StateScheduled)
	case op == durable.OpPurge && isDead:
		return doneTo(gone)
	case op == durable.OpReplay || op == durable.OpPurge || isDead || state == absent:
		return only(durable.StatusNotFound)
	case state == firing:
		return only(durable.StatusFiring)
	case op == durable.OpCancel:
		return doneTo(gone)
	default:
		return doneTo(durable.StateScheduled)
	}
}

// expectOfHolder is expect for the token of the last claim.
func expectOfHolder(state string, op durable.Op) verdict {
	repetition := map[string]durable.Op{released: durable.OpRelease, retried: durable.OpRetry, dead: durable.OpBury}
	live := state == leased || state == firing
	switch {
	case repetition[state] == op:
		return doneTo(stateAfter(state))
	case (state == released || state == retried) && (op == durable.OpRelease || op == durable.OpRetry):
		// No holder does both; a store need not remember which of them it was.
		return verdict{[]durable.Status{durable.StatusLeaseLost, durable.StatusDone}, durable.StateScheduled}
	case state == replayed && op == durable.OpBury: // it has taken place, and the message was moved since: both answers are true
		return verdict{[]durable.Status{durable.StatusLeaseLost, durable.StatusDone}, durable.StateScheduled}
	case live && op == durable.OpBegin:
		return doneTo(durable.StateFiring)
	case live && op == durable.OpExtend:
		return doneTo(stateAfter(state))
	case live && op == durable.OpRelease, state == firing && op == durable.OpRetry:
		return doneTo(durable.StateScheduled)
	case state == firing && op == durable.OpAck:
		return doneTo(gone)
	case state == firing && op == durable.OpBury:
		return doneTo(durable.StateDead)
	default:
		return only(durable.StatusLeaseLost)
	}
}

// transitionTable makes every transition from every state with every kind of token.
func transitionTable(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	var ids []string
	for op := durable.OpBegin; op <= durable.OpPurge; op++ {
		for _, kind := range tokenKinds {
			ids = append(ids, opName(op)+"-"+kind)
		}
	}
	for _, state := range allStates {
		a := q.in(state).arrange(state, ids)
		for op := durable.OpBegin; op <= durable.OpPurge; op++ {
			a.checkTransition(state, op)
		}
		report, err := a.Audit(t.Context(), 0, false)
		require.NoError(t, err)
		assert.Zero(t, report.Orphans+report.Strays+report.Repaired, "audit of %s", state)
	}
}

// checkTransition makes one transition of the messages that were made for it.
func (a arranged) checkTransition(state string, op durable.Op) {
	t := a.t
	var changes []durable.Change
	var before []durable.Record
	for _, kind := range tokenKinds {
		id := opName(op) + "-" + kind
		token := map[string]uint64{rightToken: a.right[id], staleToken: a.stale[id], wrongToken: a.right[id] + 1_000_000, zeroToken: 0}[kind]
		changes = append(changes, durable.Change{ID: id, Token: token, Delay: 2 * far})
		r, err := a.Get(t.Context(), 0, id)
		if state == absent {
			require.ErrorIs(t, err, durable.ErrNotFound)
		} else {
			require.NoError(t, err)
			require.Equal(t, stateAfter(state), r.State, "%s arranged", state)
		}
		before = append(before, r)
	}
	for i, o := range a.apply(op, changes...) {
		v := expect(state, op, tokenKinds[i])
		if !assert.True(t, slices.Contains(v.statuses, o.Status), "%s of a message that is %s, with a token that is %s: status %d, expected %v",
			opName(op), state, tokenKinds[i], o.Status, v.statuses) {
			continue
		}
		after, err := a.Get(t.Context(), 0, changes[i].ID)
		switch {
		case o.Status == durable.StatusDone && v.then == gone:
			assert.ErrorIs(t, err, durable.ErrNotFound, "%s, %s", state, changes[i].ID)
		case o.Status == durable.StatusDone:
			assert.Equal(t, v.then, after.State, "%s, %s", state, changes[i].ID)
			assert.Equal(t, before[i].Body, after.Body)
		default:
			assert.Equal(t, before[i], after, "%s, %s: status %d, and yet something has changed", state, changes[i].ID, o.Status)
		}
	}
}

// repetition repeats each transition at once: that changes nothing any more but times.
func repetition(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	again := func(state string, op durable.Op, want durable.Status) {
		t.Helper()
		a := q.in(state+opName(op)).arrange(state, []string{"m"})
		c := durable.Change{ID: "m", Token: a.right["m"], Delay: far, Reason: "why"}
		a.done(op, c)
		after := a.count()
		for range 3 {
			assert.Equal(t, want, a.status(op, c), "%s of %s again", opName(op), state)
		}
		then := a.count()
		then.Now, then.NextDue = after.Now, after.NextDue
		assert.Equal(t, after, then, "%s of %s again", opName(op), state)
	}
	again(leased, durable.OpBegin, durable.StatusDone)
	again(firing, durable.OpAck, durable.StatusNotFound)
	again(firing, durable.OpRetry, durable.StatusDone)
	again(firing, durable.OpBury, durable.StatusDone)
	again(firing, durable.OpRelease, durable.StatusDone)
	again(leased, durable.OpRelease, durable.StatusDone)
	again(leased, durable.OpExtend, durable.StatusDone)
	again(firing, durable.OpExtend, durable.StatusDone)
	again(scheduled, durable.OpCancel, durable.StatusNotFound)
	again(leased, durable.OpCancel, durable.StatusNotFound)
	again(scheduled, durable.OpReschedule, durable.StatusDone)
	again(leased, durable.OpReschedule, durable.StatusDone)
	again(dead, durable.OpReplay, durable.StatusDone)
	again(dead, durable.OpPurge, durable.StatusNotFound)
}
