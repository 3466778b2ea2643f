package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// putUntilFull puts messages until the partition is full, and returns their number and the error.
func putUntilFull(t *testing.T, q driver.Backend, prefix string, batch int, size func(i int) int) (n int, err error) {
	t.Helper()
	for ; ; n += batch {
		require.Less(t, n, 100_000, "the partition is never full")
		all := items(fmt.Sprint(prefix, n, "-"), batch, 0, time.Hour)
		for i := range all {
			all[i].Body = make([]byte, size(n+i))
		}
		if _, err = q.Put(t.Context(), driver.Put{Items: all}); err != nil {
			return n, err
		}
	}
}

// A partition is full. It accepts messages when there is room again, and other partitions accept
// messages all the time.
func TestFullPartitionRejectsMoreMessages(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{PartitionMessages: 1000})
	n, err := putUntilFull(t, q, "a", 8, func(int) int { return 10 })
	require.ErrorIs(t, err, driver.ErrFull)
	require.ErrorContains(t, err, "1000 messages, of 1000 that redisstore.Options.PartitionMessages accepts")
	require.Equal(t, 1000, n)
	counts, err := q.Count(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, 1000, counts.Scheduled, "the rejected call stored nothing")

	one := items("a0-", 1, 10, time.Hour)
	statuses, err := q.Put(t.Context(), driver.Put{Items: one, Replace: true})
	require.NoError(t, err, "a replacement takes no room")
	require.Equal(t, []driver.Status{driver.StatusDone}, statuses)
	statuses, err = q.Put(t.Context(), driver.Put{Items: one})
	require.NoError(t, err)
	require.Equal(t, []driver.Status{driver.StatusDuplicate}, statuses)
	_, err = q.Put(t.Context(), driver.Put{Partition: 1, Items: one})
	require.NoError(t, err)

	apply(t, q, driver.OpCancel, driver.Change{ID: one[0].ID})
	put(t, q, one)
	_, err = q.Put(t.Context(), driver.Put{Items: items("b", 1, 10, 0)})
	require.ErrorIs(t, err, driver.ErrFull)
}

// Only a Cluster moves partitions. Elsewhere a partition has no limit unless the options set one.
func TestDefaultLimitsApplyOnAClusterOnly(t *testing.T) {
	t.Parallel()
	const body, most = 16 << 20, 10 // together more than 128 MiB
	fill := func(client redis.UniversalClient, o redisstore.Options) error {
		t.Helper()
		q := openQueue(t, client, o)
		for i := range most {
			if _, err := q.Put(t.Context(), driver.Put{Items: items(fmt.Sprint(o.Prefix, i, "-"), 1, body, time.Hour)}); err != nil {
				return err
			}
		}
		return nil
	}
	server := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	require.NoError(t, fill(server, redisstore.Options{}))
	require.ErrorIs(t, fill(server, redisstore.Options{Prefix: "small", PartitionBytes: body}), driver.ErrFull)
	require.NoError(t, server.FlushAll(t.Context()).Err())

	sentinel := redistest.StartSentinel(t, redistest.SentinelOptions{})
	client := redis.NewFailoverClusterClient(sentinel.FailoverOptions())
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, fill(client, redisstore.Options{}), "a client with the type of a Cluster's")
	require.NoError(t, sentinel.Client(t).FlushAll(t.Context()).Err())

	cluster := redistest.StartCluster(t, redistest.ClusterOptions{}).Client(t)
	err := fill(cluster, redisstore.Options{})
	require.ErrorIs(t, err, driver.ErrFull)
	require.ErrorContains(t, err, "of 134217728 that redisstore.Options.PartitionBytes accepts")
	require.NoError(t, fill(cluster, redisstore.Options{Prefix: "large", PartitionBytes: most << 30}))
}

// Partitions are filled with bodies of different sizes in different orders.
func TestFullPartitionRejectsMoreBytes(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	const most = 4 << 20
	for name, size := range map[string]func(i int) int{
		"equal":            func(int) int { return 1000 },
		"each eighth":      func(i int) int { return 100 + (i%8/7)*2_000 },
		"growing":          func(i int) int { return i },
		"large ones first": func(i int) int { return max(100, 50_000-100*i) },
		"large ones last":  func(i int) int { return 100 + i/1000*5_000 },
		"huge":             func(int) int { return 1 << 20 },
	} {
		q := openQueue(t, client, redisstore.Options{PartitionBytes: most, Prefix: "size-" + strings.ReplaceAll(name, " ", "-")})
		batch := 10
		if name == "huge" {
			batch = 1
		}
		n, err := putUntilFull(t, q, "a", batch, size)
		require.ErrorIs(t, err, driver.ErrFull, name)
		require.ErrorContains(t, err, fmt.Sprint(most, " that redisstore.Options.PartitionBytes accepts"))
		bytes := 0
		for i := range n {
			bytes += size(i) + 19
		}
		t.Logf("%s: %d messages of %d bytes", name, n, bytes)
		assert.InEpsilon(t, most, bytes, 0.6, name)
		require.NoError(t, client.FlushAll(t.Context()).Err())
	}
	q := openQueue(t, client, redisstore.Options{PartitionBytes: 1000})
	put(t, q, items("one", 1, 100_000, 0))
	_, err := q.Put(t.Context(), driver.Put{Items: items("two", 1, 1, 0)})
	require.ErrorIs(t, err, driver.ErrFull, "a single large message is accepted")
}
