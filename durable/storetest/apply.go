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
	{"Apply/EveryTransition", transitionTable},
	{"Apply/MixedResults", applyMixed},
	{"Apply/Batch", applyBatch},
	{"Apply/Unknown", applyUnknown},
	{"Begin/Early", beginEarly},
	{"Begin/Lease", beginLease},
	{"Extend", extend},
	{"Retry/Reason", retryReason},
	{"Retry/Outcomes", retryOutcomes},
	{"Reschedule", reschedule},
	{"Cancel/Incarnation", cancelIncarnation},
	{"Dead/Incarnation", deadIncarnation},
	{"Repeat", repeat},
	{"Retry/Runs", retryRuns},
	{"Cancel/Firing", cancelFiring},
	{"Cancel/Ends", cancelEnds},
}

// applyUnknown requests transitions that do not exist. They change nothing.
func applyUnknown(t *testing.T, q *queue) {
	q.put(item("dead", 0))
	c := changesOf(q.claim(1))
	q.apply(driver.OpBegin, c...)
	q.apply(driver.OpBury, c...)
	for _, op := range []driver.Op{0, driver.OpRepeat + 1, 255} {
		_, err := q.Apply(t.Context(), driver.Batch{Op: op, Changes: c})
		require.ErrorIs(t, err, driver.ErrInvalid)
		assert.ErrorContains(t, err, op.String())
	}
	assert.Equal(t, int64(1), q.count().Dead)
}

// applyMixed applies a batch whose messages have different results.
func applyMixed(t *testing.T, q *queue) {
	q.put(items("m", 3)...)
	q.put(item("later", far))
	r := changesOf(q.claim(3))
	wrong := driver.Change{ID: r[1].ID, Token: r[1].Token + 1000}
	outcomes := q.apply(driver.OpBegin, r[0], wrong, driver.Change{ID: "absent", Token: r[2].Token},
		r[2], driver.Change{ID: "later"})
	lost, done := driver.StatusLeaseLost, driver.StatusDone
	assert.Equal(t, []driver.Status{done, lost, lost, done, lost}, statusesOf(outcomes))
	outcomes = q.apply(driver.OpCancel, r[0], r[1], driver.Change{ID: "absent"}, driver.Change{ID: "later"})
	assert.Equal(t, []driver.Status{driver.StatusFiring, done, driver.StatusNotFound, done},
		statusesOf(outcomes))
	assert.Equal(t, uint64(2), has(q, 0, 2, 0).Cancelled)
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
func extend(t *testing.T, q *queue) {
	q.put(item("a", 0), item("later", 5*far))
	claimed := q.claimWith(driver.Claim{Horizon: 6 * far, Max: 2, Visibility: far})
	changes := changesOf(claimed.Records)
	require.Len(t, changes, 2)
	changes[0].Delay, changes[1].Delay = 2*far, 2*far
	before := q.now()
	outcomes := q.done(driver.OpExtend, changes...)
	after := q.now()
	assertLease(t, before, after, 0, 2*far, outcomes[0].Lease)
	assertLease(t, before, after, q.get("later").Due, 2*far, outcomes[1].Lease)
	for i, c := range changes {
		r := q.get(c.ID)
		assert.Equal(t, driver.StateLeased, r.State)
		assert.Equal(t, outcomes[i].Lease, r.LeaseEnd)
		assert.Equal(t, c.Token, r.Token, "the token does not change")
	}
	q.done(driver.OpBegin, changes[0])
	changes[0].Begun, changes[1].Begun = 4*far, 4*far // only one has begun
	before = q.now()
	outcomes = q.done(driver.OpExtend, changes...)
	after = q.now()
	assertLease(t, before, after, 0, 4*far, outcomes[0].Lease)
	assertLease(t, before, after, q.get("later").Due, 2*far, outcomes[1].Lease)
	assert.Equal(t, []driver.Instant{outcomes[0].Lease, outcomes[1].Lease}, []driver.Instant{q.get("a").LeaseEnd, q.get("later").LeaseEnd})
	changes[0].Delay, changes[0].Begun = 5*far, 0
	before = q.now()
	o := q.done(driver.OpExtend, changes[0])[0]
	assertLease(t, before, q.now(), 0, 5*far, o.Lease)
	r := q.get("a")
	assert.Equal(t, driver.StateFiring, r.State)
	assert.Equal(t, o.Lease, r.LeaseEnd)
	assert.Equal(t, o.Lease, q.expire(0).Lease, "the first lease to end")
	q.done(driver.OpAck, changes[0])
}

// retryReason checks that long reasons are truncated between characters.
func retryReason(t *testing.T, q *queue) {
	for name, reason := range map[string]string{
		"ascii":   strings.Repeat("x", contract.MaxReason+1),
		"long":    strings.Repeat("0123456789", 10_000),
		"unicode": "a" + strings.Repeat("語", contract.MaxReason),
		"exact":   strings.Repeat("y", contract.MaxReason),
		"empty":   "",
		"special": "line\nbreak\x00 \"quoted\" {} %s 😀",
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
	ids := []string{"m000", "m001", "m002"}
	for _, id := range ids {
		q.put(driver.PutItem{ID: id, Body: []byte("body"), MaxAttempts: 9, Repeat: "series of " + id})
	}
	want := map[string]driver.Record{}
	for _, id := range ids {
		want[id] = q.get(id)
	}
	for round := range 9 {
		records := q.take(3)
		q.begin(records...)
		changes := changesOf(records)
		for i := range changes {
			c, r := &changes[i], want[changes[i].ID]
			assert.Equal(t, []any{r.Attempts, r.Reason}, []any{records[i].Attempts, records[i].Reason})
			c.Reason, r.Reason, r.Token = fmt.Sprint("round ", round), fmt.Sprint("round ", round), c.Token
			switch (round/2 + int(c.ID[3])) % 3 {
			case 0:
				r.Attempts, r.Postponed = r.Attempts+1, 0
			case 1:
				c.Uncounted = true
				r.Postponed++
			case 2:
				c.Again = true
				r.Attempts, r.Crashes, r.Postponed = 0, 0, 0
			}
			if c.ID == "m001" {
				c.At = 1 // has passed
			}
			want[c.ID] = r
		}
		q.done(driver.OpRetry, changes...)
		q.done(driver.OpRetry, changes...) // once more, as after a lost reply
		for _, id := range ids {
			r := want[id]
			r.Due = q.get(id).Due
			want[id] = r
			assert.Equal(t, r, q.get(id))
		}
		if round == 4 {
			q = q.reopen()
		}
	}
	assert.Equal(t, driver.Counters{Enqueued: 3 + 9, Acked: 9, Retried: 9}, q.count().Counters)
	q.claimShort(3)
	q.pass()
	q.expire(0)
	for _, id := range ids {
		assert.Equal(t, want[id].Postponed, q.get(id).Postponed, "a lease that expires before the message begins changes nothing")
	}
}

func reschedule(t *testing.T, q *queue) {
	q.put(item("a", 2*far), item("b", 3*far))
	q.done(driver.OpReschedule, driver.Change{ID: "a", Delay: 4 * far})
	assert.Equal(t, q.get("b").Due, q.count().NextDue, "the other message is now the earliest")
	q.done(driver.OpReschedule, driver.Change{ID: "a"})
	assert.Equal(t, []string{"a"}, idsOf(q.claim(2)))
	q.done(driver.OpReschedule, driver.Change{ID: "a", Delay: 5 * far})
	has(q, 2, 0, 0)
	assert.Empty(t, q.claim(2))
	assert.Equal(t, []string{"b", "a"},
		idsOf(q.claimWith(driver.Claim{Horizon: 6 * far, Max: 2, Visibility: far}).Records))
}

// cancelIncarnation checks that Cancel with an Incarnation affects only messages that were enqueued
// at that instant.
func cancelIncarnation(t *testing.T, q *queue) {
	q.put(items("m", 3)...)
	first := q.get("m000").Enqueued
	q.done(driver.OpCancel, driver.Change{ID: "m000"})
	q.pass()
	q.put(item("m000", far))
	q.done(driver.OpReschedule, driver.Change{ID: "m001", Delay: far}) // the incarnation does not change
	leased := changesOf(q.claim(1))
	require.Equal(t, "m002", leased[0].ID)

	outcomes := q.apply(driver.OpCancel, driver.Change{ID: "m000", Incarnation: first}, driver.Change{ID: "m001", Incarnation: first},
		driver.Change{ID: "m002", Incarnation: first + 1}, driver.Change{ID: "absent", Incarnation: first})
	none := driver.StatusNotFound
	assert.Equal(t, []driver.Status{none, driver.StatusDone, none, none}, statusesOf(outcomes))
	q.done(driver.OpBegin, leased...)
	outcomes = q.apply(driver.OpCancel, driver.Change{ID: "m000", Incarnation: q.get("m000").Enqueued},
		driver.Change{ID: "m002", Incarnation: first})
	assert.Equal(t, []driver.Status{driver.StatusDone, driver.StatusFiring}, statusesOf(outcomes))
	assert.Equal(t, uint64(3), q.count().Cancelled)

	q.done(driver.OpRetry, leased...)
	q.pass()
	replaced := driver.Put{Replace: true, Items: []driver.PutItem{item("m002", far)}}
	assert.Equal(t, []driver.Status{driver.StatusDone}, q.statuses(replaced))
	assert.Equal(t, none, q.status(driver.OpCancel, driver.Change{ID: "m002", Incarnation: first}))
}

// deadIncarnation checks that Replay and Purge with an Incarnation affect only dead letters that
// died at that instant.
func deadIncarnation(t *testing.T, q *queue) {
	died := map[string]driver.Instant{}
	for _, id := range []string{"a", "b"} {
		q.done(driver.OpBury, q.deliver(id))
		died[id] = q.get(id).Died
		q.pass()
	}
	q.done(driver.OpReplay, driver.Change{ID: "a", Incarnation: died["a"]})
	again := changesOf(q.claim(1))
	q.done(driver.OpBegin, again...)
	q.done(driver.OpBury, again...)
	for _, op := range []driver.Op{driver.OpReplay, driver.OpPurge} {
		assert.Equal(t, driver.StatusNotFound,
			q.status(op, driver.Change{ID: "a", Incarnation: died["a"]}), "it died again since then")
		assert.Equal(t, driver.StatusNotFound, q.status(op, driver.Change{ID: "b", Incarnation: died["b"] + 1}))
	}
	outcomes := q.apply(driver.OpPurge, driver.Change{ID: "a", Incarnation: q.get("a").Died},
		driver.Change{ID: "b", Incarnation: died["a"]})
	assert.Equal(t, []driver.Status{driver.StatusDone, driver.StatusNotFound}, statusesOf(outcomes))
	assert.Equal(t, int64(1), q.count().Dead)
}

// repeat changes the series of messages in each state.
func repeat(_ *testing.T, q *queue) {
	for _, from := range []string{"", "daily"} {
		for _, to := range []string{"", "weekly"} {
			for _, state := range []string{absent, scheduled, leased, firing, dead} {
				what := fmt.Sprintf("%s.from-%s.to-%s", state, from, to)
				a := q.in(what)
				if state != absent {
					a.put(driver.PutItem{ID: "m", Body: []byte("body"), MaxAttempts: 2, Repeat: from})
				}
				if state != absent && state != scheduled {
					a.proceed(state, a.take(1))
				}
				checkRepeat(a, what, state, from, to)
			}
		}
	}
}

func checkRepeat(q *queue, what, state, from, to string) {
	t := q.t
	t.Helper()
	if state == absent || state == dead {
		assert.Equal(t, driver.StatusNotFound, q.status(driver.OpRepeat, driver.Change{ID: "m", Repeat: to}), what)
		return
	}
	was := q.get("m")
	change, before := driver.Change{ID: "m", Repeat: to, Delay: far}, q.now()
	status := q.status(driver.OpRepeat, change)
	after, r := q.now(), q.get("m")
	switch {
	case state == firing && from == "":
		assert.Equal(t, driver.StatusFiring, status, what)
		assert.Equal(t, was, r, what)
		return
	case to == "" && state == firing: // the due time stays, and so does the planned time of the run
	case to == "":
		was.State, was.LeaseEnd, was.Token, was.Planned = driver.StateScheduled, 0, r.Token, 0
	case state == firing:
		assertDelay(t, before, after, far, r.Planned, what)
		was.Planned = r.Planned
	default:
		assertDelay(t, before, after, far, r.Due, what)
		was.State, was.LeaseEnd, was.Token, was.Due, was.Planned = driver.StateScheduled, 0, r.Token, r.Due, plannedOf(to, r.Due)
	}
	assert.Equal(t, driver.StatusDone, status, what)
	was.Repeat = to
	assert.Equal(t, was, r, what)
	if change.At = driver.InstantOf(q.now().Add(2 * far)); to == "" {
		return
	}
	due := change.At
	if state == firing {
		due = was.Due
	}
	q.done(driver.OpRepeat, change)
	assert.Equal(t, []driver.Instant{due, change.At}, []driver.Instant{q.get("m").Due, q.get("m").Planned}, what)
}

// retryRuns ends runs, also of a series that was changed during the run.
func retryRuns(t *testing.T, q *queue) {
	const removed, asked, planned, now = "removed", "asked", "planned", "now" // due times of the next run
	for name, c := range map[string]struct {
		repeat string
		change func(*queue)
		want   string
	}{
		"same": {"daily", func(*queue) {}, asked},
		"put": {"daily", func(q *queue) {
			q.statuses(driver.Put{Replace: true, Items: []driver.PutItem{recurring("m", 3*far)}})
		}, planned},
		"later":     {"daily", func(q *queue) { q.done(driver.OpRepeat, driver.Change{ID: "m", Repeat: "weekly", Delay: 3 * far}) }, planned},
		"passed":    {"daily", func(q *queue) { q.done(driver.OpRepeat, driver.Change{ID: "m", Repeat: "weekly"}) }, now},
		"ended":     {"daily", func(q *queue) { q.done(driver.OpRepeat, driver.Change{ID: "m"}) }, removed},
		"cancelled": {"daily", func(q *queue) { q.apply(driver.OpCancel, driver.Change{ID: "m"}) }, removed},
		"marked":    {"daily", func(q *queue) { q.apply(driver.OpCancel, driver.Change{ID: "m", Interrupt: true}) }, removed},
		"plain":     {"", func(*queue) {}, removed},
	} {
		for _, reason := range []string{"", "failed"} {
			a := q.in(name + reason)
			a.put(driver.PutItem{ID: "m", MaxAttempts: 2, Repeat: c.repeat})
			run := max(1, a.get("m").Planned)
			a.done(driver.OpRetry, a.beginNext())
			end := a.beginNext()
			end.Again, end.Incarnation, end.Reason, end.Delay = true, run, reason, 2*far
			a.pass()
			c.change(a)
			a.pass()
			counters, was, before := a.count().Counters, a.get("m"), a.now()
			a.done(driver.OpRetry, end)
			after := a.now()
			a.checkRun(was, counters, end, c.want == removed)
			if c.want == removed {
				continue
			}
			switch r := a.get("m"); c.want {
			case asked:
				assertDelay(t, before, after, 2*far, r.Due, name)
			case now:
				assertDelay(t, before, after, 0, r.Due, name)
			default:
				assert.Equal(t, was.Planned, r.Due, name)
			}
		}
	}
}

// checkRun compares a message whose run is over, and the counters, with those before the end.
func (q *queue) checkRun(was driver.Record, counters driver.Counters, end driver.Change, removed bool) {
	t := q.t
	t.Helper()
	switch failed := end.Reason != ""; {
	case removed && failed:
		counters.Cancelled++
	case failed:
		counters.Retried++
	case removed:
		counters.Acked++
	default:
		counters.Acked++
		counters.Enqueued++
	}
	if removed {
		q.gone(end.ID)
		assert.Equal(t, driver.StatusLeaseLost, q.status(driver.OpRetry, end), "a repetition")
	} else {
		r := q.get(end.ID)
		was.State, was.LeaseEnd, was.Attempts, was.Reason = driver.StateScheduled, 0, 0, end.Reason
		was.Due, was.Planned = r.Due, r.Due
		assert.Equal(t, was, r)
		assert.Equal(t, driver.StatusDone, q.status(driver.OpRetry, end), "a repetition")
	}
	assert.Equal(t, counters, q.count().Counters)
}

// cancelFiring cancels firing messages. Their series end, and with Interrupt they are marked.
func cancelFiring(t *testing.T, q *queue) {
	for _, series := range []string{"", "daily"} {
		for _, interrupt := range []bool{false, true} {
			a := q.in(fmt.Sprint(series, interrupt))
			a.put(driver.PutItem{ID: "m", Body: []byte("body"), Repeat: series}, item("other", far))
			c := a.beginNext()
			was := a.get("m")
			none := driver.Change{ID: "m", Interrupt: interrupt, Incarnation: was.Enqueued + 1}
			assert.Equal(t, driver.StatusNotFound, a.status(driver.OpCancel, none))
			assert.Equal(t, was, a.get("m"))
			want, extended := driver.StatusFiring, driver.StatusDone
			if was.Repeat = ""; interrupt {
				want, extended, was.Repeat, was.Planned = driver.StatusInterrupted, driver.StatusInterrupted, series, driver.Never
			}
			for _, incarnation := range []driver.Instant{was.Enqueued, 0} {
				assert.Equal(t, want, a.status(driver.OpCancel, driver.Change{ID: "m", Interrupt: interrupt, Incarnation: incarnation}))
				assert.Equal(t, was, a.get("m"))
			}
			assert.Equal(t, driver.StatusFiring, a.status(driver.OpReschedule, driver.Change{ID: "m"}))
			assert.Equal(t, driver.StatusFiring, a.status(driver.OpRepeat, driver.Change{ID: "m", Repeat: "weekly"}))
			a.done(driver.OpBegin, c)
			c.Delay = 2 * far
			before := a.now()
			o := a.apply(driver.OpExtend, c)[0]
			assert.Equal(t, extended, o.Status)
			assertLease(t, before, a.now(), 0, 2*far, o.Lease)
			was.LeaseEnd = o.Lease
			assert.Equal(t, was, a.get("m"))
			assert.Equal(t, driver.StatusDone, a.status(driver.OpCancel, driver.Change{ID: "other", Interrupt: interrupt}))
			assert.Equal(t, driver.Counters{Enqueued: 2, Cancelled: 1}, has(a, 0, 1, 0).Counters)
		}
	}
}

// cancelEnds ends the deliveries of marked messages. They are removed.
func cancelEnds(t *testing.T, q *queue) {
	acked, cancelled := driver.Counters{Enqueued: 2, Acked: 1}, driver.Counters{Enqueued: 2, Cancelled: 1}
	for i, c := range []struct {
		op     driver.Op
		change driver.Change
		want   driver.Counters
	}{
		{driver.OpAck, driver.Change{}, acked},
		{driver.OpExpire, driver.Change{}, driver.Counters{Enqueued: 2, Expired: 1}},
		{driver.OpRetry, driver.Change{Reason: "why"}, cancelled},
		{driver.OpRetry, driver.Change{Uncounted: true}, cancelled},
		{driver.OpRetry, driver.Change{Again: true}, acked},
		{driver.OpRetry, driver.Change{Again: true, Incarnation: 1}, acked},
		{driver.OpRetry, driver.Change{Again: true, Incarnation: driver.Never, Reason: "why"}, cancelled},
		{driver.OpBury, driver.Change{Again: true}, cancelled},
		{driver.OpRelease, driver.Change{}, cancelled},
	} {
		for _, series := range []string{"", "daily"} {
			what := fmt.Sprint(i, series, c.op)
			a := q.in(what)
			a.put(driver.PutItem{ID: "m", Repeat: series}, item("other", far))
			change := a.beginNext()
			require.Equal(t, driver.StatusInterrupted, a.status(driver.OpCancel, driver.Change{ID: "m", Interrupt: true}), what)
			c.change.ID, c.change.Token = change.ID, change.Token
			a.done(c.op, c.change)
			a.gone("m")
			assert.Equal(t, c.want, has(a, 1, 0, 0).Counters, what)
			again := driver.StatusLeaseLost
			if c.op == driver.OpAck || c.op == driver.OpExpire {
				again = driver.StatusNotFound
			}
			assert.Equal(t, again, a.status(c.op, c.change), what)
			assert.Equal(t, c.want, has(a, 1, 0, 0).Counters, what)
			a.audit(0, true, 1)
		}
	}
}
