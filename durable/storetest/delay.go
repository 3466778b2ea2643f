package storetest

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

var delayTests = []test{
	{"Delay/Rounded", delayRounded},
	{"Delay/AtOnce", delayAtOnce},
	{"Delay/Saturated", delaySaturated},
	{"Delay/At", delayAt},
	{"Delay/Transitions", delayTransitions},
}

// assertDelay asserts that an instant is a delay after a time from before to after, rounded up to
// milliseconds, or one millisecond later. A delay of 0 is rounded down to the instant that the
// clock shows.
func assertDelay(t *testing.T, before, after time.Time, delay time.Duration, got driver.Instant, args ...any) {
	t.Helper()
	least := before.Add(delay)
	if delay <= 0 {
		least, delay = before.Truncate(time.Millisecond), 0
	}
	most := driver.InstantOf(after.Add(delay)) + 1
	assert.False(t, got.Time().Before(least), "%v is early: expected %v or later %v",
		got.Time(), least, args)
	assert.LessOrEqual(t, got, most, "%v is late: expected %v or earlier %v", got.Time(),
		most.Time(), args)
}

// delayRounded stores messages with delays that are not whole milliseconds. They are never early.
func delayRounded(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	for i, delay := range []time.Duration{
		1, 999, 1000, 299 * time.Microsecond, 300 * time.Microsecond, 999_999, time.Millisecond,
		time.Millisecond + 1, 1_500 * time.Microsecond,
		time.Second - 1, time.Second, far, 24 * time.Hour, 365 * 24 * time.Hour,
		30 * 365 * 24 * time.Hour, 280 * 365 * 24 * time.Hour,
	} {
		id := fmt.Sprint(i)
		before := q.now()
		q.put(item(id, delay))
		assertDelay(t, before, q.now(), delay, q.get(id).Due, "delay", delay)
	}
}

func delayAtOnce(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	before := q.now()
	q.put(item("a", 0), item("b", -far), item("c", math.MinInt64))
	after := q.now()
	for _, id := range []string{"a", "b", "c"} {
		assertDelay(t, before, after, 0, q.get(id).Due, id)
	}
	assert.Equal(t, int64(3), q.count().Due)
	records := q.claim(3)
	assert.Equal(t, []string{"a", "b", "c"}, idsOf(records))
	q.begin(records...) // not early, even within the same millisecond
}

func delaySaturated(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	before := q.now()
	q.put(item("longest", math.MaxInt64), itemAt("never", driver.Never), itemAt("later", driver.Never+1),
		itemAt("last", math.MaxInt64), itemAt("almost", driver.Never-1))
	assertDelay(t, before, q.now(), math.MaxInt64, q.get("longest").Due)
	for _, id := range []string{"never", "later", "last"} {
		assert.Equal(t, driver.Never, q.get(id).Due, id)
	}
	assert.Equal(t, driver.Never-1, q.get("almost").Due)
	assert.Empty(t, q.claim(10))
	c := q.claimWith(driver.Claim{Horizon: math.MaxInt64 - time.Hour, Max: 10,
		Visibility: math.MaxInt64})
	assert.Empty(t, c.Records)
	assert.Equal(t, q.get("longest").Due, c.Next)
	c = q.claimWith(driver.Claim{Horizon: math.MaxInt64, Max: 10, Visibility: math.MaxInt64})
	for _, r := range c.Records {
		assert.Equal(t, "longest", r.ID)
		assert.LessOrEqual(t, r.LeaseEnd, driver.Never)
		assert.Greater(t, r.LeaseEnd, r.Due)
	}
}

func delayAt(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	before := q.now()
	soonest := driver.InstantOf(before.Add(far))
	q.put(itemAt("first", 1), itemAt("past", soonest-driver.Instant(2*far/time.Millisecond)),
		itemAt("exact", soonest), itemAt("next", soonest+1))
	after := q.now()
	assertDelay(t, before, after, 0, q.get("first").Due)
	assertDelay(t, before, after, 0, q.get("past").Due)
	assert.Equal(t, soonest, q.get("exact").Due)
	assert.Equal(t, soonest+1, q.get("next").Due)
	assert.Equal(t, []string{"first", "past"}, idsOf(q.claim(10)))

	q.done(driver.OpReschedule, driver.Change{ID: "exact", At: 1}, driver.Change{ID: "next", At: soonest + 7},
		driver.Change{ID: "first", At: driver.Never + 9})
	assertDelay(t, after, q.now(), 0, q.get("exact").Due)
	assert.Equal(t, soonest+7, q.get("next").Due)
	assert.Equal(t, driver.Never, q.get("first").Due)
}

// delayTransitions makes each transition that has a delay.
func delayTransitions(t *testing.T, newStore Factory) {
	for _, delay := range []time.Duration{0, -far, 1, 333 * time.Microsecond, time.Millisecond + 1, far, math.MaxInt64} {
		q := open(t, newStore)
		retried := q.deliver("retry")
		replayed := q.deliver("replay")
		q.done(driver.OpBury, replayed)
		q.put(item("reschedule", 0))
		retried.Delay, replayed.Delay = delay, delay
		before := q.now()
		q.done(driver.OpRetry, retried)
		q.done(driver.OpReplay, replayed)
		q.done(driver.OpReschedule, driver.Change{ID: "reschedule", Delay: delay})
		after := q.now()
		for _, id := range []string{"retry", "replay", "reschedule"} {
			r := q.get(id)
			require.Equal(t, driver.StateScheduled, r.State, id)
			assertDelay(t, before, after, delay, r.Due, id, delay)
		}
	}
}
