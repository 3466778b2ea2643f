package storetest

import (
	"cmp"
	"maps"
	"slices"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// reference is the expected content of a partition in its simplest form: an unordered map of
// messages. Times come from the store, because only the store knows its clock exactly. The model
// checks them when they are set.
type reference struct {
	messages map[string]*refMessage
	token    uint64 // the highest token so far
	sums     driver.Counts
	paused   bool
	grants   map[string][]driver.Change // the messages of the last claim of each consumer
}

type refMessage struct {
	record driver.Record

	good  bool      // if the lease of the token has ended, its holder ended it
	last  driver.Op // transition by which the holder ended the lease; 0: none
	moved bool      // rescheduled or replayed since then

	reasonOpen bool // the contract does not specify the current reason
}

func (m *refMessage) inFlight() bool {
	return m.record.State == driver.StateLeased || m.record.State == driver.StateFiring
}

func (m *refMessage) schedule() {
	m.record.State, m.record.LeaseEnd, m.record.Died = driver.StateScheduled, 0, 0
}

// marked reports whether the end of the lease removes the message.
func (m *refMessage) marked() bool {
	return m.record.State == driver.StateFiring && m.record.Planned == driver.Never
}

// replans reports whether a firing message accepts another series.
func (m *refMessage) replans() bool {
	return m.record.State == driver.StateFiring && m.record.Repeat != "" && !m.marked()
}

// loseLease ends the lease of a message if its holder has not ended it.
func (m *refMessage) loseLease() {
	m.good = m.good && m.last != 0
	m.moved = true
}

// plannedOf returns the time of the next run of a message that was just scheduled.
func plannedOf(repeat string, due driver.Instant) driver.Instant {
	if repeat == "" {
		return 0
	}
	return due
}

// putStatus returns the expected status of storing one message.
func (r *reference) putStatus(item driver.PutItem, replace bool) driver.Status {
	m := r.messages[item.ID]
	switch {
	case m == nil:
		return driver.StatusDone
	case !replace && m.record.State == driver.StateDead:
		return driver.StatusDead
	case !replace:
		return driver.StatusDuplicate
	case m.record.State == driver.StateFiring && (item.Repeat == "" || !m.replans()):
		return driver.StatusFiring
	default:
		return driver.StatusDone
	}
}

// replace replaces what a Put determines.
func (m *refMessage) replace(item driver.PutItem, enqueued, planned driver.Instant) {
	m.record.Body, m.record.MaxAttempts, m.record.Repeat = item.Body, item.MaxAttempts, item.Repeat
	m.record.Enqueued, m.record.Planned = enqueued, planned
}

// endLeases ends expired leases. It returns the messages that have crashed, whose exact due times
// only the store knows.
func (r *reference) endLeases(now driver.Instant, maxCrashes int) (crashed []*refMessage) {
	for id, m := range r.messages {
		if !m.inFlight() || m.record.LeaseEnd > now {
			continue
		}
		if m.marked() {
			delete(r.messages, id)
			r.sums.Crashed++
			r.sums.Cancelled++
			continue
		}
		wasFiring := m.record.State == driver.StateFiring
		m.loseLease()
		m.schedule()
		if !wasFiring {
			continue
		}
		crashed = append(crashed, m)
		m.record.Crashes++
		m.record.Postponed = 0
		m.record.Reason, m.reasonOpen = crashReason(m.record.Crashes), false
		if delay := contract.CrashDelay(m.record.Crashes); delay > 0 {
			m.record.Due = now.Add(delay)
		}
		m.record.Due = max(m.record.Due, m.record.Planned)
		r.sums.Crashed++
		switch {
		case maxCrashes == 0 || m.record.Crashes < maxCrashes:
		case m.record.Repeat != "":
			m.record.Due = driver.Never
		default:
			m.record.State = driver.StateDead
			r.sums.Buried++
		}
	}
	return crashed
}

// claimable returns the ids that a claim should return.
func (r *reference) claimable(until driver.Instant, limit, maxBytes int) []string {
	if r.paused {
		return []string{}
	}
	due := slices.DeleteFunc(slices.Collect(maps.Values(r.messages)), func(m *refMessage) bool {
		return m.record.State != driver.StateScheduled || m.record.Due > until
	})
	slices.SortFunc(due, func(a, b *refMessage) int {
		return cmp.Or(cmp.Compare(a.record.Due, b.record.Due), cmp.Compare(a.record.ID, b.record.ID))
	})
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

// unseen returns the messages of a consumer's last claim that it still holds and whose tokens are
// above seen.
func (r *reference) unseen(consumer string, seen uint64) (unseen []*refMessage) {
	for _, c := range r.grants[consumer] {
		if m := r.messages[c.ID]; m != nil && m.inFlight() && m.record.Token == c.Token && c.Token > seen {
			unseen = append(unseen, m)
		}
	}
	return unseen
}

// verdict returns the statuses that the contract permits for a transition. Begin is early for
// messages that are due after until.
func (r *reference) verdict(op driver.Op, c driver.Change, until driver.Instant) []driver.Status {
	m := r.messages[c.ID]
	isDead := m != nil && m.record.State == driver.StateDead
	switch op {
	case driver.OpCancel, driver.OpReschedule, driver.OpRepeat:
		switch {
		case m == nil || isDead || op == driver.OpCancel && c.Incarnation != 0 && c.Incarnation != m.record.Enqueued:
			return []driver.Status{driver.StatusNotFound}
		case op == driver.OpCancel && c.Interrupt && m.record.State == driver.StateFiring:
			return []driver.Status{driver.StatusInterrupted}
		case m.record.State == driver.StateFiring && (op != driver.OpRepeat || !m.replans()):
			return []driver.Status{driver.StatusFiring}
		}
		return []driver.Status{driver.StatusDone}
	case driver.OpReplay, driver.OpPurge:
		waits := m != nil && m.record.State == driver.StateScheduled && m.record.Repeat != "" && m.record.Due == driver.Never
		if (isDead || waits && op == driver.OpReplay) && (c.Incarnation == 0 || c.Incarnation == m.record.Died) {
			return []driver.Status{driver.StatusDone}
		}
		return []driver.Status{driver.StatusNotFound}
	case driver.OpAck, driver.OpExpire:
		if m == nil {
			return []driver.Status{driver.StatusNotFound}
		}
		if isDead {
			return []driver.Status{driver.StatusNotFound, driver.StatusLeaseLost}
		}
	}
	want := m.verdictWithToken(op, c, until)
	if op == driver.OpBegin && r.paused && m != nil && m.record.State == driver.StateLeased && want[0] != driver.StatusLeaseLost {
		return []driver.Status{driver.StatusPaused}
	}
	return want
}

// verdictWithToken is verdict for the transitions that need a token.
func (m *refMessage) verdictWithToken(op driver.Op, c driver.Change, until driver.Instant) []driver.Status {
	holds := m != nil && m.good && c.Token != 0 && c.Token == m.record.Token
	switch {
	case !holds:
	case m.record.State == driver.StateScheduled && m.last != driver.OpBury && (op == driver.OpRetry || op == driver.OpRelease) && op != m.last:
		return []driver.Status{driver.StatusLeaseLost, driver.StatusDone}
	case m.last == op && m.moved: // done, and moved since then: both statuses are correct
		return []driver.Status{driver.StatusLeaseLost, driver.StatusDone}
	case m.last == op:
		return []driver.Status{driver.StatusDone}
	case !m.inFlight():
	case op == driver.OpBegin && m.record.State == driver.StateLeased && m.record.Due > until:
		return []driver.Status{driver.StatusEarly}
	case op == driver.OpExtend && m.marked():
		return []driver.Status{driver.StatusInterrupted}
	case op == driver.OpBegin || op == driver.OpExtend || op == driver.OpRelease || m.record.State == driver.StateFiring:
		return []driver.Status{driver.StatusDone}
	}
	return []driver.Status{driver.StatusLeaseLost}
}

// endsSeries reports whether a transition removes a firing message instead of scheduling it again.
func (m *refMessage) endsSeries(op driver.Op, c driver.Change) bool {
	switch op {
	case driver.OpRetry:
		return m.marked() || c.Again && c.Incarnation != 0 && m.record.Repeat == ""
	case driver.OpBury, driver.OpRelease:
		return m.marked()
	default:
		return false
	}
}

// runFailed reports whether the last attempt of a run that a Retry with Again ends has failed.
func runFailed(c driver.Change) bool { return c.Incarnation != 0 && c.Reason != "" }

// transition applies a transition that has taken effect. It reports whether the message has
// changed in a way that the caller must complete: a repetition has changed nothing.
func (r *reference) transition(op driver.Op, c driver.Change) bool {
	m := r.messages[c.ID]
	if (op == driver.OpRetry || op == driver.OpRelease || op == driver.OpBury) && !m.inFlight() {
		return false
	}
	if op == driver.OpCancel && m.record.State == driver.StateFiring {
		if c.Interrupt {
			m.record.Planned = driver.Never // a mark
		} else {
			m.record.Repeat = ""
		}
		return false
	}
	if m.endsSeries(op, c) {
		delete(r.messages, c.ID)
		if op == driver.OpRetry && c.Again && !runFailed(c) {
			r.sums.Acked++
		} else {
			r.sums.Cancelled++
		}
		return false
	}
	switch op {
	case driver.OpBegin:
		m.record.State = driver.StateFiring
	case driver.OpAck, driver.OpExpire, driver.OpCancel, driver.OpPurge:
		delete(r.messages, c.ID)
	case driver.OpRetry, driver.OpBury, driver.OpRelease:
		r.settle(m, op, c)
		m.last = op
		m.schedule()
		if op == driver.OpBury {
			m.record.State = driver.StateDead
		}
	case driver.OpReschedule, driver.OpRepeat:
		if m.record.State != driver.StateFiring {
			m.loseLease()
			m.schedule()
		}
	case driver.OpReplay:
		m.loseLease()
		m.schedule()
		m.record.Attempts, m.record.Crashes, m.record.Postponed = 0, 0, 0
		m.reasonOpen = m.reasonOpen || m.record.Reason != ""
	}
	counters := map[driver.Op]*uint64{
		driver.OpAck: &r.sums.Acked, driver.OpExpire: &r.sums.Expired, driver.OpBury: &r.sums.Buried, driver.OpCancel: &r.sums.Cancelled,
	}
	if n := counters[op]; n != nil {
		*n++
	}
	return true
}

// settle counts a delivery that the holder of the lease has ended, and an attempt.
func (r *reference) settle(m *refMessage, op driver.Op, c driver.Change) {
	switch {
	case op == driver.OpRelease:
		if m.record.State == driver.StateFiring {
			m.record.Due = max(m.record.Due, m.record.Planned)
		}
		return
	case op == driver.OpBury:
		m.record.Attempts++
		m.record.Postponed = 0
	case c.Again:
		m.record.Attempts, m.record.Crashes, m.record.Postponed = 0, 0, 0
		if runFailed(c) {
			r.sums.Retried++
		} else {
			r.sums.Acked++
			r.sums.Enqueued++
		}
	case c.Uncounted:
		m.record.Postponed++
	default:
		m.record.Attempts++
		m.record.Postponed = 0
		r.sums.Retried++
	}
	m.record.Reason, m.reasonOpen = c.Reason, false
}

// counts returns the expected counts at an instant.
func (r *reference) counts(now driver.Instant) driver.Counts {
	c := r.sums
	c.Now, c.Paused = now, r.paused
	for _, m := range r.messages {
		switch {
		case m.inFlight():
			c.InFlight++
		case m.record.State == driver.StateDead:
			c.Dead++
			c.DeadBytes += int64(len(m.record.Body))
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

// firstLease returns the end of the first lease to expire, or 0 if there is none.
func (r *reference) firstLease() (first driver.Instant) {
	for _, m := range r.messages {
		if m.inFlight() && (first == 0 || m.record.LeaseEnd < first) {
			first = m.record.LeaseEnd
		}
	}
	return first
}
