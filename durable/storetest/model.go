package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// modelTests returns one test for each seed.
func modelTests() []test {
	tests := make([]test, max(3, testscale.Size(10)))
	for i := range tests {
		tests[i] = test{fmt.Sprint("Model/", i+1), func(_ *testing.T, q *queue) {
			steps := 1000
			if q.fixture.Advance == nil {
				steps = 250 // because some steps sleep
			}
			runModel(q, rand.NewPCG(uint64(i)+1, 0), testscale.Size(steps))
		}}
	}
	return tests
}

// runModel makes random transitions, the same ones for the same source, and compares the store
// with a simple model after each step: the statuses, every message, and the counts. It moves the
// clock if the fixture can. Otherwise leases are short, and expire by themselves. A step makes
// about thirty calls to the store. All random choices are read from source, so that a fuzz target
// can make them.
func runModel(q *queue, source rand.Source, steps int) {
	q.t.Helper()
	m := newModel(q)
	m.random = rand.New(source) //nolint:gosec // not for secrets
	for i := range 12 {
		m.ids = append(m.ids, fmt.Sprintf("m%02d", i))
	}
	for step := range steps {
		m.step()
		m.compare(m.ids, fmt.Sprintf("step %d: %s", step, m.what))
		if step%25 == 0 {
			m.compareLists(5)
			m.audit(0, m.random.IntN(2) == 0, len(m.messages))
		}
	}
}

// newModel returns the model of an empty queue.
func newModel(q *queue) *model {
	return &model{
		queue: q, movable: q.fixture.Advance != nil,
		reference: reference{messages: make(map[string]*refMessage),
			grants: make(map[string][]driver.Change)},
		tokens: make(map[string][]uint64),
		seen:   make(map[string]uint64),
		claims: make(map[string]uint64),
		noted:  make(map[string]uint64),
		last:   make(map[string]repeatable),
	}
}

// model is a queue under test with its reference.
type model struct {
	*queue
	reference
	random  *rand.Rand
	movable bool
	ids     []string
	tokens  map[string][]uint64 // all tokens of a message
	seen    map[string]uint64   // the highest token that a consumer has received
	claims  map[string]uint64   // number of a consumer's last claim
	noted   map[string]uint64   // number below which a consumer's claims are rejected
	what    string              // the last step, for failure messages

	seq  uint64                // of the last call
	last map[string]repeatable // the last calls without a token, by caller
}

// repeatable is a call without a token that was made.
type repeatable struct {
	call     driver.Call
	make     func(driver.Call) ([]driver.Status, error)
	statuses []driver.Status
	what     string
}

func (m *model) step() {
	switch n := m.random.IntN(100); {
	case n < 20:
		m.stepPut()
	case n < 25:
		m.stepRepeat()
	case n < 45:
		m.stepClaim()
	case n < 90:
		m.stepApply()
	case n < 92:
		m.stepPause()
	default:
		m.stepPass()
	}
}

// pick returns one to most of the ids.
func (m *model) pick(most int) []string {
	n := 1 + m.random.IntN(most)
	ids := make([]string, n)
	for i, j := range m.random.Perm(len(m.ids))[:n] {
		ids[i] = m.ids[j]
	}
	return ids
}

// With a movable clock, compared times are always far apart: the clock moves by whole minutes,
// messages are due some seconds before a minute, horizons end half a minute later, and leases end
// in between.

func (m *model) units(most int) time.Duration {
	if m.movable {
		return time.Duration(m.random.IntN(most)) * time.Minute
	}
	return time.Duration(m.random.IntN(most)) * time.Hour
}

func (m *model) delay() time.Duration {
	if d := m.units(5); d > 0 {
		return d - 10*time.Second
	}
	return 0
}

// at returns an instant that may have passed. Few are Never.
func (m *model) at(now time.Time) driver.Instant {
	if m.random.IntN(4) == 0 {
		return driver.Never
	}
	return driver.InstantOf(now.Add(m.delay() - time.Minute))
}

// series returns a Repeat. Half of the messages are recurring.
func (m *model) series() string {
	return strings.Repeat("*", max(0, m.random.IntN(512)-256))
}

func horizonOf(m *model) time.Duration { return m.units(4) + 30*time.Second }

func visibilityOf(m *model) time.Duration {
	if !m.movable && m.random.IntN(2) == 0 {
		return 5 * time.Millisecond
	}
	return m.units(4) + time.Minute + 20*time.Second
}

func (m *model) stepPass() {
	m.what = "time passes"
	if m.movable {
		m.fixture.Advance(time.Duration(1+m.random.IntN(3)) * time.Minute)
		return
	}
	time.Sleep(20 * time.Millisecond)
}

// settle waits if a lease might expire, or a crashed message become due, during the next call.
func (m *model) settle() time.Time {
	for {
		now := m.now()
		near := false
		for _, r := range m.messages {
			isNear := func(at driver.Instant) bool {
				return at > driver.Instant(now.UnixMilli()) && at.Time().Before(now.Add(time.Second))
			}
			near = near || r.inFlight() && isNear(r.record.LeaseEnd) || contract.CrashDelay(r.record.Crashes) > 0 && isNear(r.record.Due)
		}
		if !near {
			return now
		}
		if m.movable {
			m.fixture.Advance(time.Second)
		} else {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// stepPause pauses the partition, or resumes it, which is twice as likely.
func (m *model) stepPause() {
	m.paused = m.random.IntN(3) == 0
	p := driver.Pause{Call: m.nextCall("pauses"), Paused: m.paused}
	m.what = fmt.Sprintf("pause %+v", p)
	require.NoError(m.t, m.Pause(m.t.Context(), p), m.what)
}

func (m *model) stepPut() {
	before := m.now()
	p := driver.Put{Call: m.nextCall("puts"), Replace: m.random.IntN(3) == 0}
	for _, id := range m.pick(8) {
		p.Items = append(p.Items, driver.PutItem{
			ID: id, Body: make([]byte, m.random.IntN(40)), Delay: m.delay(),
			MaxAttempts: 1 + m.random.IntN(9),
		})
		last := &p.Items[len(p.Items)-1]
		if m.random.IntN(5) == 0 {
			last.At, last.Delay = m.at(before), 0
		}
		last.Repeat = m.series()
	}
	m.what = fmt.Sprintf("put %+v", p)
	m.last[p.Call.Caller] = repeatable{p.Call, func(c driver.Call) ([]driver.Status, error) {
		p.Call = c
		return m.Put(m.t.Context(), p)
	}, m.makePut(p, before), m.what}
}

// makePut stores messages, in the model too. It returns their statuses, which must be those that
// the model expects.
func (m *model) makePut(p driver.Put, before time.Time) []driver.Status {
	m.t.Helper()
	want := make([]driver.Status, len(p.Items))
	for i, it := range p.Items {
		want[i] = m.putStatus(it, p.Replace)
	}
	got := m.statuses(p)
	after := m.now()
	require.Equal(m.t, want, got, m.what)
	for i, it := range p.Items {
		if got[i] != driver.StatusDone {
			continue
		}
		m.sums.Enqueued++
		r := m.get(it.ID)
		assertDelay(m.t, before, after, 0, r.Enqueued, m.what)
		if ref := m.messages[it.ID]; ref != nil && ref.record.State == driver.StateFiring {
			m.assertDue(before, after, it.At, it.Delay, r.Planned)
			ref.replace(it, r.Enqueued, r.Planned)
			continue
		}
		m.assertDue(before, after, it.At, it.Delay, r.Due)
		m.messages[it.ID] = &refMessage{record: driver.Record{ID: it.ID, Due: r.Due, State: driver.StateScheduled}}
		m.messages[it.ID].replace(it, r.Enqueued, plannedOf(it.Repeat, r.Due))
	}
	return got
}

func (m *model) assertDue(before, after time.Time, at driver.Instant, delay time.Duration, got driver.Instant) {
	m.t.Helper()
	if at > driver.InstantOf(after) {
		require.Equal(m.t, at, got, m.what)
		return
	}
	assertDelay(m.t, before, after, delay, got, m.what)
}

// nextCall returns a new call.
func (m *model) nextCall(caller string) driver.Call {
	m.seq++
	return driver.Call{Caller: caller, Seq: m.seq,
		NotAfter: driver.InstantOf(m.now()).Add(2 * time.Minute)}
}

// stepRepeat repeats the last call without a token, or makes an older one. A call that may be
// forgotten, or is older than the last one, is late.
func (m *model) stepRepeat() {
	if !m.fixture.Remote {
		return
	}
	older := m.random.IntN(4) == 0
	last := m.last[[]string{"puts", "changes"}[m.random.IntN(2)]]
	if last.make == nil {
		return
	}
	if older {
		last.call.Seq--
	}
	m.what = fmt.Sprintf("again with %+v: %s", last.call, last.what)
	statuses, err := last.make(last.call)
	if err == nil {
		require.False(m.t, older, "a call that is older than the last one: %s", m.what)
		require.Equal(m.t, last.statuses, statuses, m.what)
		return
	}
	var late *driver.LateError
	require.ErrorAs(m.t, err, &late, m.what)
	if !older {
		require.Less(m.t, last.call.NotAfter, driver.InstantOf(m.now()), "the store did not remember the call: %s", m.what)
	}
}

func (m *model) stepClaim() {
	c := driver.Claim{
		Horizon: horizonOf(m), Max: m.random.IntN(6), MaxBytes: 1 + m.random.IntN(100),
		Visibility: visibilityOf(m), MaxCrashes: m.random.IntN(4),
		Begin: max(0, m.random.IntN(8)-4), Consumer: []string{"", "a", "b"}[m.random.IntN(3)],
		Repeat: m.random.IntN(4) == 0,
	}
	m.claims[c.Consumer]++
	c.Seq = m.claims[c.Consumer]
	if m.random.IntN(2) == 0 {
		c.Hold = visibilityOf(m)
	}
	c.Seen = m.seen[c.Consumer]
	late := m.fixture.Remote && c.Consumer != "" && m.noted[c.Consumer] > 1 && m.random.IntN(8) == 0
	if late {
		c.Seq = 1 + m.random.Uint64N(m.noted[c.Consumer]-1)
	}
	m.what = fmt.Sprintf("claim %+v", c)
	before := m.settle()
	if late {
		claimed, err := m.Claim(m.t.Context(), c)
		require.NoError(m.t, err, m.what)
		require.Empty(m.t, claimed.Records, m.what)
		return
	}
	for _, r := range m.makeClaim(c, before) {
		if c.Consumer != "" && m.random.IntN(2) == 0 { // otherwise the answer is lost
			m.seen[c.Consumer] = max(m.seen[c.Consumer], r.Token)
		}
	}
}

// makeClaim makes a claim, in the model too, and checks its answer. If MaxBytes is 0, the size of
// bodies is not limited.
func (m *model) makeClaim(c driver.Claim, before time.Time) []driver.Record {
	m.t.Helper()
	c.MaxBytes = cmp.Or(c.MaxBytes, manyBytes)
	now := driver.Instant(before.UnixMilli())
	unseen := m.unseen(c.Consumer, c.Seen)
	for _, ref := range unseen {
		ref.record.LeaseEnd = driver.Never
	}
	crashed := m.endLeases(now, c.MaxCrashes)
	var claimed driver.Claimed
	if len(unseen) > 0 {
		claimed = m.claimAgain(c, unseen)
	} else {
		claimed = m.claimWith(c)
	}
	after := m.now()
	for _, ref := range crashed {
		if ref.record.State == driver.StateDead {
			ref.record.Died = m.get(ref.record.ID).Died
			assertDelay(m.t, before, after, 0, ref.record.Died, m.what)
		}
		if delay := contract.CrashDelay(ref.record.Crashes); delay > 0 && ref.record.Due != driver.Never {
			ref.record.Due = m.get(ref.record.ID).Due
			if planned := ref.record.Planned; ref.record.Due != planned {
				m.assertDue(before, after, 0, delay, ref.record.Due)
				require.Greater(m.t, ref.record.Due, planned, m.what)
			}
		}
	}
	if len(unseen) == 0 {
		m.checkNew(c, now, claimed)
	}
	require.Equal(m.t, m.paused, claimed.Paused, m.what)
	if c.Repeat || len(claimed.Records) > 0 {
		m.noted[c.Consumer] = c.Seq
	}
	for _, r := range claimed.Records {
		lease := c.Visibility
		if r.State == driver.StateLeased && c.Hold > 0 {
			lease = c.Hold
		}
		assertLease(m.t, before, after, r.Due, lease, r.LeaseEnd)
		ref := m.messages[r.ID]
		ref.record.LeaseEnd = r.LeaseEnd
		ref.assertSame(m.t, r, m.what)
	}
	require.Equal(m.t, m.counts(0).NextDue, claimed.Next, m.what)
	require.Equal(m.t, m.firstLease(), claimed.Lease, m.what)
	return claimed.Records
}

// hold claims all messages that are due soon.
func (m *model) hold(visibility time.Duration) []driver.Change {
	m.t.Helper()
	return changesOf(m.makeClaim(driver.Claim{Horizon: soon, Max: driver.MaxBatch, Visibility: visibility}, m.now()))
}

// begun claims and begins n messages, which must be those that are due soon.
func (m *model) begun(n int) []driver.Change {
	m.t.Helper()
	changes := m.hold(far)
	require.Len(m.t, changes, n)
	m.change(driver.OpBegin, changes...)
	return changes
}

// store stores messages and compares them.
func (m *model) store(replace bool, items ...driver.PutItem) {
	m.t.Helper()
	m.what = fmt.Sprintf("put %+v, replace %v", items, replace)
	m.makePut(driver.Put{Replace: replace, Items: items}, m.now())
	m.compare(itemIDs(items), m.what)
}

// change makes a transition and compares all messages. Leases end far in the future.
func (m *model) change(op driver.Op, changes ...driver.Change) {
	m.t.Helper()
	m.what = fmt.Sprintf("%s %+v", op, changes)
	m.makeChanges(driver.Batch{Op: op, Visibility: far, Changes: changes}, m.now())
	ids := mapped(changes, func(c driver.Change) string { return c.ID })
	m.compare(slices.AppendSeq(ids, maps.Keys(m.messages)), m.what)
}

// checkNew checks a claim of scheduled messages, whose order depends on the times of crashes.
func (m *model) checkNew(c driver.Claim, now driver.Instant, claimed driver.Claimed) {
	require.Equal(m.t, m.claimable(now.Add(c.Horizon), c.Max, c.MaxBytes), idsOf(claimed.Records), m.what)
	for _, r := range claimed.Records {
		require.Greater(m.t, r.Token, m.token, m.what)
		m.token = r.Token
		ref := m.messages[r.ID]
		ref.good, ref.last, ref.moved = true, 0, false
		ref.record.State, ref.record.Token = r.State, r.Token
		m.tokens[r.ID] = append(m.tokens[r.ID], r.Token)
	}
	if m.fixture.Remote && c.Consumer != "" && len(claimed.Records) > 0 {
		m.grants[c.Consumer] = changesOf(claimed.Records)
	}
}

// claimAgain receives the messages of a lost answer.
func (m *model) claimAgain(c driver.Claim, unseen []*refMessage) driver.Claimed {
	claimed, err := m.Claim(m.t.Context(), c)
	require.NoError(m.t, err)
	want := mapped(unseen, func(ref *refMessage) driver.Change { return driver.Change{ID: ref.record.ID, Token: ref.record.Token} })
	require.Equal(m.t, want, changesOf(claimed.Records), m.what)
	return claimed
}

func (m *model) stepApply() {
	b := driver.Batch{Op: driver.OpBegin + driver.Op(m.random.IntN(int(driver.OpRepeat))),
		Visibility: visibilityOf(m), Lead: horizonOf(m) * time.Duration(m.random.IntN(2))}
	if m.random.IntN(3) == 0 {
		b.Op = driver.OpBegin // many transitions need begun messages
	}
	if m.random.IntN(2) == 0 {
		b.Visibility = 0 // begin keeps leases
	}
	if slices.Contains(callOps, b.Op) {
		b.Call = m.nextCall("changes")
	}
	before := m.settle()
	for _, id := range m.pick(8) {
		c := driver.Change{ID: id, Token: m.someToken(id), Delay: m.delay(),
			Reason: []string{"", "one", "two"}[m.random.IntN(3)], Uncounted: m.random.IntN(3) == 0,
			Interrupt: m.random.IntN(2) == 0}
		c.Again = !c.Uncounted && m.random.IntN(3) == 0
		switch {
		case b.Op == driver.OpExtend:
			c.Delay = visibilityOf(m)
			if m.random.IntN(2) == 0 {
				c.Begun = visibilityOf(m)
			}
		case (b.Op == driver.OpReschedule || b.Op == driver.OpRepeat || b.Op == driver.OpRetry) && m.random.IntN(3) == 0:
			c.At, c.Delay = m.at(before), 0
		}
		if b.Op == driver.OpRepeat {
			c.Repeat = m.series()
		}
		if r := m.messages[id]; r != nil && m.random.IntN(3) == 0 {
			c.Incarnation = []driver.Instant{r.record.Enqueued, r.record.Died, r.record.Planned}[m.random.IntN(3)]
		}
		b.Changes = append(b.Changes, c)
	}
	m.what = fmt.Sprintf("%s %+v", b.Op.String(), b)
	m.makeChanges(b, before)
}

// makeChanges makes a transition, in the model too. The statuses must be those that the model
// expects. The result reports which messages have changed.
func (m *model) makeChanges(b driver.Batch, before time.Time) []bool {
	m.t.Helper()
	outcomes := m.batch(b)
	if b.Call.Caller != "" {
		m.last[b.Call.Caller] = repeatable{b.Call, func(c driver.Call) ([]driver.Status, error) {
			b.Call = c
			outcomes, err := m.Apply(m.t.Context(), b)
			return statusesOf(outcomes), err
		}, statusesOf(outcomes), m.what}
	}
	after, changed := m.now(), make([]bool, len(outcomes))
	for i, c := range b.Changes {
		want := m.verdict(b.Op, c, driver.Instant(before.UnixMilli()).Add(b.Lead))
		require.Contains(m.t, want, outcomes[i].Status, "%q: %s", c.ID, m.what)
		if s := outcomes[i].Status; s == driver.StatusDone || s == driver.StatusInterrupted || s == driver.StatusFiring && b.Op == driver.OpCancel {
			changed[i] = m.applyToModel(before, after, b, c, outcomes[i])
		}
	}
	return changed
}

// someToken returns a token of a message, usually the current one.
func (m *model) someToken(id string) uint64 {
	had := m.tokens[id]
	switch n := m.random.IntN(20); {
	case n == 0:
		return 0
	case n == 1:
		return m.token + 1 + m.random.Uint64N(5)
	case len(had) > 0 && n < 5:
		return had[m.random.IntN(len(had))]
	case len(had) > 0:
		return had[len(had)-1]
	default:
		return 1
	}
}

// applyToModel applies a transition to the model, with the times that the store has set. It reports
// whether the message has changed, as transition does.
func (m *model) applyToModel(before, after time.Time, b driver.Batch, c driver.Change, o driver.Outcome) bool {
	m.t.Helper()
	if !m.transition(b.Op, c) {
		return false
	}
	ref := m.messages[c.ID]
	if b.Op == driver.OpBegin || b.Op == driver.OpExtend {
		received(m, c) // otherwise its consumer could not have requested it
	}
	switch b.Op {
	case driver.OpBegin:
		require.Equal(m.t, ref.record.Due, o.Due, m.what)
		if b.Visibility == 0 {
			require.Zero(m.t, o.Lease, m.what)
			break
		}
		assertLease(m.t, before, after, 0, b.Visibility, o.Lease)
		ref.record.LeaseEnd = o.Lease
	case driver.OpExtend:
		delay := c.Delay
		if c.Begun > 0 && ref.record.State == driver.StateFiring {
			delay = c.Begun
		}
		if o.Lease != ref.record.LeaseEnd || o.Lease < max(driver.InstantOf(before), ref.record.Due).Add(delay) { // a store may keep a longer lease
			assertLease(m.t, before, after, ref.record.Due, delay, o.Lease)
		}
		ref.record.LeaseEnd = o.Lease
	case driver.OpRetry, driver.OpReplay, driver.OpReschedule, driver.OpRepeat:
		m.applyTimes(before, after, b.Op, c)
	case driver.OpBury:
		ref.record.Died = m.get(c.ID).Died
		assertDelay(m.t, before, after, 0, ref.record.Died, m.what)
	}
	return true
}

// applyTimes applies the due times and the series of a transition to the model.
func (m *model) applyTimes(before, after time.Time, op driver.Op, c driver.Change) {
	m.t.Helper()
	r, got := &m.messages[c.ID].record, m.get(c.ID)
	switch {
	case op == driver.OpRepeat && c.Repeat == "" && r.State == driver.StateFiring:
		r.Repeat = ""
		return
	case op == driver.OpRepeat && c.Repeat == "":
		r.Repeat, r.Planned = "", 0
		return
	case op == driver.OpRepeat && r.State == driver.StateFiring:
		r.Repeat, r.Planned = c.Repeat, got.Planned
		m.assertDue(before, after, c.At, c.Delay, got.Planned)
		return
	}
	endsRun := op == driver.OpRetry && c.Again && c.Incarnation != 0
	if endsRun && c.Incarnation != r.Planned {
		c.At, c.Delay = r.Planned, 0
	}
	r.Due = got.Due
	if op != driver.OpRetry || endsRun || r.Due != r.Planned {
		m.assertDue(before, after, c.At, c.Delay, r.Due)
		require.True(m.t, op != driver.OpRetry || endsRun || r.Due > r.Planned, m.what)
	}
	switch {
	case endsRun:
		r.Planned = r.Due
	case op == driver.OpRepeat:
		r.Repeat, r.Planned = c.Repeat, plannedOf(c.Repeat, r.Due)
	case op != driver.OpRetry:
		r.Planned = plannedOf(r.Repeat, r.Due)
	}
}

// received records that a consumer has received the answer to the claim that returned a message.
func received(m *model, c driver.Change) {
	for consumer, grant := range m.grants {
		if slices.ContainsFunc(grant, func(g driver.Change) bool { return g.ID == c.ID && g.Token == c.Token }) {
			m.seen[consumer] = grant[len(grant)-1].Token
		}
	}
}

// assertSame compares a record of the store with the reference's record.
func (m *refMessage) assertSame(t *testing.T, got driver.Record, what string) {
	t.Helper()
	want := m.record
	if !m.inFlight() {
		want.Token = got.Token
	}
	if m.reasonOpen {
		want.Reason = got.Reason
	}
	require.Equal(t, want, withBody(got, want), what)
}

// compare compares messages and the counts.
func (m *model) compare(ids []string, what string) {
	m.t.Helper()
	for _, id := range ids {
		ref := m.messages[id]
		if ref == nil {
			_, err := m.Get(m.t.Context(), 0, id)
			require.ErrorIs(m.t, err, driver.ErrNotFound, "%q: %s", id, what)
			continue
		}
		ref.assertSame(m.t, m.get(id), what)
	}
	c := m.count()
	require.Equal(m.t, m.counts(c.Now), c, what)
}

// compareLists compares all messages with the lists, whose pages have a size. It returns the
// messages by id.
func (m *model) compareLists(size int) map[string]driver.Record {
	m.t.Helper()
	byID := make(map[string]driver.Record)
	for state, at := range map[driver.State]func(driver.Record) driver.Instant{
		driver.StateScheduled: func(r driver.Record) driver.Instant { return r.Due },
		driver.StateLeased:    func(r driver.Record) driver.Instant { return r.LeaseEnd },
		driver.StateDead:      func(r driver.Record) driver.Instant { return r.Died },
	} {
		all := slices.Concat(readPages(m.queue, state, size, 20)...)
		for _, r := range all {
			ref := m.messages[r.ID]
			require.NotNil(m.t, ref, "%q in the list of state %d", r.ID, state)
			require.Equal(m.t, state == driver.StateLeased, ref.inFlight(), "state of %q", r.ID)
			require.Equal(m.t, state == driver.StateDead, r.State == driver.StateDead, "state of %q", r.ID)
			ref.assertSame(m.t, r, "listed")
			require.NotContains(m.t, byID, r.ID, "listed twice")
			byID[r.ID] = r
		}
		require.True(m.t, slices.IsSortedFunc(all, func(a, b driver.Record) int {
			return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(a.ID, b.ID))
		}), "list of state %d: %v", state, idsOf(all))
	}
	require.Len(m.t, byID, len(m.messages))
	return byID
}
