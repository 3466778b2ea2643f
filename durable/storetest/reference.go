package storetest

import (
	"cmp"
	"slices"

	"github.com/timingwheel-go/timingwheel/durable"
)

// reference is what a partition should hold, in the simplest form: a map of messages, and no order. Times come from the store, as
// only it knows its clock exactly; the model checks them when they are set.
type reference struct {
	messages map[string]*refMessage
	token    uint64 // the highest that was given
	sums     durable.Counts
}

type refMessage struct {
	record durable.Record

	good  bool       // the token is that of a lease that nobody else has ended
	last  durable.Op // by which the holder has ended his lease; 0: he has not
	moved bool       // rescheduled or replayed since the holder has ended his lease

	replayed     bool // since it was dead
	justReplayed bool // and nothing has happened to it since
	reasonOpen   bool // the contract does not say what the reason is now
}

// touch notes that something happens to a message.
func (m *refMessage) touch() { m.justReplayed = false }

func (m *refMessage) inFlight() bool {
	return m.record.State == durable.StateLeased || m.record.State == durable.StateFiring
}

func (m *refMessage) schedule() {
	m.record.State, m.record.LeaseEnd, m.record.Died = durable.StateScheduled, 0, 0
}

// lose ends the lease of a message from outside, if its holder has not ended it.
func (m *refMessage) lose() {
	m.good = m.good && m.last != 0
	m.moved = true
}

// putStatus says what becomes of a put of one message, and whether it takes place.
func (r *reference) putStatus(id string, replace bool) durable.Status {
	m := r.messages[id]
	switch {
	case m == nil:
		return durable.StatusDone
	case !replace:
		return durable.StatusDuplicate
	case m.record.State == durable.StateFiring:
		return durable.StatusFiring
	default:
		return durable.StatusDone
	}
}

// endLeases ends those leases that are over.
func (r *reference) endLeases(now durable.Instant, maxCrashes int) {
	for _, m := range r.messages {
		if !m.inFlight() || m.record.LeaseEnd > now {
			continue
		}
		wasFiring := m.record.State == durable.StateFiring
		m.lose()
		m.touch()
		m.schedule()
		if !wasFiring {
			continue
		}
		m.record.Crashes++
		m.reasonOpen = true
		r.sums.Crashed++
		if maxCrashes > 0 && m.record.Crashes >= maxCrashes {
			m.record.State, m.replayed = durable.StateDead, false
			r.sums.Buried++
		}
	}
}

// claimable are the ids that a claim should get.
func (r *reference) claimable(until durable.Instant, limit, maxBytes int) []string {
	due := r.sorted(func(m *refMessage) bool { return m.record.State == durable.StateScheduled && m.record.Due <= until },
		func(m *refMessage) durable.Instant { return m.record.Due })
	ids := []string{}
	size := 0
	for _, m := range due {
		size += len(m.record.Body)
		if len(ids) == limit || len(ids) > 0 && size > maxBytes {
			break
		}
		ids = append(ids, m.record.ID)
	}
	return ids
}

// sorted are some messages in the order of a time and the ids.
func (r *reference) sorted(which func(*refMessage) bool, at func(*refMessage) durable.Instant) []*refMessage {
	var some []*refMessage
	for _, m := range r.messages {
		if which(m) {
			some = append(some, m)
		}
	}
	slices.SortFunc(some, func(a, b *refMessage) int {
		return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(a.record.ID, b.record.ID))
	})
	return some
}

// verdict is what may come of a transition that is not yet done, by the contract. until is up to when Begin is not early.
func (r *reference) verdict(op durable.Op, c durable.Change, until durable.Instant) []durable.Status {
	m := r.messages[c.ID]
	isDead := m != nil && m.record.State == durable.StateDead
	switch op {
	case durable.OpCancel, durable.OpReschedule:
		switch {
		case m == nil || isDead:
			return []durable.Status{durable.StatusNotFound}
		case m.record.State == durable.StateFiring:
			return []durable.Status{durable.StatusFiring}
		}
		return []durable.Status{durable.StatusDone}
	case durable.OpReplay:
		switch {
		case isDead || m != nil && m.justReplayed:
			return []durable.Status{durable.StatusDone}
		case m != nil && m.replayed: // a late repetition, or a mistake: nobody can tell
			return []durable.Status{durable.StatusDone, durable.StatusNotFound}
		}
		return []durable.Status{durable.StatusNotFound}
	case durable.OpPurge:
		if isDead {
			return []durable.Status{durable.StatusDone}
		}
		return []durable.Status{durable.StatusNotFound}
	case durable.OpAck:
		if m == nil {
			return []durable.Status{durable.StatusNotFound}
		}
		if isDead {
			return []durable.Status{durable.StatusNotFound, durable.StatusLeaseLost}
		}
	}
	return m.verdictOfHolder(op, c, until)
}

// verdictOfHolder is verdict for the transitions that need a token.
func (m *refMessage) verdictOfHolder(op durable.Op, c durable.Change, until durable.Instant) []durable.Status {
	holds := m != nil && m.good && c.Token != 0 && c.Token == m.record.Token
	switch {
	case !holds:
	case m.record.State == durable.StateScheduled && m.last != 0 && (op == durable.OpRetry || op == durable.OpRelease) && op != m.last:
		return []durable.Status{durable.StatusLeaseLost, durable.StatusDone}
	case m.last == op && m.moved: // it has taken place, and the message was moved since: both answers are true
		return []durable.Status{durable.StatusLeaseLost, durable.StatusDone}
	case m.last == op:
		return []durable.Status{durable.StatusDone}
	case !m.inFlight():
	case op == durable.OpBegin && m.record.State == durable.StateLeased && m.record.Due > until:
		return []durable.Status{durable.StatusEarly}
	case op == durable.OpBegin || op == durable.OpExtend || op == durable.OpRelease || m.record.State == durable.StateFiring:
		return []durable.Status{durable.StatusDone}
	}
	return []durable.Status{durable.StatusLeaseLost}
}

// transition makes one that has taken place. It reports whether something has changed: a repetition changes nothing.
func (r *reference) transition(op durable.Op, c durable.Change) bool {
	m := r.messages[c.ID]
	state := m.record.State
	switch {
	case op == durable.OpReplay && state != durable.StateDead:
		return false
	case (op == durable.OpRetry || op == durable.OpRelease || op == durable.OpBury) && !m.inFlight():
		return false
	}
	m.touch()
	switch op {
	case durable.OpBegin:
		m.record.State = durable.StateFiring
	case durable.OpAck, durable.OpCancel, durable.OpPurge:
		delete(r.messages, c.ID)
	case durable.OpRetry, durable.OpBury:
		m.record.Attempts++
		m.record.Reason, m.reasonOpen = c.Reason, false
		fallthrough
	case durable.OpRelease:
		m.last = op
		m.schedule()
		if op == durable.OpBury {
			m.record.State, m.replayed = durable.StateDead, false
		}
	case durable.OpReschedule:
		m.lose()
		m.schedule()
	case durable.OpReplay:
		m.lose()
		m.schedule()
		m.record.Attempts, m.record.Crashes = 0, 0
		m.replayed, m.justReplayed, m.reasonOpen = true, true, true
	}
	r.tally(op)
	return true
}

// tally counts a transition.
func (r *reference) tally(op durable.Op) {
	switch op {
	case durable.OpAck:
		r.sums.Acked++
	case durable.OpRetry:
		r.sums.Retried++
	case durable.OpBury:
		r.sums.Buried++
	case durable.OpCancel:
		r.sums.Cancelled++
	}
}

// counts are those of a moment.
func (r *reference) counts(now durable.Instant) durable.Counts {
	c := r.sums
	c.Now = now
	for _, m := range r.messages {
		switch {
		case m.inFlight():
			c.InFlight++
		case m.record.State == durable.StateDead:
			c.Dead++
		default:
			c.Scheduled++
			if m.record.Due <= now {
				c.Due++
			}
			if c.NextDue == 0 || m.record.Due < c.NextDue {
				c.NextDue = m.record.Due
			}
		}
	}
	return c
}

// firstLease is when the first lease ends, 0 if there is none.
func (r *reference) firstLease() durable.Instant {
	var first durable.Instant
	for _, m := range r.messages {
		if m.inFlight() && (first == 0 || m.record.LeaseEnd < first) {
			first = m.record.LeaseEnd
		}
	}
	return first
}
