package durable_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"testing/synctest"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// The queue has one consumer, then five, and one again. Each message is delivered once, and all
// consumers deliver messages.
func TestConsumersShareTheQueue(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 64}, func(t *testing.T, q *durable.Queue) {
		const n = 2000
		messages := make([]durable.Message, n)
		for i := range messages {
			messages[i].Delay = time.Duration(i) * 20 * time.Millisecond // for 40 s
		}
		ids, err := q.EnqueueBatch(t.Context(), messages)
		require.NoError(t, err)
		start := time.Now()
		var got deliveries
		var by [5]atomic.Int64
		var stops []func()
		for k := range by {
			stops = append(stops, consume(t, q, func(_ context.Context, d *durable.Delivery) error {
				got.add(start, d)
				by[k].Add(1)
				return nil
			}, durable.ConsumerOptions{Membership: time.Second}))
			if k == 0 {
				time.Sleep(10 * time.Second)
			}
		}
		time.Sleep(15 * time.Second)
		for _, stop := range stops[1:] {
			stop()
		}
		time.Sleep(20 * time.Second)
		stops[0]()
		times := make(map[string]int)
		for _, d := range got.list() {
			times[d.id]++
			assert.GreaterOrEqual(t, d.at, d.due)
			assert.Less(t, d.at, d.due+3*time.Second, "each partition has an owner within two leases")
		}
		assert.Len(t, times, n)
		for _, id := range ids {
			assert.Equal(t, 1, times[id])
		}
		for k := range by {
			assert.Positive(t, by[k].Load(), "consumer %d", k)
		}
	})
}

// No more handlers run concurrently than Concurrency, and no more messages are prefetched than
// Prefetch.
func TestConcurrencyAndPrefetchAreBounded(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 2}, func(t *testing.T, q *durable.Queue) {
		messages := make([]durable.Message, 1000)
		for i := range messages {
			messages[i] = durable.Message{ID: fmt.Sprint(i), Body: make([]byte, 100)}
		}
		_, err := q.EnqueueBatch(t.Context(), messages)
		require.NoError(t, err)
		var running, most, ran atomic.Int64
		stop := consume(t, q, func(context.Context, *durable.Delivery) error {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(100 * time.Millisecond)
			running.Add(-1)
			ran.Add(1)
			return nil
		}, durable.ConsumerOptions{Concurrency: 10, Prefetch: 40})
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			stats, err := q.Stats(t.Context())
			require.NoError(t, err)
			assert.LessOrEqual(t, stats.Prefetched, 40)
			assert.LessOrEqual(t, stats.InFlight, int64(60))
		}
		time.Sleep(10 * time.Second)
		stop()
		assert.EqualValues(t, 10, most.Load())
		assert.EqualValues(t, 1000, ran.Load())
	})
}

// Messages that have waited for a long time are delivered in order of due time within a
// partition.
func TestBacklogIsDeliveredInOrder(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 1}, func(t *testing.T, q *durable.Queue) {
		messages := make([]durable.Message, 1000)
		for i := range messages {
			messages[i] = durable.Message{ID: fmt.Sprint(i), Delay: time.Duration((i*7919)%1000) * time.Second}
		}
		_, err := q.EnqueueBatch(t.Context(), messages)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		var got deliveries
		stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
			got.add(time.Now(), d)
			return nil
		}, durable.ConsumerOptions{Concurrency: 1})
		time.Sleep(time.Minute)
		stop()
		require.Len(t, got.list(), 1000)
		for i, d := range got.list() {
			var k int
			_, err := fmt.Sscan(d.id, &k)
			require.NoError(t, err)
			assert.Equal(t, i, k*7919%1000, "place %d", i)
		}
	})
}

// hangingBackend does not answer claims while hangs is true.
type hangingBackend struct {
	driver.Backend
	hangs *atomic.Bool
}

func (b hangingBackend) Claim(ctx context.Context, c driver.Claim) (driver.Claimed, error) {
	if b.hangs.Load() {
		<-ctx.Done()
		return driver.Claimed{}, ctx.Err()
	}
	return b.Backend.Claim(ctx, c)
}

// A consumer sends heartbeats while it hands over many partitions whose claims hang.
func TestHeartbeatsContinueWhilePartitionsAreHandedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(memstore.Options{})
		var hangs atomic.Bool
		q := open(t, wrapped{st, func(b driver.Backend) driver.Backend { return hangingBackend{b, &hangs} }}, durable.Options{Partitions: 64, OnError: func(error) {}})
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{})
		time.Sleep(3 * time.Second)
		hangs.Store(true)
		b, err := st.Open(t.Context(), driver.Config{Queue: "default"})
		require.NoError(t, err)
		for range 40 {
			members, err := b.Heartbeat(t.Context(), driver.Member{Name: "other"}, 5*time.Second)
			require.NoError(t, err)
			assert.Len(t, members, 2)
			time.Sleep(time.Second)
		}
		hangs.Store(false)
		stop()
		q.Close()
		_ = st.Close()
		synctest.Wait()
	})
}

// The numbers of partitions of the consumers differ by at most one, also after consumers have
// joined and left.
func TestConsumersHaveEvenSharesOfThePartitions(t *testing.T) {
	t.Parallel()
	bubble(t, durable.Options{Partitions: 32}, func(t *testing.T, q *durable.Queue) {
		var owners [32]atomic.Int64 // number of the last consumer of each partition
		var stops []func()
		shares := func(consumers int) {
			t.Helper()
			time.Sleep(5 * time.Second) // for the assignment
			var messages []durable.Message
			for i := range 2000 { // some for each partition
				messages = append(messages, durable.Message{ID: fmt.Sprint(len(stops), "-", i)})
			}
			_, err := q.EnqueueBatch(t.Context(), messages)
			require.NoError(t, err)
			time.Sleep(5 * time.Second)
			load := make(map[int64]int)
			for p := range owners {
				load[owners[p].Load()]++
			}
			least, most := 32, 0
			for _, n := range load {
				least, most = min(least, n), max(most, n)
			}
			assert.Len(t, load, consumers, "consumers with partitions")
			assert.LessOrEqual(t, most-least, 1, "%d consumers: %v", consumers, load)
		}
		for k := range 9 {
			stops = append(stops, consume(t, q, func(_ context.Context, d *durable.Delivery) error {
				owners[contract.PartitionOf(d.ID, 32)].Store(int64(k))
				return nil
			}, durable.ConsumerOptions{Membership: time.Second}))
			if k >= 7 {
				shares(k + 1)
			}
		}
		stops[4]()
		stops = append(stops[:4], stops[5:]...)
		shares(8)
		for _, stop := range stops {
			stop()
		}
	})
}

// Consumers lists all consumers with the partitions that they own, immediately after they have
// joined or left. It lists a consumer without heartbeats until it expires. Stats counts the
// partitions without an owner.
func TestConsumersAndUnownedPartitionsFollowHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(memstore.Options{})
		q := open(t, st, durable.Options{Partitions: 8})
		b, err := st.Open(t.Context(), driver.Config{Queue: "default"})
		require.NoError(t, err)
		list := func(consumers, unowned int) (all []durable.Consumer) {
			t.Helper()
			all, err := q.Consumers(t.Context())
			require.NoError(t, err)
			assert.Len(t, all, consumers)
			stats, err := q.Stats(t.Context())
			require.NoError(t, err)
			assert.Equal(t, consumers, stats.Consumers)
			assert.Equal(t, unowned, stats.Unowned)
			return all
		}
		list(0, 8)
		handler := func(context.Context, *durable.Delivery) error { return nil }
		options := durable.ConsumerOptions{Membership: 3 * time.Second}
		stop := consume(t, q, handler, options)
		time.Sleep(time.Millisecond) // less than the pause between two heartbeats
		first := list(1, 0)[0]
		host, err := os.Hostname()
		require.NoError(t, err)
		assert.Equal(t, host, first.Host)
		assert.Equal(t, os.Getpid(), first.PID)
		assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, first.Partitions)
		assert.WithinDuration(t, time.Now(), first.LastHeartbeat, 2*time.Millisecond)
		assert.Equal(t, options.Membership, first.Expires.Sub(first.LastHeartbeat))

		leave := consume(t, q, handler, options)
		time.Sleep(1100 * time.Millisecond) // the pause
		named := make(map[int]string)
		for _, c := range list(2, 0) {
			assert.Len(t, c.Partitions, 4)
			for _, p := range c.Partitions {
				assert.Empty(t, named[p], "partition %d has two owners", p)
				named[p] = c.ID
			}
		}
		assert.Len(t, named, 8)
		leave()
		list(1, 4) // the other consumer has not taken over yet
		time.Sleep(1100 * time.Millisecond)
		assert.Equal(t, first.ID, list(1, 0)[0].ID)

		// A member that takes part in the assignment and lists no partition of this queue.
		_, err = b.Heartbeat(t.Context(), driver.Member{Name: "hung", Capacity: 64, Partitions: []int{-1, 8, 1 << 30}}, time.Minute)
		require.NoError(t, err)
		time.Sleep(1100 * time.Millisecond)
		list(2, 4)
		time.Sleep(time.Minute)
		list(1, 0)
		stop()
		list(0, 8)
		q.Close()
		_, err = q.Consumers(t.Context())
		require.ErrorIs(t, err, durable.ErrClosed)
		require.NoError(t, st.Close())
		synctest.Wait()
	})
}

// lateHeartbeats delays heartbeats. A heartbeat takes effect at the end of the delay even if its
// context has ended, like a call that was sent over a network.
type lateHeartbeats struct{ driver.Backend }

func (b lateHeartbeats) Heartbeat(ctx context.Context, m driver.Member, ttl time.Duration) (members []driver.Member, err error) {
	if ttl == 0 {
		return b.Backend.Heartbeat(ctx, m, ttl)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(500 * time.Millisecond)
		members, err = b.Backend.Heartbeat(context.WithoutCancel(ctx), m, ttl)
	}()
	select {
	case <-done:
		return members, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// A consumer ends while a heartbeat is in progress. After its end it is not a member, so that its
// partitions have an owner immediately.
func TestEndedConsumerIsNotAMember(t *testing.T) {
	t.Parallel()
	late := func(b driver.Backend) driver.Backend { return lateHeartbeats{b} }
	bubbleOf(t, late, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		for begun := range 8 { // after the start, in steps of 300 ms: some during a heartbeat
			stop := consume(t, q, func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{})
			time.Sleep(100*time.Millisecond + time.Duration(begun)*300*time.Millisecond)
			stop()
			time.Sleep(time.Second)
			consumers, err := q.Consumers(t.Context())
			require.NoError(t, err)
			assert.Empty(t, consumers, "the consumer ended %d ms after its start", 100+begun*300)
		}
	})
}

// Heartbeats carry the number of handlers of a consumer, and how many of them were free at some
// time since the previous heartbeat. For a receiver they carry the number of calls that wait.
func TestHeartbeatsCarryCapacity(t *testing.T) {
	t.Parallel()
	var backend driver.Backend
	wrap := func(b driver.Backend) driver.Backend { backend = b; return b }
	bubbleOf(t, wrap, durable.Options{}, func(t *testing.T, q *durable.Queue) {
		member := func() [2]int {
			time.Sleep(4 * time.Second) // more than two heartbeats
			members, err := backend.Members(t.Context())
			require.NoError(t, err)
			require.Len(t, members, 1)
			return [2]int{members[0].Capacity, members[0].Free}
		}
		end := make(chan struct{})
		stop := consume(t, q, func(context.Context, *durable.Delivery) error { <-end; return nil }, durable.ConsumerOptions{Concurrency: 3})
		enqueue(t, q, "a", 0)
		assert.Equal(t, [2]int{3, 2}, member())
		close(end)
		assert.Equal(t, [2]int{3, 3}, member())
		stop()
		taken := make(chan error)
		go func() {
			_, err := q.Take(t.Context())
			taken <- err
		}()
		assert.Equal(t, [2]int{1, 1}, member())
		enqueue(t, q, "b", 0)
		require.NoError(t, <-taken)
		assert.Equal(t, [2]int{1, 0}, member())
	})
}
