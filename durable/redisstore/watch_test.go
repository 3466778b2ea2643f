package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
	hints, end := watchUntil(t, q)
	t.Cleanup(end)
	return hints
}

// watchUntil is watchInTime with a function that ends the watch.
func watchUntil(t *testing.T, q driver.Backend) (<-chan driver.Hint, context.CancelFunc) {
	t.Helper()
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		begun := time.Now()
		hints, err := q.Watch(ctx)
		require.NoError(t, err)
		if time.Since(begun) < redisstore.WatchStart {
			return hints, cancel
		}
		cancel()
	}
	require.Fail(t, "Watch is not subscribed")
	return nil, nil
}

// rejected waits until Watch returns that the server rejects hints.
func rejected(t *testing.T, q driver.Backend) (err error) {
	t.Helper()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err = q.Watch(ctx)
		return err != nil
	}, patience, time.Millisecond)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	return err
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

// eventually waits until a value that servers report is the expected one.
func eventually[V any](t *testing.T, want V, get func() V, what string) {
	t.Helper()
	var got V
	if !assert.Eventually(t, func() bool { got = get(); return assert.ObjectsAreEqual(want, got) }, patience, 5*time.Millisecond) {
		require.Equal(t, want, got, what)
	}
}

// subscribers returns the number of connections of each server that have been used for hints: they
// have subscribed last, or unsubscribed.
func subscribers(t *testing.T, servers []*redistest.Server) []int {
	t.Helper()
	found := make([]int, len(servers))
	for i, s := range servers {
		list, err := s.Client(t).ClientList(t.Context()).Result()
		require.NoError(t, err)
		found[i] = strings.Count(list, "subscribe ")
	}
	return found
}

// subscribed returns the number of channels whose names match a pattern that have subscribers.
func subscribed(t *testing.T, servers []*redistest.Server, pattern string) (n int) {
	t.Helper()
	for _, s := range servers {
		for _, command := range []string{"channels", "shardchannels"} {
			found, err := s.Client(t).Do(t.Context(), "pubsub", command, pattern).StringSlice()
			require.NoError(t, err)
			n += len(found)
		}
	}
	return n
}

// killSubscribers closes the connections that receive hints.
func killSubscribers(t *testing.T, servers []*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		require.NoError(t, s.Client(t).ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
	}
}

// noHint fails the test if a hint arrives within a short time.
func noHint(t *testing.T, hints <-chan driver.Hint) {
	t.Helper()
	select {
	case h, open := <-hints:
		require.Fail(t, "there is a hint", "%+v, %v", h, open)
	case <-time.After(200 * time.Millisecond):
	}
}

// closed waits until the channel of a watch is closed.
func closed(t *testing.T, hints <-chan driver.Hint) {
	t.Helper()
	for timeout := time.After(patience); ; {
		select {
		case _, open := <-hints:
			if !open {
				return
			}
		case <-timeout:
			require.Fail(t, "the channel is open")
		}
	}
}

// openAs opens a queue with partitions on all masters.
func openAs(t *testing.T, store *redisstore.Store, queue string) driver.Backend {
	t.Helper()
	c := clusterConfig()
	c.Queue = queue
	q, err := store.Open(t.Context(), c)
	require.NoError(t, err)
	return q
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
	closed(t, hints)
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
	closed(t, hints)
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
		watchFails := func() {
			t.Helper()
			err := rejected(t, q)
			require.ErrorContains(t, err, "NOPERM", name)
			require.NotContains(t, err.Error(), "late", "the consumer says so")
		}
		watchFails()
		permit(t, all, "&tw:*", "+subscribe", "+ssubscribe")
		hints, err := q.Watch(t.Context())
		require.NoError(t, err, name)
		permit(t, all)
		closed(t, hints)
		watchFails()
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

// Queues of a store are watched, and one of them twice. The watches begin and end one after
// another, and the servers close the connections meanwhile.
func TestWatchesOfAStoreShareAConnection(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"server", "older protocol", "cluster"} {
		t.Run(name, func(t *testing.T) {
			var client redis.UniversalClient
			var servers []*redistest.Server
			if name == "cluster" {
				cluster := redistest.StartCluster(t, redistest.ClusterOptions{})
				client = cluster.Client(t)
				servers = slices.DeleteFunc(cluster.Nodes(), func(n *redistest.Server) bool { return !isMaster(t, n) })
			} else {
				servers = append(servers, redistest.Start(t, redistest.Options{}))
				o := redistest.ClientOptions(servers[0].Addr())
				if name == "older protocol" {
					o.Protocol = 2
				}
				client = redis.NewClient(o)
			}
			t.Cleanup(func() { _ = client.Close() })
			none, one := make([]int, len(servers)), slices.Repeat([]int{1}, len(servers))
			store := newStore(t, client, redisstore.Options{})
			a, b, late := openAs(t, store, "a"), openAs(t, store, "b"), openAs(t, store, "late")
			assert.Equal(t, none, subscribers(t, servers))
			watches := map[driver.Backend]<-chan driver.Hint{a: watchInTime(t, a), b: watchInTime(t, b)}
			again, endAgain := watchUntil(t, openAs(t, store, "a"))
			other, endOther := watchUntil(t, openAs(t, store, "other"))
			watches[late] = watchInTime(t, late)
			assert.Equal(t, one, subscribers(t, servers))
			for q, hints := range watches {
				assert.Equal(t, nextHead(t, q, 0), hintsOf(t, hints, 12))
				noHint(t, hints)
			}
			hintsOf(t, again, 12)

			assert.Equal(t, 12, subscribed(t, servers, "tw:{other:*"))
			endAgain()
			endOther()
			closed(t, again)
			closed(t, other)
			eventually(t, 0, func() int { return subscribed(t, servers, "tw:{other:*") }, "channels of the ended watch")
			assert.Equal(t, 36, subscribed(t, servers, "*"))
			for q, hints := range watches {
				assert.Equal(t, nextHead(t, q, 1), hintsOf(t, hints, 12))
				noHint(t, hints)
			}
			assert.Equal(t, one, subscribers(t, servers))

			killSubscribers(t, servers)
			for q, hints := range watches {
				for p, due := range hintsOf(t, hints, 12) {
					require.Zero(t, due, "partition %d: the time is unknown", p)
				}
				eventuallyHinted(t, q, hints, 10)
			}
			eventually(t, one, func() []int { return subscribers(t, servers) }, "connections")
			require.NoError(t, store.Close())
			for _, hints := range watches {
				closed(t, hints)
			}
			eventually(t, none, func() []int { return subscribers(t, servers) }, "connections")
		})
	}
}

// All watches of a store end, and others begin.
func TestConnectionEndsWithTheLastWatch(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.Start(t, redistest.Options{})}
	store := newStore(t, newClient(t, servers[0].Addr()), redisstore.Options{})
	for round, q := range []driver.Backend{openAs(t, store, "a"), openAs(t, store, "b"), openAs(t, store, "a")} {
		ctx, end := context.WithCancel(t.Context())
		hints, err := q.Watch(ctx)
		require.NoError(t, err)
		eventuallyHinted(t, q, hints, 10*round)
		assert.Equal(t, []int{1}, subscribers(t, servers))
		end()
		closed(t, hints)
		eventually(t, []int{0}, func() []int { return subscribers(t, servers) }, "connections")
	}
}

// The client's user has permission for the channels of one queue, first without permission to
// unsubscribe. The other queue is watched, and loses its permission while both are watched.
func TestRejectedQueueDisturbsNoOther(t *testing.T) {
	t.Parallel()
	server, cluster := redistest.Start(t, redistest.Options{}), redistest.StartCluster(t, redistest.ClusterOptions{})
	all := append(cluster.Nodes(), server)
	permit(t, all)
	for name, client := range permittedClients(t, server, cluster) {
		commands := []any{"+publish", "+spublish", "+subscribe", "+ssubscribe"}
		for _, rules := range [][]any{commands, append(commands, "+unsubscribe", "+sunsubscribe")} {
			permit(t, all, append(rules, "&tw:{orders:*")...)
			store := newStore(t, client, redisstore.Options{})
			q, other := openAs(t, store, "orders"), openAs(t, store, "other")
			hints := watchInTime(t, q)
			for range 3 {
				require.ErrorContains(t, rejected(t, other), `queue "other"`, name)
			}
			noHint(t, hints)
			watchInTime(t, openAs(t, store, "orders"))

			permit(t, all, append(rules, "&tw:*")...)
			permitted := watchInTime(t, other)
			permit(t, all, append(rules, "&tw:{orders:*")...) // closes the connection
			closed(t, permitted)
			for p, due := range hintsOf(t, hints, 12) {
				require.Zero(t, due, "partition %d of %s: after the connection was closed", p, name)
			}
			eventuallyHinted(t, q, hints, 0)
			rejected(t, other)
			noHint(t, hints)
			require.NoError(t, store.Close())
		}
	}
}

// One queue gets more hints than any buffer holds, which are not received.
func TestUnreceivedHintsDelayNoOtherQueue(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	store := newStore(t, client, redisstore.Options{})
	slow, q := openAs(t, store, "slow"), openAs(t, store, "orders")
	unread, hints := watchInTime(t, slow), watchInTime(t, q)
	pipe := client.Pipeline()
	for i := range 20_000 {
		pipe.Publish(t.Context(), "tw:{slow:3}:h", 30_000-i)
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	assert.Equal(t, nextHead(t, q, 0), hintsOf(t, hints, 12))
	h := <-unread // the first one, or the earliest so far
	if h.Due != 10_001 {
		h = <-unread
	}
	assert.Equal(t, driver.Hint{Partition: 3, Due: 10_001}, h, "only the earliest waits")
	noHint(t, unread)
}

// A connection without hints stays open. If PING is not permitted, it is renewed.
func TestSilentConnectionIsKept(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.Start(t, redistest.Options{})}
	permit(t, servers, "&tw:*", "+publish", "+subscribe")
	o := redistest.ClientOptions(servers[0].Addr())
	o.Username, o.Password = "queue", "secret"
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	q := openQueue(t, client, redisstore.Options{})
	hints := watchInTime(t, q)
	select {
	case h := <-hints:
		require.Fail(t, "the connection was renewed", "%+v", h)
	case <-time.After(redisstore.WatchPing + time.Second):
	}
	assert.Equal(t, nextHead(t, q, 0), hintsOf(t, hints, 2))
	permit(t, servers, "&tw:*", "+publish", "+subscribe", "-ping")
	assert.Equal(t, map[int]driver.Instant{0: 0, 1: 0}, hintsOf(t, hints, 2), "renewed")
	eventuallyHinted(t, q, hints, 1)
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
