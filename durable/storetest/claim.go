package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

var claimTests = []test{
	{"Claim/Order", claimOrder},
	{"Claim/Horizon", claimHorizon},
	{"Claim/MaxBytes", claimMaxBytes},
	{"Claim/Begin", claimBegins},
	{"Claim/LostAnswer", only(remote, claimLostAnswer)},
	{"Claim/LostAnswerWithExpiredLease", only(remote, claimLostAnswerLate)},
	{"Claim/LostAnswersOfManyConsumers", only(remote, claimLostAnswers)},
	{"Claim/Late", only(remote, claimLate)},
	{"Claim/LateEndsNoLease", only(remote, claimLateEndsNoLease)},
}

// claimOrder claims several times. Messages are ordered by due time and id.
func claimOrder(t *testing.T, q *queue) {
	base := driver.InstantOf(q.now().Add(far))
	var messages []driver.PutItem
	for i := range 200 {
		m := item(fmt.Sprintf("%c%d", "abcABC09~ é語"[i%11], i*7919%200), 0)
		m.At = base + driver.Instant(i*31%17)
		messages = append(messages, m)
	}
	q.put(messages[:100]...)
	q.put(messages[100:]...)
	slices.SortFunc(messages, func(a, b driver.PutItem) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.ID, b.ID))
	})
	var got []string
	for _, limit := range []int{1, 7, 0, 92, driver.MaxBatch, driver.MaxBatch} {
		records := q.claimWith(driver.Claim{Horizon: 2 * far, Max: limit, Visibility: far}).Records
		assert.Len(t, records, min(limit, len(messages)-len(got)))
		got = append(got, idsOf(records)...)
	}
	assert.Equal(t, itemIDs(messages), got)
}

// claimHorizon claims messages that are due or become due soon, and checks Next and Lease.
func claimHorizon(t *testing.T, q *queue) {
	claim := func(horizon, visibility time.Duration, next, lease string, want ...string) {
		t.Helper()
		c := q.claimWith(driver.Claim{Horizon: horizon, Max: 10, Visibility: visibility, MaxCrashes: 1})
		assert.ElementsMatch(t, want, idsOf(c.Records))
		var first driver.Record
		if next != "" {
			first.Due = q.get(next).Due
		}
		if lease != "" {
			first.LeaseEnd = q.get(lease).LeaseEnd
		}
		assert.Equal(t, [2]driver.Instant{first.Due, first.LeaseEnd}, [2]driver.Instant{c.Next, c.Lease})
	}
	claim(far, far, "", "")
	q.put(item("now", 0), item("waited", q.short()), item("1h", far), item("2h", 2*far), item("3h", 3*far))
	q.pass()
	claim(0, 3*far, "1h", "now", "now", "waited")
	claim(far/2, far, "1h", "now")
	claim(2*far+far/2, far, "3h", "1h", "1h", "2h") // a lease of this claim ends first
	claim(10*far, far, "", "1h", "3h")              // an older lease ends first
	assert.Equal(t, q.get("1h").LeaseEnd, q.expire(0).Lease)
}

// claimMaxBytes checks the limit on the size of bodies. One message is claimed regardless of its
// size.
func claimMaxBytes(t *testing.T, q *queue) {
	for i, size := range []int{100, 100, 100, 500, 0, 0, 50, 51} {
		m := itemWith(fmt.Sprint(i), make([]byte, size))
		m.Delay = far + time.Duration(i)*time.Second
		q.put(m)
	}
	claim := func(limit int) []string {
		return idsOf(q.claimWith(driver.Claim{Horizon: 2 * far, Max: 10, MaxBytes: limit, Visibility: far}).Records)
	}
	assert.Equal(t, []string{"0", "1"}, claim(299))
	assert.Equal(t, []string{"2"}, claim(100))
	assert.Equal(t, []string{"3", "4", "5"}, claim(500), "empty bodies fit")
	assert.Equal(t, []string{"6"}, claim(1), "one message regardless of its size")
	assert.Equal(t, []string{"7"}, claim(51))
}

// claimBegins checks that the first messages of a claim begin with it if they are due, and have a
// different lease than others.
func claimBegins(t *testing.T, q *queue) {
	q.put(item("a", 0), item("b", 0), item("c", 0), item("later", far))
	q.pass()
	const long, short = 24*365*far + 1, 3*far/2 + 1 // not whole milliseconds
	for _, c := range []struct {
		begin, most int
		want        []driver.State
	}{
		{-1, 1, []driver.State{driver.StateLeased}},
		{1, 2, []driver.State{driver.StateFiring, driver.StateLeased}},
		{9, 9, []driver.State{driver.StateLeased}},
	} {
		before := q.now()
		claimed := q.claimWith(driver.Claim{Horizon: 2 * far, Max: c.most, Visibility: long, Hold: short, Begin: c.begin})
		after := q.now()
		assert.False(t, claimed.Now.Before(before) || claimed.Now.After(after),
			"Claimed.Now %v is not between %v and %v", claimed.Now, before, after)
		states := []driver.State{}
		for _, r := range claimed.Records {
			assert.Equal(t, q.get(r.ID), r)
			states = append(states, r.State)
			lease := time.Duration(short)
			if r.State == driver.StateFiring {
				lease = long
			}
			assertLease(t, before, after, r.Due, lease, r.LeaseEnd)
		}
		assert.Equal(t, c.want, states, "Begin %d", c.begin)
	}
	assert.Equal(t, driver.StatusFiring, q.status(driver.OpCancel, driver.Change{ID: "b"}))
	assert.Equal(t, driver.StatusDone, q.status(driver.OpCancel, driver.Change{ID: "c"}))

	q.put(item("d", 0))
	d := q.claimWith(driver.Claim{Max: 1, Visibility: far, Begin: 1}).Records
	require.Len(t, d, 1)
	q.done(driver.OpAck, changesOf(d)...)
	assert.Equal(t, driver.StatusNotFound, q.status(driver.OpAck, changesOf(d)[0]))
}

// claimAs claims for a consumer that has received tokens up to seen.
func (q *queue) claimAs(consumer string, seen uint64, most, begin int, visibility time.Duration) []driver.Record {
	q.t.Helper()
	c, err := q.Claim(q.t.Context(), driver.Claim{Consumer: consumer, Seen: seen, Horizon: soon, Max: most,
		MaxBytes: manyBytes, Begin: begin, Visibility: visibility, MaxCrashes: 1})
	require.NoError(q.t, err)
	return c.Records
}

func lastToken(records []driver.Record) uint64 { return records[len(records)-1].Token }

// claimLostAnswer loses the answer to a claim. The consumer's next claim returns the same messages
// and no others. The claim of another consumer does not return them.
func claimLostAnswer(t *testing.T, q *queue) {
	q.put(items("m", 8)...)
	lost := q.claimAs("a", 0, 4, 2, far)
	require.Equal(t, []string{"m000", "m001", "m002", "m003"}, idsOf(lost))
	other := q.claimAs("b", 0, 2, 0, far)
	require.Equal(t, []string{"m004", "m005"}, idsOf(other))
	q.done(driver.OpCancel, driver.Change{ID: "m003"})

	before := q.now()
	again := q.claimAs("a", 0, 0, 0, 2*far)
	after := q.now()
	require.Equal(t, idsOf(lost[:3]), idsOf(again), "Max does not limit them")
	for i := range again {
		assertLease(t, before, after, 0, 2*far, again[i].LeaseEnd)
		assert.Equal(t, q.get(again[i].ID), again[i])
		lost[i].LeaseEnd = again[i].LeaseEnd
	}
	assert.Equal(t, lost[:3], again, "with the same tokens and states")
	assert.Empty(t, q.claimAs("a", lastToken(again), 0, 0, far), "messages that were seen are not returned again")

	next := q.claimAs("a", lastToken(again), 1, 0, far)
	require.Equal(t, []string{"m006"}, idsOf(next))
	late := q.claimAs("a", 0, 9, 9, far)
	assert.Equal(t, idsOf(next), idsOf(late), "a claim that a dead connection delivers late claims nothing")
	assert.Equal(t, next[0].Token, late[0].Token)
	assert.Equal(t, driver.StateLeased, late[0].State)

	q.done(driver.OpAck, changesOf(again[:2])...)
	q.begin(again[2], next[0])
	q.begin(other...)
	q.done(driver.OpAck, changesOf([]driver.Record{again[2], next[0], other[0], other[1]})...)
	assert.Equal(t, []string{"m007"}, idsOf(q.claimAs("b", lastToken(other), 9, 0, far)))
	assert.Zero(t, q.count().Crashed)
}

// claimLostAnswerLate repeats a claim after the leases of the first one have expired. MaxCrashes is
// 1.
func claimLostAnswerLate(t *testing.T, q *queue) {
	q.put(items("m", 3)...)
	lost := q.claimAs("a", 0, 3, 2, q.short())
	require.Len(t, lost, 3)
	q.pass()
	again := q.claimAs("a", 0, 3, 2, far)
	require.Equal(t, changesOf(lost), changesOf(again))
	q.done(driver.OpAck, changesOf(again[:2])...)
	assert.Zero(t, q.count().Crashed)

	q.put(items("n", 2)...)
	q.claimAs("a", lastToken(again), 2, 1, q.short())
	q.pass()
	assert.Equal(t, []string{"n001"}, idsOf(q.claimAs("b", 0, 2, 0, far)),
		"another consumer ends the leases: one crash, and MaxCrashes is 1")
	assert.Equal(t, uint64(1), q.count().Crashed)
	assert.Empty(t, q.claimAs("a", lastToken(again), 2, 0, far))
}

// claimLostAnswers loses the answers of more consumers than a store remembers.
func claimLostAnswers(t *testing.T, q *queue) {
	const n = contract.ClaimConsumers + 4
	q.put(items("m", n+1)...)
	var lost [][]driver.Record
	for i := range n {
		lost = append(lost, q.claimAs(fmt.Sprint("consumer", i), 0, 1, 1, far))
		require.Len(t, lost[i], 1)
	}
	for i := n - contract.ClaimConsumers; i < n; i++ {
		assert.Equal(t, changesOf(lost[i]),
			changesOf(q.claimAs(fmt.Sprint("consumer", i), 0, 1, 1, far)), "consumer %d", i)
	}
	require.Len(t, q.claimAs("", 0, 1, 0, far), 1)
	assert.Empty(t, q.claimAs("", 0, 1, 0, far), "a consumer without a name is not remembered")
}

// claimLate delivers claims after a later claim of the same consumer was answered. They change
// nothing, because the consumer would not know of their messages.
func claimLate(t *testing.T, q *queue) {
	var seen uint64
	claim := func(seq uint64, repeat bool) []string {
		c := driver.Claim{Consumer: "a", Seen: seen, Seq: seq, Repeat: repeat, Horizon: soon, Max: 1, Begin: 1, Visibility: far}
		return idsOf(q.claimWith(c).Records)
	}
	require.Empty(t, claim(2, true), "claim 1 was not answered")
	q.put(items("m", 5)...)
	assert.Empty(t, claim(1, false), "claim 2 returned nothing")
	assert.EqualValues(t, 5, q.count().Scheduled)

	require.Equal(t, []string{"m000"}, claim(3, false))
	require.Equal(t, []string{"m000"}, claim(4, true), "the answer to claim 3 was lost")
	first := q.get("m000")
	q.done(driver.OpAck, driver.Change{ID: "m000", Token: first.Token})
	assert.Empty(t, claim(3, false), "its message is gone")
	assert.Empty(t, claim(1, false))
	assert.EqualValues(t, 4, q.count().Scheduled)
	require.Equal(t, []string{"m001"}, claim(5, true), "the messages of claim 3 are gone")

	seen = q.get("m001").Token
	assert.Equal(t, []string{"m002"}, claim(6, true), "an answer without messages was lost")
	assert.Empty(t, claim(5, false), "its messages were seen")
	seen = q.get("m002").Token
	other := q.claimWith(driver.Claim{Consumer: "b", Seq: 1, Horizon: soon, Max: 1, Visibility: far})
	assert.Equal(t, []string{"m003"}, idsOf(other.Records), "another consumer has its own numbers")
	lease := q.get("m002").LeaseEnd
	assert.Empty(t, claim(5, true))
	assert.Equal(t, lease, q.get("m002").LeaseEnd)
	assert.Equal(t, []string{"m004"}, claim(7, false))
}

// claimLateEndsNoLease delivers a late claim after leases have expired. It ends none of them. The
// claims of other consumers do.
func claimLateEndsNoLease(t *testing.T, q *queue) {
	q.put(items("m", 1)...)
	late := driver.Claim{Consumer: "a", Seq: 1, MaxCrashes: 9}
	q.claimWith(driver.Claim{Consumer: "a", Seq: 2, Repeat: true})
	require.Len(t, q.claimWith(driver.Claim{Consumer: "b", Max: 1, Begin: 1, Visibility: q.short()}).Records, 1)
	q.pass()
	q.claimWith(late)
	assert.Zero(t, q.count().Crashed)
	late.Seq = 3
	q.claimWith(late)
	assert.EqualValues(t, 1, q.count().Crashed)
}
