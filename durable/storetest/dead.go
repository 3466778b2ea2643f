package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

var deadTests = []test{
	{"Dead/Bury", bury},
	{"Dead/Replay", replay},
	{"Dead/Purge", purge},
	{"Dead/Limit", deadLimit},
	{"Dead/LimitsOfCrashes", deadLimitsOfCrashes},
	{"Dead/Age", deadAge},
	{"Dead/Bytes", deadBytes},
	{"Dead/BytesWhileAudited", deadBytesWhileAudited},
}

func bury(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	c := q.deliver("a")
	c.Reason = "hopeless"
	before := q.now()
	q.done(driver.OpBury, c)
	after := q.now()
	r := q.get("a")
	assert.Equal(t, []any{driver.StateDead, 1, 0, "hopeless"}, []any{r.State, r.Attempts, r.Crashes, r.Reason})
	assert.Zero(t, r.LeaseEnd)
	assertDelay(t, before, after, 0, r.Died)
	assert.Empty(t, q.claim(1))
	counts := has(q, 0, 0, 1)
	assert.Equal(t, uint64(1), counts.Buried)
}

func replay(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	m := item("a", 0)
	m.Body, m.MaxAttempts = []byte("body"), 3
	q.put(m)
	for range 2 {
		endClaimed(q, driver.OpRetry, 1)
	}
	records := endClaimed(q, driver.OpBury, 1)
	require.Equal(t, 3, q.get("a").Attempts)
	before := q.now()
	q.done(driver.OpReplay, driver.Change{ID: "a", Delay: far})
	r := q.get("a")
	assertDelay(t, before, q.now(), far, r.Due)
	assert.Equal(t, driver.Record{
		ID: "a", Body: m.Body, Enqueued: r.Enqueued, Due: r.Due, MaxAttempts: 3, State: driver.StateScheduled, Token: r.Token,
	}, r)
	has(q, 1, 0, 0)
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

// deadLimit buries more messages than DeadLimit. The oldest are dropped.
func deadLimit(t *testing.T, newStore Factory) {
	c := config()
	c.DeadLimit = 3
	q := openAs(t, newStore(t), c)
	for i := range 8 {
		q.done(driver.OpBury, q.deliver(fmt.Sprint("m", 9-i))) // ids in reverse order of the deaths
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
	assert.Equal(t, uint64(5), q.count().Trimmed)

	q.put(items("batch", driver.MaxBatch)...)
	endClaimed(q, driver.OpBury, driver.MaxBatch)
	assert.Equal(t, int64(3), q.count().Dead, "a batch that is larger than the limit")
	assert.Equal(t, uint64(5+driver.MaxBatch), q.count().Trimmed)
	q.gone("m2")
}

// deadLimitsOfCrashes applies DeadLimit or DeadBytes to messages that die in a claim.
func deadLimitsOfCrashes(t *testing.T, newStore Factory) {
	for kept, limit := range map[int64]func(*driver.Config){
		2: func(c *driver.Config) { c.DeadLimit = 2 },
		3: func(c *driver.Config) { c.DeadBytes = 1000 },
	} {
		c := config()
		limit(&c)
		q := openAs(t, newStore(t), c)
		batch := items("m", 10)
		for i := range batch {
			batch[i].Body = make([]byte, 300)
		}
		q.put(batch...)
		q.batch(driver.Batch{Op: driver.OpBegin, Visibility: q.short(), Changes: changesOf(q.claimShort(10))})
		q.pass()
		q.expire(1)
		counts := has(q, 0, 0, kept)
		assert.Equal(t, 300*kept, counts.DeadBytes)
		assert.Equal(t, [3]uint64{10, 10, uint64(10 - kept)}, [3]uint64{counts.Crashed, counts.Buried, counts.Trimmed})
	}
}

// deadAge lets dead letters exceed DeadAge. The next claim or the next death drops them.
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
		assert.Equal(t, uint64(2), q.count().Trimmed)
	}
}

// buried enqueues and buries a message with a body of the given size. The next message dies later.
func (q *queue) buried(id string, size int) {
	q.t.Helper()
	q.buriedNow(id, size)
	q.pass()
}

func (q *queue) buriedNow(id string, size int) {
	q.t.Helper()
	q.put(itemWith(id, make([]byte, size)))
	endClaimed(q, driver.OpBury, 1)
}

func (q *queue) assertDead(bytes int64, trimmed uint64, ids ...string) {
	q.t.Helper()
	counts := q.count()
	assert.Equal(q.t, [2]int64{int64(len(ids)), bytes}, [2]int64{counts.Dead, counts.DeadBytes})
	assert.Equal(q.t, trimmed, counts.Trimmed)
	records, _, err := q.List(q.t.Context(), 0, driver.StateDead, "", 10)
	require.NoError(q.t, err)
	assert.Equal(q.t, ids, idsOf(records))
}

// deadBytes buries, replays, purges and replaces dead letters within DeadBytes, and buries messages
// that exceed DeadBytes, of which the newest is kept. The sum is always exact.
func deadBytes(t *testing.T, newStore Factory) {
	c := config()
	c.DeadBytes = 1000
	q := openAs(t, newStore(t), c)
	for i := range 4 {
		q.buried(fmt.Sprint("m", 9-i), 250) // ids in reverse order of the deaths
	}
	q.assertDead(1000, 0, "m9", "m8", "m7", "m6")
	q.buried("n", 1)
	q.assertDead(751, 1, "m8", "m7", "m6", "n")
	q.done(driver.OpPurge, driver.Change{ID: "m8"})
	q.assertDead(501, 1, "m7", "m6", "n")
	q.done(driver.OpReplay, driver.Change{ID: "m7", Delay: far})
	q.assertDead(251, 1, "m6", "n")
	assert.Equal(t, driver.StatusNotFound,
		q.status(driver.OpReplay, driver.Change{ID: "m7", Delay: far}), "a repetition changes nothing")
	q.assertDead(251, 1, "m6", "n")
	again := item("m6", far)
	again.Body = make([]byte, 300)
	require.Equal(t, []driver.Status{driver.StatusDone},
		q.statuses(driver.Put{Replace: true, Items: []driver.PutItem{again}}))
	q.assertDead(1, 1, "n")
	q.buried("o", 999)
	q.assertDead(1000, 1, "n", "o")
	q.buried("p", 0)
	q.assertDead(1000, 1, "n", "o", "p")
	q.buried("q", 2)
	q.assertDead(2, 3, "p", "q") // with n the size would exceed the limit by one byte
	q.buried("r", 5000)
	q.assertDead(5000, 5, "r")
	q.buried("s", 0)
	q.assertDead(0, 6, "s")
	q.buried("t", 2000)
	q.assertDead(2000, 7, "t")
	q.audit(0, true, 3)
}

// deadBytesWhileAudited buries and purges dead letters while audits add up their sizes. There are
// more dead letters than one step of an audit reads. No audit reports a correct sum as wrong, or
// writes a wrong sum.
func deadBytesWhileAudited(t *testing.T, newStore Factory) {
	c := config()
	c.DeadLimit = 2000
	q := openAs(t, newStore(t), c)
	auditor, ok := q.Backend.(driver.Auditor)
	if !ok {
		t.Skip("the store has no audit")
	}
	for n := range 5 {
		batch := items(fmt.Sprint("old", n), driver.MaxBatch)
		for i := range batch {
			batch[i].Body = make([]byte, 10)
		}
		q.put(batch...)
		endClaimed(q, driver.OpBury, driver.MaxBatch)
	}
	stop, audited := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			report, err := auditor.Audit(t.Context(), 0, true)
			if err == nil && report.Wrong+report.Repaired > 0 {
				err = fmt.Errorf("an audit found %+v", report)
			}
			if err != nil {
				audited <- err
				return
			}
			select {
			case <-stop:
				audited <- nil
				return
			default:
			}
		}
	}()
	kept := 0
	for i := range testscale.Size(40) {
		q.buriedNow(fmt.Sprint("new", i), i)
		if i%2 == 0 {
			q.done(driver.OpPurge, driver.Change{ID: fmt.Sprint("new", i)})
		} else {
			kept += i
		}
	}
	close(stop)
	require.NoError(t, <-audited)
	assert.EqualValues(t, 5*driver.MaxBatch*10+kept, q.count().DeadBytes)
}
