package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

var sharingTests = []test{
	{"Sharing/TwoBackends", twoBackends},
	{"Sharing/Queues", separateQueues},
	{"Sharing/Partitions", separatePartitions},
	{"Concurrent/Claims", concurrentClaims},
	{"Concurrent/Lifecycle", concurrentLifecycle},
	{"Concurrent/CancelAgainstBegin", cancelAgainstBegin},
}

func twoBackends(t *testing.T, newStore Factory) {
	a := open(t, newStore)
	b := openAs(t, a.fixture, a.config)
	a.put(item("m", 0))
	assert.Equal(t, a.get("m"), b.get("m"))
	put := driver.Put{Call: a.newCall("p", 1), Items: items("x", 1)}
	first := a.statuses(put)
	if a.fixture.Remote {
		assert.Equal(t, first, b.statuses(put), "a repetition through another backend")
	}
	b.done(driver.OpCancel, driver.Change{ID: "x000"})
	records := b.take(1)
	assert.Empty(t, a.claim(1), "the other backend has claimed it")
	a.begin(records...)
	assert.Equal(t, driver.StatusFiring, b.status(driver.OpCancel, driver.Change{ID: "m"}))
	a.done(driver.OpRetry, changesOf(records)...)
	again := a.take(1)
	assert.Greater(t, again[0].Token, records[0].Token)
	assert.Equal(t, []string{"one"}, a.beat("one", far))
	assert.Equal(t, []string{"one", "two"}, b.beat("two", far))
	x, y := a.count(), b.count()
	x.Now, y.Now = 0, 0
	assert.Equal(t, x, y)
}

func separateQueues(t *testing.T, newStore Factory) {
	a := open(t, newStore)
	b := a.in("more") // its name starts with the name of a
	for _, q := range []*queue{a, b} {
		q.put(item("m", 0))
	}
	put := driver.Put{Call: a.newCall("p", 1), Items: items("x", 1)}
	assert.Equal(t, []driver.Status{driver.StatusDone}, a.statuses(put))
	assert.Equal(t, []driver.Status{driver.StatusDone}, b.statuses(put))
	assert.Equal(t, int64(2), b.count().Scheduled)
	a.done(driver.OpCancel, driver.Change{ID: "m"})
	b.get("m")
	assert.Len(t, b.claim(5), 2)
	assert.Len(t, a.claim(5), 1)
	b.audit(0, true, 2)
	assert.Equal(t, int64(1), a.count().InFlight)
	assert.Equal(t, uint64(1), a.count().Cancelled)
	assert.Zero(t, b.count().Cancelled)
}

func separatePartitions(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	ctx := t.Context()
	for p := range 2 {
		put := driver.Put{Partition: p, Items: []driver.PutItem{itemWith("m", []byte{byte(p)})}}
		assert.Equal(t, []driver.Status{driver.StatusDone}, q.statuses(put))
	}
	assert.Equal(t, []byte{0}, q.claim(5)[0].Body)
	claimed := q.claimWith(driver.Claim{Partition: 1, Horizon: soon, Max: 5, Visibility: far})
	require.Len(t, claimed.Records, 1)
	assert.Equal(t, []byte{1}, claimed.Records[0].Body)
	outcomes := q.batch(driver.Batch{Partition: 1, Op: driver.OpCancel,
		Changes: []driver.Change{{ID: "m"}}})
	assert.Equal(t, driver.StatusDone, outcomes[0].Status)
	_, err := q.Get(ctx, 1, "m")
	require.ErrorIs(t, err, driver.ErrNotFound)
	c, err := q.Count(ctx, 1)
	require.NoError(t, err)
	assert.Equal(t, driver.Counters{Enqueued: 1, Cancelled: 1}, c.Counters)
	assert.Zero(t, c.Scheduled+c.InFlight+c.Dead)
	q.get("m")
	records, _, err := q.List(ctx, 0, driver.StateLeased, "", 10)
	require.NoError(t, err)
	assert.Len(t, records, 1)
}

// parallel runs a function in n goroutines and waits for them. The function must not end the test,
// as require does.
func parallel(n int, f func(worker int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// concurrentClaims claims from several goroutines. Each message is claimed once.
func concurrentClaims(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	n := testscale.Size(1000)
	for i := 0; i < n; i += 100 {
		q.put(items(fmt.Sprintf("m%d-", i/100), 100)...)
	}
	var mu sync.Mutex
	tokens := make(map[string]uint64)
	parallel(8, func(int) {
		for {
			c, err := q.Claim(t.Context(),
				driver.Claim{Horizon: soon, Max: 7, MaxBytes: manyBytes, Visibility: far})
			if !assert.NoError(t, err) || len(c.Records) == 0 {
				return
			}
			mu.Lock()
			for _, r := range c.Records {
				assert.Zero(t, tokens[r.ID], "%q was claimed twice", r.ID)
				tokens[r.ID] = r.Token
			}
			mu.Unlock()
		}
	})
	assert.Len(t, tokens, n)
	assert.Equal(t, int64(n), q.count().InFlight)
}

// concurrentLifecycle runs producers and consumers concurrently. Every message is acknowledged
// once.
func concurrentLifecycle(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	const producers, batches, size = 4, 10, 20
	const total = producers * batches * size
	last := driver.InstantOf(q.now()).Add(driver.MaxAhead / 2)
	var mu sync.Mutex
	acked := make(map[string]int)
	parallel(2*producers, func(worker int) {
		if worker < producers {
			for i := range batches {
				put := driver.Put{Call: driver.Call{Caller: fmt.Sprint("p", worker),
					Seq: uint64(i + 1), NotAfter: last}, Items: items(fmt.Sprintf("%d-%d-", worker, i), size)}
				_, err := q.Put(t.Context(), put)
				assert.NoError(t, err)
			}
			return
		}
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			ids, err := q.consume(t, 16)
			if !assert.NoError(t, err) {
				return
			}
			mu.Lock()
			for _, id := range ids {
				acked[id]++
			}
			finished := len(acked) == total
			mu.Unlock()
			if finished {
				return
			}
			if len(ids) == 0 {
				time.Sleep(time.Millisecond) // a producer may be slower than the claims
			}
		}
	})
	assert.Len(t, acked, total)
	for id, n := range acked {
		assert.Equal(t, 1, n, id)
	}
	c := has(q, 0, 0, 0)
	assert.Equal(t, [2]uint64{total, total}, [2]uint64{c.Enqueued, c.Acked})
}

// consume claims, begins and acknowledges messages once, and returns the acknowledged ids.
func (q *queue) consume(t *testing.T, limit int) (ids []string, err error) {
	t.Helper()
	c, err := q.Claim(t.Context(),
		driver.Claim{Horizon: soon, Max: limit, MaxBytes: manyBytes, Visibility: far})
	if err != nil || len(c.Records) == 0 {
		return nil, err
	}
	b := driver.Batch{Op: driver.OpBegin, Visibility: far, Lead: soon,
		Changes: changesOf(c.Records)}
	if _, err = q.Apply(t.Context(), b); err != nil {
		return nil, err
	}
	b.Op = driver.OpAck
	outcomes, err := q.Apply(t.Context(), b)
	for i, o := range outcomes {
		if o.Status == driver.StatusDone {
			ids = append(ids, b.Changes[i].ID)
		}
	}
	return ids, err
}

// cancelAgainstBegin cancels messages while another goroutine begins them. Exactly one of the two
// succeeds for each message.
func cancelAgainstBegin(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	for range testscale.Size(5) {
		q.put(items("m", 40)...)
		changes := changesOf(q.claim(40))
		var begun, cancelled [40]driver.Status
		parallel(2, func(worker int) {
			for i := range changes {
				b := driver.Batch{Op: driver.OpBegin, Visibility: far, Changes: changes[i : i+1]}
				if worker == 1 {
					b.Op = driver.OpCancel
				}
				outcomes, err := q.Apply(t.Context(), b)
				if !assert.NoError(t, err) {
					return
				}
				if worker == 0 {
					begun[i] = outcomes[0].Status
				} else {
					cancelled[i] = outcomes[0].Status
				}
			}
		})
		for i := range changes {
			got := [2]driver.Status{begun[i], cancelled[i]}
			won, lost := [2]driver.Status{driver.StatusDone, driver.StatusFiring},
				[2]driver.Status{driver.StatusLeaseLost, driver.StatusDone}
			assert.True(t, got == won || got == lost, "begin and cancel: %v", got)
		}
		q.apply(driver.OpAck, changes...)
		c := q.count()
		require.Zero(t, c.Scheduled+c.InFlight)
	}
}
