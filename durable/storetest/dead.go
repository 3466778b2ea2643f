package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

var deadTests = []test{
	{"Dead/Bury", bury},
	{"Dead/Replay", replay},
	{"Dead/Purge", purge},
	{"Dead/Limit", deadLimit},
	{"Dead/LimitOfCrashes", deadLimitOfCrashes},
	{"Dead/Age", deadAge},
}

func bury(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	c := q.deliver("a")
	c.Reason = "hopeless"
	before := q.now()
	q.done(driver.OpBury, c)
	after := q.now()
	r := q.get("a")
	assert.Equal(t, driver.StateDead, r.State)
	assert.Equal(t, 1, r.Attempts)
	assert.Zero(t, r.Crashes)
	assert.Equal(t, "hopeless", r.Reason)
	assert.Zero(t, r.LeaseEnd)
	assertDelay(t, before, after, 0, r.Died)
	assert.Empty(t, q.claim(1))
	counts := q.count()
	assert.Equal(t, [3]int64{0, 0, 1}, [3]int64{counts.Scheduled, counts.InFlight, counts.Dead})
	assert.Equal(t, uint64(1), counts.Buried)
}

func replay(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	m := item("a", 0)
	m.Body, m.MaxAttempts = []byte("body"), 3
	q.put(m)
	for range 2 {
		records := q.claim(1)
		q.begin(records...)
		q.done(driver.OpRetry, changesOf(records)...)
	}
	records := q.claim(1)
	q.begin(records...)
	q.done(driver.OpBury, changesOf(records)...)
	require.Equal(t, 3, q.get("a").Attempts)
	before := q.now()
	q.done(driver.OpReplay, driver.Change{ID: "a", Delay: far})
	r := q.get("a")
	assertDelay(t, before, q.now(), far, r.Due)
	assert.Equal(t, driver.StateScheduled, r.State)
	assert.Equal(t, "body", string(r.Body))
	assert.Equal(t, 3, r.MaxAttempts)
	assert.Zero(t, r.Attempts)
	assert.Zero(t, r.Crashes)
	assert.Zero(t, r.Died)
	c := q.count()
	assert.Equal(t, [3]int64{1, 0, 0}, [3]int64{c.Scheduled, c.InFlight, c.Dead})
	assert.Equal(t, driver.StatusNotFound, q.status(driver.OpPurge, driver.Change{ID: "a"}))
	again := q.claimWith(driver.Claim{Horizon: 2 * far, Max: 1, Visibility: far}).Records
	require.Len(t, again, 1)
	assert.Greater(t, again[0].Token, records[0].Token)
}

func purge(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	q.done(driver.OpBury, q.deliver("a"))
	q.done(driver.OpBury, q.deliver("b"))
	q.done(driver.OpPurge, driver.Change{ID: "a"})
	q.gone("a")
	assert.Equal(t, int64(1), q.count().Dead)
	q.put(item("a", 0))
	assert.Equal(t, driver.StateScheduled, q.get("a").State)
	assert.Equal(t, driver.StatusNotFound, q.status(driver.OpPurge, driver.Change{ID: "a"}))
}

// deadLimit buries more than the limit: the oldest go.
func deadLimit(t *testing.T, newStore Factory) {
	c := config()
	c.DeadLimit = 3
	q := openAs(t, newStore(t), c)
	for i := range 8 {
		q.done(driver.OpBury, q.deliver(fmt.Sprint("m", 9-i))) // ids against the order of the deaths
		q.pass()
	}
	assert.Equal(t, int64(3), q.count().Dead)
	records, cursor, err := q.List(t.Context(), 0, driver.StateDead, "", 10)
	require.NoError(t, err)
	assert.Empty(t, cursor)
	assert.Equal(t, []string{"m4", "m3", "m2"}, idsOf(records))
	q.gone("m9")
	q.gone("m5")
	assert.Equal(t, driver.StatusNotFound, q.status(driver.OpReplay, driver.Change{ID: "m9"}))
	assert.Equal(t, uint64(8), q.count().Buried)

	q.put(items("batch", driver.MaxBatch)...)
	claimed := q.claim(driver.MaxBatch)
	q.begin(claimed...)
	q.done(driver.OpBury, changesOf(claimed)...)
	assert.Equal(t, int64(3), q.count().Dead, "a batch that is larger than the limit")
	q.gone("m2")
}

// deadLimitOfCrashes has messages die in a claim.
func deadLimitOfCrashes(t *testing.T, newStore Factory) {
	c := config()
	c.DeadLimit = 2
	q := openAs(t, newStore(t), c)
	q.put(items("m", 10)...)
	q.batch(driver.Batch{Op: driver.OpBegin, Visibility: q.short(), Changes: changesOf(q.claimShort(10))})
	q.pass()
	q.expire(1)
	counts := q.count()
	assert.Equal(t, [3]int64{0, 0, 2}, [3]int64{counts.Scheduled, counts.InFlight, counts.Dead})
	assert.Equal(t, uint64(10), counts.Crashed)
}

// deadAge lets dead letters grow too old. They need not go before the next claim and the next death.
func deadAge(t *testing.T, newStore Factory) {
	f := newStore(t)
	c := config()
	c.DeadAge = time.Minute
	if f.Advance == nil {
		c.DeadAge = 250 * time.Millisecond
	}
	q := openAs(t, f, c)
	q.done(driver.OpBury, q.deliver("a"))
	q.done(driver.OpBury, q.deliver("b"))
	if f.Advance == nil {
		time.Sleep(c.DeadAge + 10*time.Millisecond)
	} else {
		f.Advance(c.DeadAge + time.Second)
	}
	q.done(driver.OpBury, q.deliver("c"))
	q.expire(0)
	q.gone("a")
	q.gone("b")
	assert.LessOrEqual(t, q.count().Dead, int64(1))
	if f.Advance != nil {
		assert.Equal(t, driver.StateDead, q.get("c").State)
	}
}
