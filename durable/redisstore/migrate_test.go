package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// otherMaster returns a master that does not have a slot.
func otherMaster(c *redistest.Cluster, slot int) *redistest.Server {
	if to := c.Nodes()[0]; to != c.Master(slot) {
		return to
	}
	return c.Nodes()[1]
}

// Calls are made while the slot of their partition moves: before any of its keys has moved, which
// may take long, and after all have moved. The Cluster rejects no call, even if the partition has
// no leased, dead or scheduled messages, or calls wait for a replica and the client's user has only
// the permissions of the package comment.
func TestCallsSucceedWhileTheirSlotMoves(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.ClusterOptions{})
	client := c.Client(t)
	slot := int(client.ClusterKeySlot(t.Context(), "tw:{orders:0}:m").Val())
	plain := openQueue(t, client, redisstore.Options{})
	permit(t, c.Nodes(), "&tw:*", "+publish", "+spublish")
	o := c.ClusterOptions()
	o.Username, o.Password = "queue", "secret"
	permitted := redis.NewClusterClient(o)
	t.Cleanup(func() { _ = permitted.Close() })
	waiting := openQueue(t, permitted, redisstore.Options{Wait: 1, WaitTimeout: 20 * time.Second})
	looks := 0
	calls := func(q driver.Backend) {
		looks++
		fresh := items(fmt.Sprint(looks, "-"), 3, 10, 0)
		put(t, q, fresh)
		apply(t, q, driver.OpCancel, driver.Change{ID: fresh[0].ID})
		apply(t, q, driver.OpReschedule, driver.Change{ID: fresh[1].ID})
		records := changes(claim(t, q, 10))
		require.Len(t, records, 2)
		apply(t, q, driver.OpBegin, records...)
		apply(t, q, driver.OpBury, records[0])
		apply(t, q, driver.OpAck, records[1])
		apply(t, q, driver.OpReplay, driver.Change{ID: records[0].ID, Delay: time.Hour})
		require.NoError(t, q.Pause(t.Context(), driver.Pause{}))
		apply(t, q, driver.OpCancel, driver.Change{ID: records[0].ID})
		counts, err := q.Count(t.Context(), 0)
		require.NoError(t, err)
		require.Zero(t, counts.Scheduled+counts.InFlight+counts.Dead)
		_, err = q.(driver.Auditor).Audit(t.Context(), 0, true)
		require.NoError(t, err)
	}
	for range 2 {
		c.MigrateSlot(slot, otherMaster(c, slot), redistest.MigrateOptions{Halfway: func() {
			calls(plain)
			calls(waiting)
		}})
	}
	require.Equal(t, 8, looks, "twice before the keys move, and twice after, with each queue")
}

// redirecting starts a simulated server at host that answers scripts with a redirection, or runs
// them if the redirection is empty. All replicas have each change.
func redirecting(t *testing.T, host, redirection string) *miniredis.Miniredis {
	t.Helper()
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr(net.JoinHostPort(host, "0")); err != nil {
		t.Skipf("this machine has no address %s: %v", host, err)
	}
	t.Cleanup(m.Close)
	redistest.AwaitDisconnects(t, m)
	m.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		switch {
		case cmd == "ASKING":
			c.WriteOK()
		case cmd == "WAIT":
			c.WriteInt(1)
		case redirection != "" && strings.HasPrefix(cmd, "EVAL"):
			c.WriteError(redirection)
		default:
			return false
		}
		return true
	})
	return m
}

// Nodes redirect calls to an IPv6 address, which they send without brackets, and to another port of
// their own host, which they leave out. 127.0.0.2 is not the host at which a client looks for an
// address without a host.
func TestCallsWithWaitFollowRedirectionsToAnyHost(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"ASK", "MOVED"} {
		for name, c := range map[string]struct{ host, redirection string }{
			"ipv6":     {"::1", kind + " 3999 ::1:"},
			"brackets": {"::1", kind + " 3999 [::1]:"},
			"no host":  {"127.0.0.2", kind + " 3999 :"},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				last := redirecting(t, c.host, "")
				middle := redirecting(t, c.host, c.redirection+last.Port())
				first := redirecting(t, "127.0.0.1", kind+" 3999 "+middle.Addr())
				client := redis.NewClient(&redis.Options{Addr: first.Addr(), MaxRetries: -1})
				t.Cleanup(func() { _ = client.Close() })
				q := redisstore.BackendOf(newStore(t, client, redisstore.Options{Wait: 1}), config())
				put(t, q, items("a", 2, 10, time.Hour))
				assert.True(t, last.Exists("tw:{orders:0}:m"))
			})
		}
	}
}

// All partitions of a queue move to other nodes, one after the other, while they are used. With
// TIMINGWHEEL_CHAOS=full there are a million messages.
func TestNoMessageIsLostWhileSlotsMove(t *testing.T) {
	t.Parallel()
	partitions, each := 2, 2*driver.MaxBatch
	if os.Getenv("TIMINGWHEEL_CHAOS") == "full" {
		partitions, each = 16, 62_500
	}
	c := redistest.StartCluster(t, redistest.ClusterOptions{})
	client := c.Client(t)
	cfg := config()
	cfg.Partitions = partitions
	q, err := newStore(t, client, redisstore.Options{}).Open(t.Context(), cfg)
	require.NoError(t, err)
	for p := range partitions {
		for i := 0; i < each; i += driver.MaxBatch {
			_, err := q.Put(t.Context(), driver.Put{Partition: p, Items: items(fmt.Sprint(i, "-"), min(driver.MaxBatch, each-i), 128, time.Hour)})
			require.NoError(t, err)
		}
	}
	var moves, stalls []time.Duration
	for p := range partitions {
		ctx, cancel := context.WithCancel(t.Context())
		var longest, refused atomic.Int64
		used := make(chan struct{})
		go func() {
			defer close(used)
			for last := time.Now(); ctx.Err() == nil; time.Sleep(time.Millisecond) {
				if _, err := q.Claim(t.Context(), driver.Claim{Partition: p}); err != nil {
					assert.ErrorIs(t, err, driver.ErrUnavailable)
					refused.Add(1)
					continue
				}
				longest.Store(max(longest.Load(), int64(time.Since(last))))
				last = time.Now()
			}
		}()
		slot := int(client.ClusterKeySlot(t.Context(), fmt.Sprintf("tw:{orders:%d}:m", p)).Val())
		begun := time.Now()
		c.MigrateSlot(slot, otherMaster(c, slot), redistest.MigrateOptions{Halfway: func() { time.Sleep(50 * time.Millisecond) }})
		moves = append(moves, time.Since(begun)-100*time.Millisecond)
		cancel()
		<-used
		stalls = append(stalls, time.Duration(longest.Load()))
		assert.Zero(t, refused.Load(), "calls of partition %d", p)
		counts, err := q.Count(t.Context(), p)
		require.NoError(t, err)
		assert.EqualValues(t, each, counts.Scheduled)
	}
	t.Logf("%d messages in %d partitions; moves took %v, longest time without an answer %v", partitions*each, partitions, moves, stalls)
}
