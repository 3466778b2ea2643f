package redisstore_test

import (
	"context"
	"errors"
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

// settings changes the settings of a server.
func settings(t *testing.T, client *redis.Client, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		require.NoError(t, client.ConfigSet(t.Context(), pairs[i], pairs[i+1]).Err())
	}
}

// The servers lose messages in different ways, or not at all.
func TestOpenNamesHowServerLosesMessages(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{AppendOnly: true, MaxMemory: 64 << 20}).Addr())
	safe := []string{"appendonly", "yes", "appendfsync", "everysec", "save", "", "maxmemory-policy", "noeviction"}
	for _, c := range []struct {
		name     string
		settings []string
		says     []string // parts of the error; nil: the server is accepted
		option   redisstore.Options
	}{
		{name: "everysec"},
		{name: "always", settings: []string{"appendfsync", "always"}},
		{
			name: "nothing is kept", settings: []string{"appendonly", "no"},
			says:   []string{`appendonly no, save ""`, "loses all messages", "CONFIG SET appendonly yes", "Options.AllowLossOnCrash"},
			option: redisstore.Options{AllowLossOnCrash: true},
		},
		{
			name: "snapshots", settings: []string{"appendonly", "no", "save", "3600 1 300 100"},
			says:   []string{`snapshots only (appendonly no, save "3600 1 300 100")`, "Options.AllowLossOnCrash"},
			option: redisstore.Options{AllowLossOnCrash: true},
		},
		{
			name: "no fsync", settings: []string{"appendfsync", "no"},
			says: []string{"appendfsync no", "everysec or always", "Options.AllowLossOnCrash"}, option: redisstore.Options{AllowLossOnCrash: true},
		},
		{
			name: "all keys", settings: []string{"maxmemory-policy", "allkeys-lfu"},
			says: []string{`maxmemory-policy "allkeys-lfu"`, "Options.AllowEviction"}, option: redisstore.Options{AllowEviction: true},
		},
		{name: "keys with a time to live", settings: []string{"maxmemory-policy", "volatile-lru"}},
		{name: "the first to expire", settings: []string{"maxmemory-policy", "volatile-ttl"}},
		{
			name: "both", settings: []string{"maxmemory-policy", "allkeys-random", "appendonly", "no"},
			says:   []string{"allkeys-random", "appendonly no"},
			option: redisstore.Options{AllowEviction: true, AllowLossOnCrash: true},
		},
	} {
		settings(t, client, append(safe, c.settings...)...)
		_, err := newSafeStore(t, client, redisstore.Options{Prefix: "strict"}).Open(t.Context(), config())
		if c.says == nil {
			require.NoError(t, err, c.name)
			require.NoError(t, client.FlushAll(t.Context()).Err())
			continue
		}
		require.ErrorIs(t, err, driver.ErrUnsafe, c.name)
		for _, text := range append(c.says, "the server "+client.Options().Addr) {
			assert.ErrorContains(t, err, text, c.name)
		}
		assert.Zero(t, client.DBSize(t.Context()).Val(), "%s: no key was created", c.name)
		_, err = newSafeStore(t, client, c.option).Open(t.Context(), config())
		require.NoError(t, err, "%s: the named option allows it", c.name)
		require.NoError(t, client.FlushAll(t.Context()).Err())
	}
}

// A master is safe, and its replica, which may become the master, has no append-only file.
func TestOpenChecksReplicas(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, client redis.UniversalClient) error {
		t.Helper()
		_, err := newSafeStore(t, client, redisstore.Options{}).Open(t.Context(), config())
		return err
	}
	unsafe := func(t *testing.T, client redis.UniversalClient, replica *redistest.Server) {
		t.Helper()
		require.NoError(t, open(t, client))
		c := newClient(t, replica.Addr())
		settings(t, c, "appendonly", "no")
		var err error
		require.Eventually(t, func() bool { // a replica that answers late is skipped
			err = open(t, client)
			return errors.Is(err, driver.ErrUnsafe)
		}, time.Minute, 10*time.Millisecond)
		require.ErrorContains(t, err, "the replica "+replica.Addr()+" keeps neither")
		require.NotContains(t, err.Error(), "master")
		settings(t, c, "appendonly", "yes")
		require.NoError(t, open(t, client))
		if _, cluster := client.(*redis.ClusterClient); cluster {
			return // the client may ask the replica for the slots
		}
		replica.Pause() // a replica that does not answer is skipped
		defer replica.Continue()
		require.NoError(t, open(t, client))
	}
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		master := redistest.Start(t, redistest.Options{AppendOnly: true})
		host, port, _ := strings.Cut(master.Addr(), ":")
		replica := redistest.Start(t, redistest.Options{AppendOnly: true, ExtraArgs: []string{"--replicaof", host + " " + port}})
		client := newClient(t, master.Addr())
		require.Eventually(t, func() bool {
			return strings.Contains(client.Info(t.Context(), "replication").Val(), "state=online")
		}, time.Minute, 10*time.Millisecond)
		require.ErrorIs(t, open(t, newClient(t, replica.Addr())), driver.ErrUnavailable, "a replica accepts no changes")
		unsafe(t, client, replica)
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		s := redistest.StartSentinel(t, redistest.SentinelOptions{Options: redistest.Options{AppendOnly: true}})
		unsafe(t, s.Client(t), s.Servers()[1])
		settings(t, newClient(t, s.Servers()[0].Addr()), "appendonly", "no")
		require.ErrorContains(t, open(t, s.Client(t)), "the master keeps neither")
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.StartCluster(t, redistest.ClusterOptions{Options: redistest.Options{AppendOnly: true}})
		unsafe(t, c.Client(t), c.Nodes()[4])
		settings(t, newClient(t, c.Nodes()[2].Addr()), "appendfsync", "no")
		require.ErrorContains(t, open(t, c.Client(t)), "the master "+c.Nodes()[2].Addr()+" has appendfsync no")
	})
}

// The settings of a server change while a queue is open.
func TestCheckNoticesChangedSettings(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{AppendOnly: true})
	client := newClient(t, server.Addr())
	b, err := newSafeStore(t, client, redisstore.Options{}).Open(t.Context(), config())
	require.NoError(t, err)
	allowing, err := newSafeStore(t, client, redisstore.Options{AllowEviction: true, AllowLossOnCrash: true}).Open(t.Context(), config())
	require.NoError(t, err)
	check := func(b driver.Backend) error { return b.(driver.Checker).Check(t.Context()) }

	require.NoError(t, check(b))
	settings(t, client, "maxmemory-policy", "allkeys-lru", "appendfsync", "no")
	err = check(b)
	require.ErrorIs(t, err, driver.ErrUnsafe)
	require.ErrorContains(t, err, "allkeys-lru")
	require.ErrorContains(t, err, "appendfsync no")
	require.NoError(t, check(allowing))
	settings(t, client, "maxmemory-policy", "noeviction", "appendfsync", "always")
	require.NoError(t, check(b))
	server.Kill()
	require.ErrorIs(t, check(b), driver.ErrUnavailable)
}

// A server loads its data, or receives its master's data. Its settings are not known yet, so it is
// not unsafe. Open waits for the server, and returns when its context ends.
func TestServerThatLoadsIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, loads := range []string{"loading:1", "async_loading:1", "master_sync_in_progress:1"} {
		m := simulated(t)
		client := newClient(t, m.Addr())
		store := newSafeStore(t, client, redisstore.Options{})
		const version = "redis_version:7.0.15\r\n"
		tell(m, version+"aof_enabled:1\r\nloading:0\r\nasync_loading:0\r\nmaster_sync_in_progress:0\r\n")
		q, err := store.Open(t.Context(), config())
		require.NoError(t, err)
		tell(m, version+"aof_enabled:0\r\n"+loads+"\r\n")
		err = q.(driver.Checker).Check(t.Context())
		require.ErrorIs(t, err, driver.ErrUnavailable, loads)
		assert.Equal(t, 1, strings.Count(err.Error(), driver.ErrUnavailable.Error()), err)
		require.NotErrorIs(t, q.(driver.Checker).Check(t.Context()), driver.ErrUnsafe, loads)

		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		_, err = store.Open(ctx, config())
		require.ErrorIs(t, err, context.DeadlineExceeded, loads)
		cancel()
		opened := make(chan error, 1)
		go func() {
			_, err := store.Open(t.Context(), config())
			opened <- err
		}()
		select {
		case err := <-opened:
			require.Fail(t, "Open does not wait", "%s: %v", loads, err)
		case <-time.After(250 * time.Millisecond):
		}
		tell(m, version+"aof_enabled:1\r\n")
		require.NoError(t, <-opened, loads)
	}
}

// The server of a queue is restarted and takes a while to load its file. Open meanwhile fails only
// while nothing listens, and then waits.
func TestOpenWaitsForServerThatLoadsItsFile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{AppendOnly: true, ExtraArgs: []string{
		"--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024", "--aof-use-rdb-preamble", "no",
	}})
	o := redistest.ClientOptions(server.Addr())
	o.MaxRetries, o.DialerRetries = -1, 1 // so that Open is called again as soon as the server listens
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	store := newSafeStore(t, client, redisstore.Options{})
	q, err := store.Open(t.Context(), config())
	require.NoError(t, err)
	for i := range 500 {
		put(t, q, items(fmt.Sprint(i, "-"), 1, 100, time.Hour))
	}
	server.Kill()
	_, err = store.Open(t.Context(), config())
	require.ErrorIs(t, err, driver.ErrUnavailable, "a server that has ended")
	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		server.Restart()
	}()
	for err != nil {
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.NotErrorIs(t, err, driver.ErrUnsafe)
		time.Sleep(time.Millisecond)
		_, err = store.Open(t.Context(), config())
	}
	counts, err := q.Count(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, 500, counts.Scheduled)
	<-restarted
}

// Every transition is made. Policies that evict keys with a time to live are accepted, because no
// key has one.
func TestNoKeyHasATimeToLive(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	all := items("a", 6, 1, 0)
	_, err := q.Put(t.Context(), driver.Put{Call: calling("p", 1), Items: all})
	require.NoError(t, err)
	records := changes(claim(t, q, 5))
	apply(t, q, driver.OpBegin, records...)
	apply(t, q, driver.OpExtend, records...)
	apply(t, q, driver.OpAck, records[0])
	apply(t, q, driver.OpRetry, records[1])
	apply(t, q, driver.OpRelease, records[2])
	apply(t, q, driver.OpBury, records[3:]...)
	apply(t, q, driver.OpReplay, records[3])
	apply(t, q, driver.OpReschedule, driver.Change{ID: all[5].ID, Delay: time.Hour})
	_, err = q.Heartbeat(t.Context(), driver.Member{Name: "m"}, time.Minute)
	require.NoError(t, err)
	keys, err := client.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 2*6+3, "the keys of two partitions and of the queue: %q", keys)
	for _, key := range keys {
		ttl, err := client.PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		require.Equal(t, time.Duration(-1), ttl, key)
	}
}
