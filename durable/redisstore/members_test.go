package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
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

// The master that has the members and no partition of the queue is killed, so that no other call to
// the queue makes the client reload the slot map.
func TestHeartbeatFindsNewMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{})
	client := cluster.Client(t)
	c := config()
	c.Partitions = 1
	slotOf := func(key string) int { return int(client.ClusterKeySlot(t.Context(), key).Val()) }
	var slot int
	for i := range 1000 {
		c.Queue = fmt.Sprint("queue", i)
		slot = slotOf("{" + c.Queue + "}")
		if cluster.Master(slot) != cluster.Master(slotOf("{"+c.Queue+":0}")) {
			break
		}
	}
	q, err := newStore(t, client, redisstore.Options{}).Open(t.Context(), c)
	require.NoError(t, err)
	_, err = q.Heartbeat(t.Context(), driver.Member{Name: "m"}, time.Hour)
	require.NoError(t, err)

	cluster.WaitMaster(slot, cluster.KillMaster(slot))
	begun := time.Now()
	require.Eventually(t, func() bool {
		members, err := q.Heartbeat(t.Context(), driver.Member{Name: "m"}, time.Hour)
		require.True(t, err == nil || errors.Is(err, driver.ErrUnavailable), "%v", err)
		return err == nil && len(members) == 1
	}, 30*time.Second, 20*time.Millisecond, "the client reloads the slot map by itself only once a minute")
	t.Log("found after", time.Since(begun))
}

func names(members []driver.Member) (all []string) {
	for _, m := range members {
		all = append(all, m.Name)
	}
	return all
}

// The clock of the server is set between the heartbeats of a live member. A member whose process
// has ended stays for its TTL, plus one interval between heartbeats, plus one more interval for
// each step back. A live member stays.
func TestLiveMembersStayIfTheClockIsSet(t *testing.T) {
	t.Parallel()
	const ttl, interval = 5 * time.Second, 1500 * time.Millisecond
	clock := redistest.NewClock(t)
	client := newClient(t, redistest.Start(t, redistest.Options{Clock: clock}).Addr())
	for n, steps := range [][]time.Duration{
		{0}, {-time.Second}, {-time.Minute}, {-24 * time.Hour}, {time.Second}, {time.Minute}, {24 * time.Hour},
		{time.Minute, -time.Minute, time.Minute}, {-time.Minute, time.Minute, -time.Minute}, {-time.Minute, -time.Second, -time.Hour},
		{200 * time.Millisecond, -time.Minute, 400 * time.Millisecond}, {time.Second, -time.Hour, -100 * time.Millisecond},
	} {
		q := openQueue(t, client, redisstore.Options{Prefix: fmt.Sprint("steps", n)})
		beat := func(name string) []string {
			t.Helper()
			all, err := q.Heartbeat(t.Context(), driver.Member{Name: name}, ttl)
			require.NoError(t, err)
			return names(all)
		}
		offset, bound := time.Duration(0), ttl+interval
		pass := func(d time.Duration) {
			offset += d
			clock.Set(offset)
		}
		clock.Set(0)
		beat("gone")
		require.Equal(t, []string{"alive", "gone"}, beat("alive"))
		stays := true
		for passed := time.Duration(0); passed < bound; passed += interval {
			pass(interval)
			if len(steps) > 0 {
				if pass(steps[0]); steps[0] < 0 {
					bound += interval
				}
				steps = steps[1:]
			}
			members := beat("alive")
			require.Contains(t, members, "alive")
			if !stays {
				require.NotContains(t, members, "gone", "a removed member is back")
			}
			stays = len(members) == 2
		}
		require.False(t, stays, "steps %d: the member is still there after %v", n, bound)
	}
}

// The clock of the server is set several times while a message is leased to a consumer whose
// process has ended. The message is delivered again after its lease, later by the sum of the steps
// back and earlier by the sum of the steps ahead.
func TestLeaseMovesWithStepsOfTheClock(t *testing.T) {
	t.Parallel()
	const visibility, interval = 90 * time.Second, 10 * time.Second
	clock := redistest.NewClock(t)
	client := newClient(t, redistest.Start(t, redistest.Options{Clock: clock}).Addr())
	for n, steps := range [][]time.Duration{
		{}, {time.Minute, -time.Minute, time.Minute}, {-time.Minute, time.Minute, -time.Minute}, {-time.Minute, -time.Minute, -time.Hour},
	} {
		q := openQueue(t, client, redisstore.Options{Prefix: fmt.Sprint("leases", n)})
		clock.Set(0)
		put(t, q, items("a", 1, 10, 0))
		claimed, err := q.Claim(t.Context(), driver.Claim{Max: 1, MaxBytes: 1, Begin: 1, Visibility: visibility})
		require.NoError(t, err)
		require.Len(t, claimed.Records, 1)
		offset, passed, want := time.Duration(0), time.Duration(0), visibility
		for {
			offset, passed = offset+interval, passed+interval
			if len(steps) > 0 {
				offset, want, steps = offset+steps[0], want-steps[0], steps[1:]
			}
			clock.Set(offset)
			if len(claim(t, q, 1)) > 0 {
				break
			}
			require.Less(t, passed, 2*time.Hour)
		}
		assert.InDelta(t, want.Seconds(), passed.Seconds(), interval.Seconds()+1, "steps %d", n)
	}
}

// The server's clock is set back by an hour just after a consumer was killed. The other consumer
// gets the partitions.
func TestDeadMembersPartitionsMoveIfTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	clock := redistest.NewClock(t)
	store := newStore(t, newClient(t, redistest.Start(t, redistest.Options{Clock: clock}).Addr()), redisstore.Options{})
	q, err := durable.Open(t.Context(), store, durable.Options{Partitions: 16})
	require.NoError(t, err)
	t.Cleanup(q.Close)
	other, err := store.Open(t.Context(), driver.Config{Queue: "default", Partitions: 16})
	require.NoError(t, err)
	_, err = other.Heartbeat(t.Context(), driver.Member{Name: "killed"}, time.Second)
	require.NoError(t, err)
	clock.Set(-time.Hour)
	for i := range 100 {
		_, err := q.Enqueue(t.Context(), durable.Message{ID: fmt.Sprint(i)})
		require.NoError(t, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var handled atomic.Int64
	consumed := make(chan error, 1)
	go func() {
		consumed <- q.Consume(ctx, func(context.Context, *durable.Delivery) error { handled.Add(1); return nil },
			durable.ConsumerOptions{Membership: 500 * time.Millisecond})
	}()
	assert.Eventually(t, func() bool { return handled.Load() == 100 }, 30*time.Second, 10*time.Millisecond)
	t.Logf("%d of 100 messages were handled", handled.Load())
	stop()
	require.NoError(t, <-consumed)
}

// The server's clock is set ahead while a handler runs. The lease has expired on that clock, so the
// message is delivered again and counts a crash. The context of the first handler ends within half
// of its visibility, and its acknowledgement is refused.
func TestHandlerLosesItsLeaseIfTheClockIsSetAhead(t *testing.T) {
	t.Parallel()
	const visibility = 4 * time.Second
	clock := redistest.NewClock(t)
	store := newStore(t, newClient(t, redistest.Start(t, redistest.Options{Clock: clock}).Addr()), redisstore.Options{})
	q, err := durable.Open(t.Context(), store, durable.Options{Partitions: 1})
	require.NoError(t, err)
	t.Cleanup(q.Close)
	_, err = q.Enqueue(t.Context(), durable.Message{ID: "m"})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var deliveries atomic.Int64
	refused, crashes := make(chan error, 1), make(chan int, 1)
	consumed := make(chan error, 1)
	go func() {
		consumed <- q.Consume(ctx, func(ctx context.Context, d *durable.Delivery) error {
			if deliveries.Add(1) > 1 {
				crashes <- d.Crashes
				assert.ErrorIs(t, <-refused, durable.ErrLeaseLost, "the acknowledgement of the first")
				return nil
			}
			clock.Set(time.Minute)
			set := time.Now()
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), durable.ErrLeaseLost)
			assert.Less(t, time.Since(set), visibility, "before the lease would have ended by itself")
			refused <- d.Ack(context.WithoutCancel(ctx))
			return nil
		}, durable.ConsumerOptions{Visibility: visibility})
	}()
	require.Equal(t, 1, <-crashes)
	require.Eventually(t, func() bool {
		counts, err := q.Stats(t.Context())
		return err == nil && counts.Acked == 1
	}, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-consumed)
	require.EqualValues(t, 2, deliveries.Load())
}

// The details of some members are lost or unreadable, and some details have no member. The former
// members are listed by their names, and details without a member are removed.
func TestMembersWithoutDetailsAreListedByName(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	const members, hosts = "tw:{orders}:members", "tw:{orders}:hosts"
	until := time.Now().Add(time.Hour).UnixMilli()
	require.NoError(t, client.ZAdd(t.Context(), members, redis.Z{Score: float64(until), Member: "old"}, redis.Z{Score: float64(until), Member: "torn"}).Err())
	require.NoError(t, client.HSet(t.Context(), hosts, "torn", `{"ttl":`, "gone", `{"ttl":1,"host":"h"}`, "gone too", "").Err())
	list, err := q.Members(t.Context())
	require.NoError(t, err)
	require.Equal(t, []driver.Member{{Name: "old", Until: driver.Instant(until)}, {Name: "torn", Until: driver.Instant(until)}}, list)

	list, err = q.Heartbeat(t.Context(), driver.Member{Name: "m", Host: "h", PID: 1, Partitions: []int{0}}, time.Hour)
	require.NoError(t, err)
	require.Equal(t, []string{"m", "old", "torn"}, names(list))
	require.Equal(t, []string{"m", "torn"}, slices.Sorted(slices.Values(client.HKeys(t.Context(), hosts).Val())))

	require.NoError(t, client.Del(t.Context(), members).Err())
	_, err = q.Heartbeat(t.Context(), driver.Member{Name: "m"}, 0)
	require.NoError(t, err)
	require.Zero(t, client.Exists(t.Context(), members, hosts).Val(), "a queue without consumers has no keys of them")
}
