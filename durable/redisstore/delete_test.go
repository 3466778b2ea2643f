package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// breaker is a hook that calls stop, which may end a context, instead of the n-th command that
// names a key, or before it.
type breaker struct {
	key    string
	n      int
	stop   func()
	goesOn bool // the command follows
}

func (b *breaker) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *breaker) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b *breaker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.Contains(fmt.Sprint(cmd.Args()...), b.key) {
			if b.n--; b.n == 0 {
				if b.stop(); !b.goesOn {
					return context.Canceled
				}
			}
		}
		return next(ctx, cmd)
	}
}

// A deletion that was interrupted at any step leaves a queue that cannot be opened, that no
// consumer joins and that is still listed. Another deletion deletes the rest.
func TestInterruptedDeletionContinues(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := newClient(t, server.Addr())
	for step, key := range []string{"orders:0}", "orders:1}", "{orders}:meta"} {
		prefix := fmt.Sprint("p", step)
		store := newStore(t, client, redisstore.Options{Prefix: prefix})
		b, err := store.Open(t.Context(), config())
		require.NoError(t, err)
		put(t, b, items("a", 10, 10, time.Hour))
		_, err = b.Put(t.Context(), driver.Put{Partition: 1, Items: items("b", 10, 10, time.Hour)})
		require.NoError(t, err)

		ctx, cancel := context.WithCancel(t.Context())
		broken := newClient(t, server.Addr())
		n := 1 // the first command on the key
		if step == 2 {
			n = 3 // begin by its hash, begin by its text, end
			require.NoError(t, client.ScriptFlush(t.Context()).Err())
		}
		broken.AddHook(&breaker{key: prefix + ":{" + strings.TrimPrefix(key, "{"), n: n, stop: cancel})
		err = newStore(t, broken, redisstore.Options{Prefix: prefix}).DeleteQueue(ctx, "orders")
		require.ErrorIs(t, err, context.Canceled, key)

		for _, existing := range []bool{true, false} {
			c := config()
			c.Existing = existing
			_, err = store.Open(t.Context(), c)
			require.ErrorIs(t, err, driver.ErrNoQueue, key)
			require.ErrorContains(t, err, "delete it again", key)
		}
		_, err = b.Heartbeat(t.Context(), driver.Member{Name: "m"}, time.Hour)
		require.ErrorIs(t, err, driver.ErrNoQueue, key)
		names, err := store.Queues(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"orders"}, names, key)

		require.NoError(t, store.DeleteQueue(t.Context(), "orders"), key)
		names, err = store.Queues(t.Context())
		require.NoError(t, err)
		require.Empty(t, names)
		left, err := client.Keys(t.Context(), prefix+":*").Result()
		require.NoError(t, err)
		require.Len(t, left, 3, "a note of each partition and of the queue")
		for _, key := range left {
			ttl, err := client.TTL(t.Context(), key).Result()
			require.NoError(t, err)
			require.Greater(t, ttl, 29*24*time.Hour, key)
		}
		_, err = store.Open(t.Context(), config())
		require.NoError(t, err)
		put(t, b, items("a", 10, 10, time.Hour))
	}
}

// A deletion deletes the messages although the server is out of memory.
func TestQueueIsDeletedWithoutMemory(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	store := newStore(t, client, redisstore.Options{})
	b, err := store.Open(t.Context(), config())
	require.NoError(t, err)
	put(t, b, items("a", 200, 1000, time.Hour))
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err = b.Put(t.Context(), driver.Put{Items: items("b", 1, 1, 0)})
	require.ErrorIs(t, err, driver.ErrFull)
	require.NoError(t, store.DeleteQueue(t.Context(), "orders"))
	_, err = b.Count(t.Context(), 0)
	require.ErrorIs(t, err, driver.ErrNoQueue)
}

// The queues of a Cluster are on all of its masters. Consumers of a deleted one end.
func TestQueuesOfAClusterAreListedAndDeleted(t *testing.T) {
	t.Parallel()
	client := redistest.StartCluster(t, redistest.ClusterOptions{}).Client(t)
	store := newStore(t, client, redisstore.Options{})
	var want []string
	for i := range 20 {
		name := fmt.Sprintf("q%02d", i)
		want = append(want, name)
		c := config()
		c.Queue = name
		b, err := store.Open(t.Context(), c)
		require.NoError(t, err)
		put(t, b, items("a", 3, 1, time.Hour))
	}
	other := newStore(t, client, redisstore.Options{Prefix: "twx"})
	_, err := other.Open(t.Context(), config())
	require.NoError(t, err)
	names, err := durable.Queues(t.Context(), store)
	require.NoError(t, err)
	require.Equal(t, want, names)

	q, err := durable.Open(t.Context(), store, durable.Options{Queue: "q07", OnError: func(error) {}})
	require.NoError(t, err)
	t.Cleanup(q.Close)
	ended := make(chan error, 1)
	go func() {
		ended <- q.Consume(t.Context(), func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{})
	}()
	require.Eventually(t, func() bool {
		consumers, err := q.Consumers(t.Context())
		return err == nil && len(consumers) == 1
	}, time.Minute, time.Millisecond)
	require.ErrorIs(t, durable.DeleteQueue(t.Context(), store, "q07", false), durable.ErrInUse)
	require.NoError(t, durable.DeleteQueue(t.Context(), store, "q07", true))
	select {
	case err := <-ended:
		require.ErrorIs(t, err, durable.ErrNoQueue)
	case <-time.After(time.Minute):
		require.Fail(t, "the consumer of the deleted queue has not ended")
	}
	names, err = store.Queues(t.Context())
	require.NoError(t, err)
	require.Len(t, names, 19)
	require.NotContains(t, names, "q07")
}

// An Open that began before the deletion of a queue does not bring its partitions back.
func TestLateOpenDoesNotBringADeletedQueueBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := newClient(t, server.Addr())
	store := newStore(t, client, redisstore.Options{})
	_, err := store.Open(t.Context(), config())
	require.NoError(t, err)
	late := newClient(t, server.Addr())
	late.AddHook(beforePipeline(func() { require.NoError(t, store.DeleteQueue(t.Context(), "orders")) }))
	_, err = newStore(t, late, redisstore.Options{}).Open(t.Context(), config())
	require.ErrorIs(t, err, driver.ErrNoQueue)
	n, err := client.Exists(t.Context(), "tw:{orders:0}:m").Result()
	require.NoError(t, err)
	require.Zero(t, n)
}

// beforePipeline is called before each pipeline.
type beforePipeline func()

func (beforePipeline) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (beforePipeline) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h beforePipeline) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) > 1 && cmds[0].Name() == "eval" {
			h()
		}
		return next(ctx, cmds)
	}
}

// A deletion stalls at its second partition, or at its end, while the queue is deleted and created
// again. It does not delete the new queue.
func TestLateDeletionDoesNotDeleteANewQueue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := newClient(t, server.Addr())
	for step, n := range []int{1, 2} { // the first script on partition 1; the end, after the beginning
		options := redisstore.Options{Prefix: fmt.Sprint("late", step)}
		store := newStore(t, client, options)
		_, err := store.Open(t.Context(), config())
		require.NoError(t, err)
		var fresh driver.Backend
		late := newClient(t, server.Addr())
		late.AddHook(&breaker{key: options.Prefix + []string{":{orders:1}:m", ":{orders}:meta"}[step], n: n, goesOn: true, stop: func() {
			require.NoError(t, store.DeleteQueue(t.Context(), "orders"))
			fresh, err = store.Open(t.Context(), config())
			require.NoError(t, err)
			put(t, fresh, items("a", 10, 10, time.Hour))
			_, err = fresh.Put(t.Context(), driver.Put{Partition: 1, Items: items("b", 10, 10, time.Hour)})
			require.NoError(t, err)
		}})
		err = newStore(t, late, options).DeleteQueue(t.Context(), "orders")
		require.ErrorIs(t, err, driver.ErrNoQueue)
		require.NotNil(t, fresh)
		for part := range 2 {
			c, err := fresh.Count(t.Context(), part)
			require.NoError(t, err)
			require.EqualValues(t, 10, c.Scheduled, part)
		}
	}
}

// A process that had a queue open before it was deleted and created again with more partitions
// changes nothing in the new one, by an audit or by the mend of a claim, and its consumers end.
func TestOldOpenerLeavesANewQueueAlone(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	store := newStore(t, client, redisstore.Options{})
	old := openQueue(t, client, redisstore.Options{})
	for range 2 { // the second time the queue exists twice
		require.NoError(t, store.DeleteQueue(t.Context(), "orders"))
		_, err := old.(driver.Auditor).Audit(t.Context(), 0, true)
		require.ErrorIs(t, err, driver.ErrNoQueue)
		c := config()
		c.Partitions = 4
		fresh, err := store.Open(t.Context(), c)
		require.NoError(t, err)
		_, err = old.(driver.Auditor).Audit(t.Context(), 0, true)
		require.ErrorIs(t, err, driver.ErrNoQueue)
		require.NoError(t, client.Del(t.Context(), "tw:{orders:0}:d").Err())
		_, err = old.Claim(t.Context(), driver.Claim{Max: 1, MaxBytes: 1, Visibility: time.Minute})
		require.ErrorIs(t, err, driver.ErrNoQueue)
		_, err = old.Heartbeat(t.Context(), driver.Member{Name: "m"}, time.Minute)
		require.ErrorIs(t, err, driver.ErrPartitions)
		_, err = old.Put(t.Context(), driver.Put{Items: items("a", 1, 1, 0)})
		require.ErrorIs(t, err, driver.ErrPartitions)
		_, err = fresh.Claim(t.Context(), driver.Claim{Max: 1, MaxBytes: 1, Visibility: time.Minute})
		require.NoError(t, err, "it mends the partition")
		put(t, fresh, items("a", 10, 10, time.Hour))
	}
}
