package durable_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// awayBackend is a Cluster in which the master of partition away is unreachable.
type awayBackend struct {
	driver.Backend
	away *atomic.Int64
}

func (b awayBackend) Claim(ctx context.Context, c driver.Claim) (driver.Claimed, error) {
	if int64(c.Partition) == b.away.Load() {
		return driver.Claimed{}, errDown
	}
	return b.Backend.Claim(ctx, c)
}

func (b awayBackend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	if int64(batch.Partition) == b.away.Load() {
		return nil, errDown
	}
	return b.Backend.Apply(ctx, batch)
}

// An unreachable partition does not delay the others, and continues when it is reachable again.
func TestUnreachablePartitionDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Int64
		away.Store(-1)
		st := memstore.New(memstore.Options{})
		q := open(t, wrapped{st, func(b driver.Backend) driver.Backend { return awayBackend{b, &away} }}, durable.Options{Partitions: 2, OnError: func(error) {}})
		var late atomic.Int64
		var n [2]atomic.Int64
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			p := contract.PartitionOf(d.ID, 2)
			n[p].Add(1)
			if p == 0 {
				late.Store(max(late.Load(), int64(time.Since(d.Due))))
			}
			return nil
		}, durable.ConsumerOptions{Concurrency: 4, Horizon: 2 * time.Second})
		for i := range 400 {
			enqueue(t, q, fmt.Sprint(i), 3*time.Second+time.Duration(i)*10*time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		away.Store(1)
		time.Sleep(10 * time.Second)
		whole := n[0].Load()
		away.Store(-1)
		time.Sleep(time.Minute)
		stop()
		assert.EqualValues(t, 400, n[0].Load()+n[1].Load(), "each message is delivered once")
		assert.Equal(t, n[0].Load(), whole, "the reachable partition was not delayed")
		assert.Less(t, time.Duration(late.Load()), time.Second)
		q.Close()
		_ = st.Close()
		synctest.Wait()
	})
}

// slowBackend delays every fifth begin call.
type slowBackend struct {
	driver.Backend
	calls *atomic.Int64
}

func (b slowBackend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	if batch.Op == driver.OpBegin && b.calls.Add(1)%5 == 0 {
		time.Sleep(300 * time.Millisecond)
	}
	return b.Backend.Apply(ctx, batch)
}

// Slow begin calls hold takers only briefly, and each message is delivered once.
func TestSlowBeginCallsDeliverEachMessageOnce(t *testing.T) {
	t.Parallel()
	for _, concurrency := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			st := memstore.New(memstore.Options{})
			q := open(t, wrapped{st, func(b driver.Backend) driver.Backend { return slowBackend{b, new(atomic.Int64)} }}, durable.Options{Partitions: 2})
			const messages = 500
			for i := range messages {
				enqueue(t, q, fmt.Sprint(i), time.Second+time.Duration(i)*4*time.Millisecond)
			}
			var n atomic.Int64
			stop := consume(t, q, sleeps(10*time.Millisecond, &n), durable.ConsumerOptions{Concurrency: concurrency})
			time.Sleep(time.Minute)
			stop()
			assert.EqualValues(t, messages, n.Load())
			q.Close()
			assert.NoError(t, st.Close())
			synctest.Wait()
		})
	}
}

// slowBeginBackend delays Begin for one partition.
type slowBeginBackend struct {
	driver.Backend
	partition int
	slow      time.Duration
}

func (b slowBeginBackend) Apply(ctx context.Context, batch driver.Batch) ([]driver.Outcome, error) {
	if batch.Partition == b.partition && batch.Op == driver.OpBegin {
		time.Sleep(b.slow)
	}
	return b.Backend.Apply(ctx, batch)
}

// idOf returns a message id in one of two partitions.
func idOf(part, i int) string {
	for n := 0; ; n++ {
		if id := fmt.Sprint(i, "-", n); contract.PartitionOf(id, 2) == part {
			return id
		}
	}
}

func TestUnreachablePartitionTakesNoGrantsFromOthers(t *testing.T) {
	t.Parallel()
	slow := func(b driver.Backend) driver.Backend { return slowBeginBackend{b, 1, 20 * time.Second} }
	bubbleOf(t, slow, durable.Options{Partitions: 2}, func(t *testing.T, q *durable.Queue) {
		messages := testscale.Size(20_000)
		got := make(chan string, messages+10)
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			time.Sleep(time.Millisecond)
			got <- d.ID
			return nil
		}, durable.ConsumerOptions{Fallback: 5 * time.Second})
		enqueue(t, q, idOf(1, 0), 2*time.Second) // prefetched
		var batch []durable.Message
		for i := range messages {
			batch = append(batch, durable.Message{ID: idOf(0, i)})
		}
		_, err := q.EnqueueBatch(t.Context(), batch) // makes the handlers count as fast
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		require.Len(t, got, messages)
		enqueue(t, q, idOf(1, 1), 0)
		time.Sleep(time.Second)
		enqueue(t, q, idOf(0, messages), 0)
		time.Sleep(100 * time.Millisecond)
		assert.Len(t, got, messages+1, "the message of the other partition was delivered")
		time.Sleep(time.Minute)
		stop()
		assert.Len(t, got, messages+3)
	})
}
