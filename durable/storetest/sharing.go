package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

var sharingTests = []test{
	{"Sharing/TwoBackends", twoBackends},
	{"Sharing/Separate", separate},
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

// separate uses the same id and caller in two partitions of a queue, and in a queue whose name
// starts with that of the first. No call affects another partition.
func separate(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	other := q.in("more")
	call := q.newCall("p", 1)
	for i, p := range []struct {
		*queue
		partition int
	}{{q, 0}, {q, 1}, {other, 0}} {
		put := driver.Put{Partition: p.partition, Call: call, Items: []driver.PutItem{itemWith("m", []byte{byte(i)})}}
		assert.Equal(t, []driver.Status{driver.StatusDone}, p.statuses(put))
	}
	claimed := q.claimWith(driver.Claim{Partition: 1, Horizon: soon, Max: 5, Visibility: far}).Records
	require.Len(t, claimed, 1)
	assert.Equal(t, []byte{1}, claimed[0].Body)
	outcomes := q.batch(driver.Batch{Partition: 1, Op: driver.OpCancel, Changes: []driver.Change{{ID: "m"}}})
	assert.Equal(t, driver.StatusDone, outcomes[0].Status)
	_, err := q.Get(t.Context(), 1, "m")
	require.ErrorIs(t, err, driver.ErrNotFound)
	c, err := q.Count(t.Context(), 1)
	require.NoError(t, err)
	assert.Equal(t, driver.Counters{Enqueued: 1, Cancelled: 1}, c.Counters)
	assert.Zero(t, c.Scheduled+c.InFlight+c.Dead)
	for i, q := range []*queue{q, other} {
		assert.Equal(t, driver.Counters{Enqueued: 1}, has(q, 1, 0, 0).Counters)
		assert.Equal(t, []byte{byte(2 * i)}, q.take(1)[0].Body)
		has(q, 0, 1, 0)
		q.audit(0, true, 1)
	}
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

// concurrentLifecycle runs producers and consumers concurrently. Every message is acknowledged
// once.
func concurrentLifecycle(t *testing.T, newStore Factory) {
	q := open(t, newStore)
	const producers, batches, size = 4, 10, 20
	const total = producers * batches * size
	last := driver.InstantOf(q.now()).Add(contract.MaxAhead / 2)
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

// consume claims, begins and acknowledges messages, and returns their ids. Another claim has not
// returned them as well: all transitions succeed.
func (q *queue) consume(t *testing.T, limit int) (ids []string, err error) {
	t.Helper()
	c, err := q.Claim(t.Context(),
		driver.Claim{Horizon: soon, Max: limit, MaxBytes: manyBytes, Visibility: far})
	if err != nil || len(c.Records) == 0 {
		return nil, err
	}
	b := driver.Batch{Visibility: far, Lead: soon, Changes: changesOf(c.Records)}
	for _, b.Op = range []driver.Op{driver.OpBegin, driver.OpAck} {
		outcomes, err := q.Apply(t.Context(), b)
		if err != nil {
			return nil, err
		}
		for i, o := range outcomes {
			assert.Equal(t, driver.StatusDone, o.Status, "%s of %q", b.Op.String(), b.Changes[i].ID)
		}
	}
	return idsOf(c.Records), nil
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
