package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

var applyTests = []test{
	{"Apply/EveryTransition", func(_ *testing.T, q *queue) { checkTransitions(q, false) }},
	{"Apply/Batch", applyBatch},
	{"Apply/Unknown", applyUnknown},
	{"Begin/Early", beginEarly},
	{"Begin/Lease", beginLease},
	{"Extend", extend},
	{"Retry/Reason", retryReason},
	{"Retry/Outcomes", retryOutcomes},
	{"Cancel/Incarnation", cancelIncarnation},
	{"Dead/Incarnation", deadIncarnation},
	{"Repeat", repeat},
	{"Retry/Runs", retryRuns},
	{"Cancel/Firing", cancelFiring},
	{"Cancel/Ends", cancelEnds},
}

// applyUnknown requests transitions that do not exist. They change nothing.
func applyUnknown(t *testing.T, q *queue) {
	c := q.deliver("dead")
	q.done(driver.OpBury, c)
	for _, op := range []driver.Op{0, driver.OpRepeat + 1, 255} {
		_, err := q.Apply(t.Context(), driver.Batch{Op: op, Changes: []driver.Change{c}})
		require.ErrorIs(t, err, driver.ErrInvalid)
		assert.ErrorContains(t, err, op.String())
	}
	assert.Equal(t, int64(1), q.count().Dead)
}

func statusesOf(outcomes []driver.Outcome) []driver.Status {
	return mapped(outcomes, func(o driver.Outcome) driver.Status { return o.Status })
}

// applyBatch makes each transition of [driver.MaxBatch] messages.
func applyBatch(t *testing.T, q *queue) {
	q.put(items("m", driver.MaxBatch)...)
	leased := func() []driver.Change { return changesOf(q.take(driver.MaxBatch)) }
	q.done(driver.OpReschedule, leased()...)
	q.done(driver.OpRepeat, leased()...)
	q.done(driver.OpRelease, leased()...)
	changes := leased()
	q.done(driver.OpExtend, changes...)
	q.done(driver.OpBegin, changes...)
	q.done(driver.OpRetry, changes...)
	q.done(driver.OpReplay, changesOf(endClaimed(q, driver.OpBury, driver.MaxBatch))...)
	changes = leased()
	q.done(driver.OpBegin, changes...)
	q.done(driver.OpAck, changes[:128]...)
	q.done(driver.OpBury, changes[128:]...)
	q.done(driver.OpPurge, changes[128:]...)
	has(q, 0, 0, 0)
	assert.Empty(t, q.apply(driver.OpAck), "an empty batch")
}

// beginEarly begins messages before they are due.
func beginEarly(t *testing.T, q *queue) {
	q.put(item("a", far))
	claimed := q.claimWith(driver.Claim{Horizon: 2 * far, Max: 1, Visibility: far})
	require.Len(t, claimed.Records, 1)
	change := changesOf(claimed.Records)[0]
	before := q.get("a")
	for _, lead := range []time.Duration{0, time.Second, -2 * far} {
		o := q.batch(driver.Batch{Op: driver.OpBegin, Visibility: far, Lead: lead,
			Changes: []driver.Change{change}})[0]
		assert.Equal(t, driver.StatusEarly, o.Status, "lead %v", lead)
		assert.Equal(t, before.Due, o.Due, "due time")
	}
	assert.Equal(t, before, q.get("a"), "an early begin changes nothing")
	o := q.batch(driver.Batch{Op: driver.OpBegin, Visibility: far, Lead: far + soon,
		Changes: []driver.Change{change}})[0]
	assert.Equal(t, driver.StatusDone, o.Status)
	assert.Equal(t, driver.StateFiring, q.get("a").State)
	assert.Equal(t, driver.StatusDone, q.status(driver.OpBegin, change),
		"a repetition is not early, because the message has begun")

	q.put(item("b", q.short()))
	change = changesOf(q.claimWith(driver.Claim{Horizon: far, Max: 1, Visibility: far}).Records)[0]
	due := q.get("b").Due
	for range 1000 { // the message may be due before the reply arrives
		o = q.apply(driver.OpBegin, change)[0]
		if o.Status == driver.StatusDone {
			break
		}
		require.Equal(t, driver.StatusEarly, o.Status)
		assert.True(t, o.Now.Before(due.Time()), "early at %v, due at %v", o.Now, due.Time())
		q.pass()
	}
	assert.False(t, o.Now.Before(due.Time()), "begun at %v, due at %v", o.Now, due.Time())
}

// beginLease checks the lease of a message that has begun. It is unchanged with Visibility 0.
func beginLease(t *testing.T, q *queue) {
	for _, visibilities := range [][]time.Duration{{2 * far, 3*far + 1, 4 * far}, {0, 0}} { // the 2nd repeats
		q := q.in(fmt.Sprint(len(visibilities)))
		q.put(item("a", 0))
		claimed := q.claim(1)
		lease := claimed[0].LeaseEnd
		for _, visibility := range visibilities {
			before := q.now()
			o := q.batch(driver.Batch{Op: driver.OpBegin, Visibility: visibility, Changes: changesOf(claimed)})[0]
			after := q.now()
			require.Equal(t, driver.StatusDone, o.Status)
			if visibility == 0 {
				assert.Zero(t, o.Lease)
			} else {
				lease = o.Lease
				assertLease(t, before, after, 0, visibility, lease)
			}
			assert.False(t, o.Now.Before(before) || o.Now.After(after), "Outcome.Now")
			r := q.get("a")
			assert.Equal(t, driver.StateFiring, r.State)
			assert.Equal(t, lease, r.LeaseEnd)
			assert.Equal(t, lease, q.claimWith(driver.Claim{}).Lease)
			assert.Equal(t, o.Due, r.Due)
		}
	}
}

// assertLease asserts that a lease ends visibility after a time from before to after or, if it is
// later, after the due time, to within a millisecond.
func assertLease(t *testing.T, before, after time.Time, due driver.Instant, visibility time.Duration, end driver.Instant) {
	t.Helper()
	last := due.Time().Add(visibility)
	assert.GreaterOrEqual(t, end, driver.Instant(max(before.Add(visibility).UnixMilli(), last.UnixMilli())))
	assert.LessOrEqual(t, end, max(driver.InstantOf(after.Add(visibility)), driver.InstantOf(last))+1)
}

// extend extends the leases of messages before and after they have begun.
func extend(_ *testing.T, q *queue) {
	m := newModel(q)
	m.store(false, item("a", 0), item("later", 5*far))
	changes := changesOf(m.makeClaim(driver.Claim{Horizon: 6 * far, Max: 2, Visibility: far}, m.now()))
	extend := func(begun, delay time.Duration) {
		for i := range changes {
			changes[i].Begun, changes[i].Delay = begun, delay
		}
		m.change(driver.OpExtend, changes...)
	}
	extend(0, 2*far)
	m.change(driver.OpBegin, changes[0])
	extend(4*far, 2*far) // only one has begun
	extend(0, 5*far)
	m.makeClaim(driver.Claim{}, m.now()) // which returns the first lease to end
	m.change(driver.OpAck, changes[0])
}

// retryReason checks that long reasons are truncated between characters.
func retryReason(t *testing.T, q *queue) {
	for name, reason := range map[string]string{
		"ascii":   strings.Repeat("x", contract.MaxReason+1),
		"long":    strings.Repeat("0123456789", 10_000),
		"unicode": "a" + strings.Repeat("語", contract.MaxReason),
		"exact":   strings.Repeat("y", contract.MaxReason),
		"empty":   "",
		"special": "line\nbreak \"quoted\" {} %s 😀",
	} {
		q := q.in(name)
		for id, op := range map[string]driver.Op{"retry": driver.OpRetry, "bury": driver.OpBury} {
			c := q.deliver(id)
			c.Reason, c.Delay = reason, far
			q.done(op, c)
			got := q.get(id).Reason
			assert.True(t, strings.HasPrefix(reason, got), name)
			assert.LessOrEqual(t, len(got), contract.MaxReason, name)
			assert.Greater(t, len(got)+utf8.UTFMax, min(len(reason), contract.MaxReason), name)
			if name != "unicode" {
				assert.Len(t, got, min(len(reason), contract.MaxReason), name)
			}
		}
	}
}

// retryOutcomes mixes messages that have failed, were postponed, and were handled and are due
// again.
func retryOutcomes(t *testing.T, q *queue) {
	m := newModel(q)
	for _, id := range []string{"m000", "m001", "m002"} {
		m.store(false, driver.PutItem{ID: id, Body: []byte("body"), MaxAttempts: 9, Repeat: "series of " + id})
	}
	for round := range 9 {
		changes := m.begun(3)
		for i := range changes {
			c := &changes[i]
			c.Reason = fmt.Sprint("round ", round)
			switch (round/2 + int(c.ID[3])) % 3 {
			case 1:
				c.Uncounted = true
			case 2:
				c.Again = true
			}
			if c.ID == "m001" {
				c.At = 1 // has passed
			}
		}
		m.change(driver.OpRetry, changes...)
		m.change(driver.OpRetry, changes...) // once more, as after a lost reply
		for _, c := range changes {
			assert.Equal(t, c.Token, m.get(c.ID).Token)
		}
		if round == 4 {
			m.queue = m.reopen()
		}
	}
	m.hold(q.short())
	m.pass()
	m.makeClaim(driver.Claim{}, m.now())
	m.compareLists(3) // a lease that expires before the message begins changes nothing
}

// cancelIncarnation checks that Cancel with an Incarnation affects only messages that were enqueued
// at that instant.
func cancelIncarnation(_ *testing.T, q *queue) {
	m := newModel(q)
	m.store(false, items("m", 3)...)
	first := m.get("m000").Enqueued
	m.change(driver.OpCancel, driver.Change{ID: "m000"})
	m.pass()
	m.store(false, item("m000", far))
	m.change(driver.OpReschedule, driver.Change{ID: "m001", Delay: far}) // the incarnation does not change
	leased := m.hold(far)
	m.change(driver.OpCancel, driver.Change{ID: "m000", Incarnation: first}, driver.Change{ID: "m001", Incarnation: first},
		driver.Change{ID: "m002", Incarnation: first + 1}, driver.Change{ID: "absent", Incarnation: first})
	m.change(driver.OpBegin, leased...)
	m.change(driver.OpCancel, driver.Change{ID: "m000", Incarnation: m.get("m000").Enqueued},
		driver.Change{ID: "m002", Incarnation: first})
	m.change(driver.OpRetry, leased...)
	m.pass()
	m.store(true, item("m002", far))
	m.change(driver.OpCancel, driver.Change{ID: "m002", Incarnation: first})
}

// deadIncarnation checks that Replay and Purge with an Incarnation affect only dead letters that
// died at that instant.
func deadIncarnation(_ *testing.T, q *queue) {
	m := newModel(q)
	for _, id := range []string{"a", "b"} {
		m.store(false, item(id, 0))
		m.change(driver.OpBury, m.begun(1)...)
		m.pass()
	}
	a, b := m.get("a").Died, m.get("b").Died
	m.change(driver.OpReplay, driver.Change{ID: "a", Incarnation: a})
	m.change(driver.OpBury, m.begun(1)...)
	for _, op := range []driver.Op{driver.OpReplay, driver.OpPurge} {
		m.change(op, driver.Change{ID: "a", Incarnation: a}, driver.Change{ID: "b", Incarnation: b + 1}) // it died again since then
	}
	m.change(driver.OpPurge, driver.Change{ID: "a", Incarnation: m.get("a").Died}, driver.Change{ID: "b", Incarnation: a})
}

// repeat changes the series of messages in several states with one call.
func repeat(_ *testing.T, q *queue) {
	for _, from := range []string{"", "daily"} {
		for _, to := range []string{"", "weekly"} {
			m := newModel(q.in(fmt.Sprintf("from-%s.to-%s", from, to)))
			put := func(id string) {
				m.store(false, driver.PutItem{ID: id, Body: []byte("body"), MaxAttempts: 2, Repeat: from})
			}
			put(dead)
			m.change(driver.OpBury, m.begun(1)...)
			put(firing)
			m.begun(1)
			put(leased)
			m.hold(far)
			put(scheduled)
			for _, at := range []driver.Instant{0, driver.InstantOf(q.now().Add(2 * far))} {
				m.change(driver.OpRepeat, mapped([]string{dead, firing, leased, absent, scheduled}, func(id string) driver.Change {
					return driver.Change{ID: id, Repeat: to, Delay: far, At: at}
				})...)
				m.compareLists(3)
			}
		}
	}
}

// retryRuns ends runs, also of a series that was changed during the run.
func retryRuns(_ *testing.T, q *queue) {
	for name, c := range map[string]struct {
		repeat string
		change func(*model)
	}{
		"same":      {"daily", func(*model) {}},
		"put":       {"daily", func(m *model) { m.store(true, recurring("m", 3*far)) }},
		"later":     {"daily", func(m *model) { m.change(driver.OpRepeat, driver.Change{ID: "m", Repeat: "weekly", Delay: 3 * far}) }},
		"passed":    {"daily", func(m *model) { m.change(driver.OpRepeat, driver.Change{ID: "m", Repeat: "weekly"}) }},
		"ended":     {"daily", func(m *model) { m.change(driver.OpRepeat, driver.Change{ID: "m"}) }},
		"cancelled": {"daily", func(m *model) { m.change(driver.OpCancel, driver.Change{ID: "m"}) }},
		"marked":    {"daily", func(m *model) { m.change(driver.OpCancel, driver.Change{ID: "m", Interrupt: true}) }},
		"plain":     {"", func(*model) {}},
	} {
		for _, reason := range []string{"", "failed"} {
			m := newModel(q.in(name + reason))
			m.store(false, driver.PutItem{ID: "m", MaxAttempts: 2, Repeat: c.repeat})
			run := max(1, m.get("m").Planned)
			m.change(driver.OpRetry, m.begun(1)...)
			end := m.begun(1)[0]
			end.Again, end.Incarnation, end.Reason, end.Delay = true, run, reason, 2*far
			m.pass()
			c.change(m)
			m.pass()
			m.change(driver.OpRetry, end)
			m.change(driver.OpRetry, end) // a repetition
		}
	}
}

// cancelFiring cancels firing messages. Their series end, and with Interrupt they are marked.
func cancelFiring(_ *testing.T, q *queue) {
	for _, series := range []string{"", "daily"} {
		for _, interrupt := range []bool{false, true} {
			m := newModel(q.in(fmt.Sprint(series, interrupt)))
			m.store(false, driver.PutItem{ID: "m", Body: []byte("body"), Repeat: series}, item("other", far))
			c := m.begun(1)[0]
			enqueued := m.get("m").Enqueued
			for _, incarnation := range []driver.Instant{enqueued + 1, enqueued, 0} {
				m.change(driver.OpCancel, driver.Change{ID: "m", Interrupt: interrupt, Incarnation: incarnation})
			}
			m.change(driver.OpReschedule, driver.Change{ID: "m"})
			m.change(driver.OpRepeat, driver.Change{ID: "m", Repeat: "weekly"})
			m.change(driver.OpBegin, c)
			c.Delay = 2 * far
			m.change(driver.OpExtend, c)
			m.change(driver.OpCancel, driver.Change{ID: "other", Interrupt: interrupt})
		}
	}
}

// cancelEnds ends the deliveries of marked messages. They are removed.
func cancelEnds(_ *testing.T, q *queue) {
	for i, c := range []struct {
		op     driver.Op
		change driver.Change
	}{
		{driver.OpAck, driver.Change{}},
		{driver.OpExpire, driver.Change{}},
		{driver.OpRetry, driver.Change{Reason: "why"}},
		{driver.OpRetry, driver.Change{Uncounted: true}},
		{driver.OpRetry, driver.Change{Again: true}},
		{driver.OpRetry, driver.Change{Again: true, Incarnation: 1}},
		{driver.OpRetry, driver.Change{Again: true, Incarnation: driver.Never, Reason: "why"}},
		{driver.OpBury, driver.Change{Again: true}},
		{driver.OpRelease, driver.Change{}},
	} {
		for _, series := range []string{"", "daily"} {
			m := newModel(q.in(fmt.Sprint(i, series, c.op)))
			m.store(false, driver.PutItem{ID: "m", Repeat: series}, item("other", far))
			begun := m.begun(1)[0]
			m.change(driver.OpCancel, driver.Change{ID: "m", Interrupt: true})
			c.change.ID, c.change.Token = begun.ID, begun.Token
			m.change(c.op, c.change)
			m.gone("m")
			m.change(c.op, c.change)
			m.audit(0, true, 1)
		}
	}
}
