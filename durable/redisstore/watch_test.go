package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// patience is how long tests wait for events that take milliseconds.
const patience = 30 * time.Second

// hintsOf returns the hints of n partitions that come before patience ends.
func hintsOf(t *testing.T, hints <-chan driver.Hint, n int) map[int]driver.Instant {
	t.Helper()
	got := make(map[int]driver.Instant)
	timeout := time.After(patience)
	for len(got) < n {
		select {
		case h, ok := <-hints:
			require.True(t, ok, "the channel was closed")
			got[h.Partition] = h.Due
		case <-timeout:
			require.Fail(t, "hints are missing", "got %v of %d", got, n)
		}
	}
	return got
}

// nextHead puts a message into each partition that is earlier than all previous ones.
func nextHead(t *testing.T, q driver.Backend, round int) map[int]driver.Instant {
	t.Helper()
	at := driver.InstantOf(time.Now().Add(24 * time.Hour).Add(-time.Duration(round) * time.Minute))
	want := make(map[int]driver.Instant)
	for p := range q.Config().Partitions {
		m := driver.PutItem{ID: fmt.Sprint("head", round), At: at}
		_, err := q.Put(t.Context(), driver.Put{Partition: p, Items: []driver.PutItem{m}})
		require.NoError(t, err)
		want[p] = at
	}
	return want
}

// watchInTime returns a watch that has subscribed. On an overloaded machine Watch may return
// earlier and is called again.
func watchInTime(t *testing.T, q driver.Backend) <-chan driver.Hint {
	t.Helper()
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		begun := time.Now()
		hints, err := q.Watch(ctx)
		require.NoError(t, err)
		if time.Since(begun) < redisstore.WatchStart {
			t.Cleanup(cancel)
			return hints
		}
		cancel()
	}
	require.Fail(t, "Watch is not subscribed")
	return nil
}

// eventuallyHinted puts heads until each partition has sent a hint. Hints are lost while a
// subscription is renewed.
func eventuallyHinted(t *testing.T, q driver.Backend, hints <-chan driver.Hint, from int) {
	t.Helper()
	missing := make(map[int]bool)
	for p := range q.Config().Partitions {
		missing[p] = true
	}
	known := make(map[driver.Hint]bool)
	for round, end := from, time.Now().Add(patience); time.Now().Before(end) && len(missing) > 0; round++ {
		for p, due := range nextHead(t, q, round) {
			known[driver.Hint{Partition: p, Due: due}] = true
		}
		for quiet := time.After(500 * time.Millisecond); quiet != nil; {
			select {
			case h := <-hints:
				if known[h] {
					delete(missing, h.Partition)
				}
				if len(missing) == 0 {
					return
				}
			case <-quiet:
				quiet = nil
			}
		}
	}
	require.Empty(t, missing, "partitions without a hint")
}

func TestWatchSendsHintsAfterADisconnect(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	hints := watchInTime(t, q)
	assert.Equal(t, nextHead(t, q, 0), hintsOf(t, hints, q.Config().Partitions), "nothing is lost once Watch has returned")
	for range 3 {
		require.Positive(t, client.Do(t.Context(), "client", "kill", "type", "pubsub").Val())
		for p, due := range hintsOf(t, hints, q.Config().Partitions) {
			assert.Zero(t, due, "partition %d: the time is unknown", p)
		}
	}
	assert.Equal(t, nextHead(t, q, 1), hintsOf(t, hints, q.Config().Partitions))
}

// Watch is called before its server runs.
func TestWatchSubscribesOnceItsServerStarts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{AppendOnly: true})
	q := openQueue(t, newClient(t, server.Addr()), redisstore.Options{})
	server.Kill()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hints, err := q.Watch(ctx)
	require.NoError(t, err)
	server.Restart()
	for p, due := range hintsOf(t, hints, q.Config().Partitions) {
		assert.Zero(t, due, "partition %d", p)
	}
	cancel()
	require.Eventually(t, func() bool {
		select {
		case _, ok := <-hints:
			return !ok
		default:
			return false
		}
	}, patience, time.Millisecond, "the channel is closed")
}

func TestWatchEndsWithItsStore(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	store := newStore(t, client, redisstore.Options{})
	q, err := store.Open(t.Context(), config())
	require.NoError(t, err)
	hints, err := q.Watch(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.Close())
	select {
	case _, ok := <-hints:
		require.False(t, ok)
	case <-time.After(patience):
		require.Fail(t, "the channel is open")
	}
	require.Eventually(t, func() bool {
		return client.PubSubNumSub(t.Context(), "tw:{orders:0}:h").Val()["tw:{orders:0}:h"] == 0
	}, patience, 5*time.Millisecond, "the subscription is left")
}

// permittedClients returns a client of a server and one of a Cluster for the user of permit.
func permittedClients(t *testing.T, s *redistest.Server, c *redistest.Cluster) map[string]redis.UniversalClient {
	t.Helper()
	single, many := redistest.ClientOptions(s.Addr()), c.ClusterOptions()
	single.Username, single.Password, many.Username, many.Password = "queue", "secret", "queue", "secret"
	clients := map[string]redis.UniversalClient{"server": redis.NewClient(single), "cluster": redis.NewClusterClient(many)}
	for _, client := range clients {
		t.Cleanup(func() { _ = client.Close() })
	}
	return clients
}

// The client's user has no permission for the channels, then gets it, and loses it again while it
// is subscribed. Watch says so, and does not connect again by itself.
func TestWatchReturnsThatTheServerRejectsHints(t *testing.T) {
	t.Parallel()
	server, cluster := redistest.Start(t, redistest.Options{}), redistest.StartCluster(t, redistest.ClusterOptions{})
	all := append(cluster.Nodes(), server)
	permit(t, all)
	for name, client := range permittedClients(t, server, cluster) {
		permit(t, all)
		q := openQueue(t, client, redisstore.Options{})
		rejected := func() {
			t.Helper()
			_, err := q.Watch(t.Context())
			require.ErrorIs(t, err, errors.ErrUnsupported, name)
			require.ErrorContains(t, err, "NOPERM", name)
			require.NotContains(t, err.Error(), "late", "the consumer says so")
		}
		rejected()
		permit(t, all, "&tw:*", "+subscribe", "+ssubscribe")
		hints, err := q.Watch(t.Context())
		require.NoError(t, err, name)
		permit(t, all)
		for end, open := time.After(patience), true; open; {
			select {
			case _, open = <-hints:
			case <-end:
				require.Fail(t, "the channel is open", name)
			}
		}
		rejected()
	}
}

// A producer's user may not publish. Check says so, and that only hints are affected.
func TestCheckReturnsThatTheServerRejectsHints(t *testing.T) {
	t.Parallel()
	server, cluster := redistest.Start(t, redistest.Options{}), redistest.StartCluster(t, redistest.ClusterOptions{})
	all := append(cluster.Nodes(), server)
	permit(t, all)
	for name, client := range permittedClients(t, server, cluster) {
		q := openQueue(t, client, redisstore.Options{})
		put(t, q, items("a", 1, 10, 48*time.Hour))
		err := q.(driver.Checker).Check(t.Context())
		require.ErrorIs(t, err, errors.ErrUnsupported, name)
		require.NotErrorIs(t, err, driver.ErrUnsafe, name)
		require.ErrorContains(t, err, `queue "orders": unsupported operation: the server rejects hints`, name)
	}
	permit(t, all, "&tw:*", "+publish", "+spublish", "+subscribe", "+ssubscribe")
	for name, client := range permittedClients(t, server, cluster) {
		q := openQueue(t, client, redisstore.Options{})
		require.NoError(t, q.(driver.Checker).Check(t.Context()), name)
		hints := watchInTime(t, q)
		require.NoError(t, q.(driver.Checker).Check(t.Context()), "publishes something that is no hint")
		assert.Equal(t, nextHead(t, q, 0), hintsOf(t, hints, q.Config().Partitions), name)
	}
}

// A queue is opened and consumed without permission for hints: each reason is logged once, and the
// consumer does not connect again and again.
func TestConsumerWithoutHintsConnectsOnce(t *testing.T) {
	t.Parallel()
	server, cluster := redistest.Start(t, redistest.Options{}), redistest.StartCluster(t, redistest.ClusterOptions{})
	permit(t, []*redistest.Server{server})
	client := permittedClients(t, server, cluster)["server"]
	found := &logged{kind: errors.ErrUnsupported}
	q, err := durable.Open(t.Context(), newStore(t, client, redisstore.Options{}),
		durable.Options{OnError: found.report(t), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(q.Close)
	ctx, stop := context.WithCancel(t.Context())
	ended, got := make(chan error, 1), make(chan string, 1)
	go func() {
		ended <- q.Consume(ctx, func(_ context.Context, d *durable.Delivery) error { got <- d.ID; return nil }, durable.ConsumerOptions{})
	}()
	require.Eventually(t, func() bool { return len(found.texts()) == 2 }, patience, 10*time.Millisecond)
	connections := func() (n int) {
		for _, line := range strings.Split(server.Client(t).Info(t.Context(), "stats").Val(), "\r\n") {
			_, _ = fmt.Sscanf(line, "total_connections_received:%d", &n)
		}
		return n
	}
	before := connections()
	time.Sleep(8 * time.Second) // 1, 2 and 4 seconds after the first attempt, the consumer tries again
	assert.Less(t, connections()-before, 8)
	_, err = q.Enqueue(t.Context(), durable.Message{ID: "a"})
	require.NoError(t, err)
	assert.Equal(t, "a", <-got)
	require.NoError(t, q.Healthy(t.Context()))
	stop()
	require.NoError(t, <-ended)
	require.Len(t, found.texts(), 2, "one of Watch and one of Check: %q", found.texts())
	for _, text := range found.texts() {
		assert.Equal(t, 1, strings.Count(text, "late by"), text)
	}
}

// clusterConfig has partitions on all masters.
func clusterConfig() driver.Config {
	c := config()
	c.Partitions = 12
	return c
}

func TestHintsFollowSlotsOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{})
	client := cluster.Client(t)
	store := newStore(t, client, redisstore.Options{})
	q, err := store.Open(t.Context(), clusterConfig())
	require.NoError(t, err)
	hints := watchInTime(t, q)
	assert.Equal(t, nextHead(t, q, 0), hintsOf(t, hints, q.Config().Partitions))
	owner, err := client.MasterForKey(t.Context(), "tw:{orders:0}:h")
	require.NoError(t, err)
	assert.Eventually(t, func() bool {
		return owner.PubSubShardNumSub(t.Context(), "tw:{orders:0}:h").Val()["tw:{orders:0}:h"] == 1
	}, patience, 5*time.Millisecond, "hints use sharded channels")

	// The slot of partition 0 moves to another master.
	slot := int(client.ClusterKeySlot(t.Context(), "tw:{orders:0}:m").Val())
	from := cluster.Master(slot)
	for _, n := range cluster.Nodes() {
		if n != from && isMaster(t, n) {
			cluster.MigrateSlot(slot, n, redistest.MigrateOptions{})
			break
		}
	}
	require.NotEqual(t, from, cluster.Master(slot))
	eventuallyHinted(t, q, hints, 1)
	c, err := q.Claim(t.Context(), driver.Claim{Max: 10, MaxBytes: 1 << 20, Horizon: 48 * time.Hour, Visibility: time.Hour})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, len(c.Records), 2, "all messages have moved")

	waiting, err := newStore(t, client, redisstore.Options{Wait: 1, WaitTimeout: 20 * time.Second}).Open(t.Context(), clusterConfig())
	require.NoError(t, err)
	for p := range waiting.Config().Partitions {
		_, err = waiting.Put(t.Context(), driver.Put{Partition: p, Call: calling("w", 1), Items: items("w", 2, 10, 72*time.Hour)})
		require.NoError(t, err, "each master has a replica")
	}

	plain, err := redisstore.OpenUnsharded(t.Context(), store, clusterConfig())
	require.NoError(t, err)
	hints, err = plain.Watch(t.Context())
	require.NoError(t, err)
	eventuallyHinted(t, plain, hints, 500)
}

// isMaster asks a node of a cluster for its role.
func isMaster(t *testing.T, s *redistest.Server) bool {
	t.Helper()
	role, err := s.Client(t).Do(t.Context(), "role").Slice()
	require.NoError(t, err)
	return role[0] == "master"
}

func TestQueueIsUsableAfterSentinelFailover(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t, redistest.SentinelOptions{})
	client := sentinel.Client(t)
	q := openQueue(t, client, redisstore.Options{Wait: 1, WaitTimeout: 20 * time.Second})
	hints, err := q.Watch(t.Context())
	require.NoError(t, err)
	put(t, q, items("a", 100, 10, time.Hour)) // one replica has them
	_, err = openQueue(t, client, redisstore.Options{Wait: 9, WaitTimeout: 10 * time.Millisecond}).
		Put(t.Context(), driver.Put{Call: calling("p", 1), Items: items("b", 1, 1, time.Hour)})
	require.ErrorIs(t, err, driver.ErrUnavailable, "there are no nine replicas")
	assert.Contains(t, err.Error(), "9")

	old := sentinel.KillMaster()
	sentinel.WaitFailover(old)
	require.Eventually(t, func() bool {
		counts, err := q.Count(t.Context(), 0)
		require.True(t, err == nil || errors.Is(err, driver.ErrUnavailable), "%v", err)
		return err == nil && counts.Scheduled >= 100
	}, time.Minute, 20*time.Millisecond)
	for p, due := range hintsOf(t, hints, q.Config().Partitions) {
		if p == 1 {
			assert.Zero(t, due, "partition %d: after the failover", p)
		}
	}
}
