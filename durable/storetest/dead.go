package storetest

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

var deadTests = []test{
	{"Dead/Limit", deadLimit},
	{"Dead/LimitsOfCrashes", deadLimitsOfCrashes},
	{"Dead/Age", deadAge},
	{"Dead/Bytes", deadBytes},
	{"Dead/BytesWhileAudited", deadBytesWhileAudited},
}

// deadLimit buries more messages than DeadLimit. The oldest are dropped.
func deadLimit(t *testing.T, q *queue) {
	q = q.in("limited", func(c *driver.Config) { c.DeadLimit = 3 })
	for i := range 8 {
		q.buried(fmt.Sprint("m", 9-i), 0) // ids in reverse order of the deaths
	}
	q.assertDead(0, 5, "m4", "m3", "m2")
	q.gone("m9")
	assert.Equal(t, driver.StatusNotFound, q.status(driver.OpReplay, driver.Change{ID: "m9"}))
	assert.Equal(t, uint64(8), q.count().Buried)

	q.put(items("batch", driver.MaxBatch)...)
	endClaimed(q, driver.OpBury, driver.MaxBatch)
	assert.Equal(t, int64(3), q.count().Dead, "a batch that is larger than the limit")
	assert.Equal(t, uint64(5+driver.MaxBatch), q.count().Trimmed)
	q.gone("m2")
}

// deadLimitsOfCrashes applies DeadLimit or DeadBytes to messages that die in a claim.
func deadLimitsOfCrashes(t *testing.T, q *queue) {
	for kept, limit := range map[int64]func(*driver.Config){
		2: func(c *driver.Config) { c.DeadLimit = 2 },
		3: func(c *driver.Config) { c.DeadBytes = 3*int64(len("m000")) + 1 },
	} {
		q := q.in(fmt.Sprint(kept), limit)
		q.put(items("m", 10)...)
		claimed := q.claimWith(driver.Claim{Horizon: soon, Max: 10, Visibility: q.short()})
		q.batch(driver.Batch{Op: driver.OpBegin, Visibility: q.short(), Changes: changesOf(claimed.Records)})
		q.pass()
		q.expire(1)
		counts := has(q, 0, 0, kept)
		assert.Equal(t, kept*int64(len("m000")), counts.DeadBytes)
		assert.Equal(t, [3]uint64{10, 10, uint64(10 - kept)}, [3]uint64{counts.Crashed, counts.Buried, counts.Trimmed})
	}
}

// deadAge lets dead letters exceed DeadAge. The next claim or the next death drops them.
func deadAge(t *testing.T, q *queue) {
	q = q.in("limited", func(c *driver.Config) { c.DeadAge = q.short() })
	q.done(driver.OpBury, q.deliver("a"))
	q.done(driver.OpBury, q.deliver("b"))
	q.pass()
	q.done(driver.OpBury, q.deliver("c"))
	q.expire(0)
	q.gone("a")
	q.gone("b")
	assert.LessOrEqual(t, q.count().Dead, int64(1))
	if q.fixture.Advance != nil {
		assert.Equal(t, driver.StateDead, q.get("c").State)
		assert.Equal(t, uint64(2), q.count().Trimmed)
	}
}

// buried enqueues and buries a message with a body of the given size. The next message dies later.
func (q *queue) buried(id string, size int) {
	q.t.Helper()
	q.put(itemWith(id, make([]byte, size)))
	endClaimed(q, driver.OpBury, 1)
	q.pass()
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

// deadBytes buries messages that exceed DeadBytes together or alone. The newest is kept.
func deadBytes(t *testing.T, q *queue) {
	q = q.in("limited", func(c *driver.Config) { c.DeadBytes = 1000 })
	for i := range 4 {
		q.buried(fmt.Sprint("m", 9-i), 250) // ids in reverse order of the deaths
	}
	q.assertDead(1000, 0, "m9", "m8", "m7", "m6")
	q.buried("n", 1)
	q.assertDead(751, 1, "m8", "m7", "m6", "n")
	q.buried("o", 999)
	q.assertDead(1000, 4, "n", "o")
	q.buried("p", 0)
	q.assertDead(1000, 4, "n", "o", "p")
	q.buried("q", 2)
	q.assertDead(2, 6, "p", "q") // with n the size would exceed the limit by one byte
	q.buried("r", 5000)
	q.assertDead(5000, 8, "r")
	q.buried("s", 0)
	q.assertDead(0, 9, "s")
	q.buried("t", 2000)
	q.assertDead(2000, 10, "t")
	q.audit(0, true, 1)
}

// deadBytesWhileAudited buries and purges dead letters while audits add up their sizes. There are
// more dead letters than one step of an audit reads. No audit reports a correct sum as wrong, or
// writes a wrong sum.
func deadBytesWhileAudited(t *testing.T, q *queue) {
	q = q.in("limited", func(c *driver.Config) { c.DeadLimit = 2000 })
	auditor, ok := q.Backend.(driver.Auditor)
	if !ok {
		t.Skip("the store has no audit")
	}
	for n := range 5 {
		q.put(items(fmt.Sprint("old", n), driver.MaxBatch)...)
		endClaimed(q, driver.OpBury, driver.MaxBatch)
	}
	var buried atomic.Bool
	audited := make(chan struct{})
	go func() {
		defer close(audited)
		for more := true; more; more = !buried.Load() {
			report, err := auditor.Audit(t.Context(), 0, true)
			if !assert.NoError(t, err) || !assert.Zero(t, report.Wrong+report.Repaired, "%+v", report) {
				return
			}
		}
	}()
	kept := 0
	for i := range testscale.Size(40) {
		q.put(itemWith(fmt.Sprint("new", i), make([]byte, i)))
		endClaimed(q, driver.OpBury, 1)
		if i%2 == 0 {
			q.done(driver.OpPurge, driver.Change{ID: fmt.Sprint("new", i)})
		} else {
			kept += i
		}
	}
	buried.Store(true)
	<-audited
	assert.EqualValues(t, 5*driver.MaxBatch*len("old0000")+kept, q.count().DeadBytes)
}
