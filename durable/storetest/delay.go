package storetest

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

var delayTests = []test{
	{"Delay/Rounded", delays},
	{"Delay/Saturated", delaySaturated},
	{"Delay/At", delayAt},
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
	assert.False(t, got.Time().Before(least), "%v is early: expected %v or later %v", got.Time(), least, args)
	assert.LessOrEqual(t, got, most, "%v is late: expected %v or earlier %v", got.Time(), most.Time(), args)
}

// delays stores messages and makes each transition that has a delay, with delays that are negative
// or not whole milliseconds. Messages are never early, and due immediately without a delay.
func delays(t *testing.T, q *queue) {
	for _, delay := range []time.Duration{
		0, -far, math.MinInt64, 1, 999, 1000, 299 * time.Microsecond, 300 * time.Microsecond, 999_999, time.Millisecond,
		time.Millisecond + 1, 1_500 * time.Microsecond, time.Second - 1, far, 24 * time.Hour, 30 * 365 * 24 * time.Hour,
		280 * 365 * 24 * time.Hour, math.MaxInt64,
	} {
		a := q.in(fmt.Sprint(int64(delay)))
		retried, replayed := a.deliver("retry"), a.deliver("replay")
		a.done(driver.OpBury, replayed)
		a.put(item("reschedule", 0))
		retried.Delay, replayed.Delay = delay, delay
		before := a.now()
		a.put(item("put", delay))
		a.done(driver.OpRetry, retried)
		a.done(driver.OpReplay, replayed)
		a.done(driver.OpReschedule, driver.Change{ID: "reschedule", Delay: delay})
		after := a.now()
		for _, id := range []string{"put", "retry", "replay", "reschedule"} {
			assertDelay(t, before, after, delay, a.get(id).Due, id, delay)
		}
		if delay <= 0 {
			assert.Equal(t, int64(4), a.count().Due)
			a.begin(a.take(4)...) // not early, even within the same millisecond
		}
	}
}

func delaySaturated(t *testing.T, q *queue) {
	before := q.now()
	q.put(item("longest", math.MaxInt64), itemAt("never", driver.Never), itemAt("later", driver.Never+1),
		itemAt("last", math.MaxInt64), itemAt("almost", driver.Never-1))
	assertDelay(t, before, q.now(), math.MaxInt64, q.get("longest").Due)
	for _, id := range []string{"never", "later", "last"} {
		assert.Equal(t, driver.Never, q.get(id).Due, id)
	}
	assert.Equal(t, driver.Never-1, q.get("almost").Due)
	assert.Empty(t, q.claim(10))
	c := q.claimWith(driver.Claim{Horizon: math.MaxInt64 - time.Hour, Max: 10, Visibility: math.MaxInt64})
	assert.Empty(t, c.Records)
	assert.Equal(t, q.get("longest").Due, c.Next)
	c = q.claimWith(driver.Claim{Horizon: math.MaxInt64, Max: 10, Visibility: math.MaxInt64})
	for _, r := range c.Records {
		assert.Equal(t, "longest", r.ID)
		assert.LessOrEqual(t, r.LeaseEnd, driver.Never)
		assert.Greater(t, r.LeaseEnd, r.Due)
	}
}

func delayAt(t *testing.T, q *queue) {
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
