package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

func TestNewRejectsInvalidOptions(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // New does no I/O
	defer func() { _ = client.Close() }()
	_, err := new(redisstore.Store).Open(t.Context(), config())
	require.ErrorIs(t, err, driver.ErrInvalid, "a zero store")
	for name, o := range map[string]redisstore.Options{
		`"a{b"`:  {Prefix: "a{b"},
		`"a}b"`:  {Prefix: "a}b"},
		`"a b"`:  {Prefix: "a b"},
		"xxx":    {Prefix: strings.Repeat("x", 129)},
		"-1":     {Wait: -1},
		"-1s":    {WaitTimeout: -time.Second},
		"-2":     {PartitionMessages: -2},
		"-3":     {PartitionBytes: -3},
		"999µs":  {WaitTimeout: 999 * time.Microsecond},
		`"\x00"`: {Prefix: "\x00"},
	} {
		_, err := redisstore.New(client, o)
		require.ErrorIs(t, err, driver.ErrInvalid, name)
		assert.Contains(t, err.Error(), name, "the error names the value")
	}
	s, err := redisstore.New(client, redisstore.Options{Prefix: "my:app_1.x-"})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "twice")
}

// The clients lose or hide messages: a Ring moves keys to other shards while one does not answer,
// replicas have old data, and the store does not find the servers behind a client of another type.
func TestNewRejectsUnknownClientsAndReplicas(t *testing.T) {
	t.Parallel()
	cluster := func(o redis.ClusterOptions) *redis.ClusterClient {
		o.Addrs = []string{"127.0.0.1:1"}
		return redis.NewClusterClient(&o)
	}
	type embedding struct{ *redis.Client }
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	sentinel := &redis.FailoverOptions{SentinelAddrs: []string{"127.0.0.1:1"}, MasterName: "m"}
	byLatency := *sentinel
	byLatency.RouteByLatency = true
	for name, c := range map[string]struct {
		client redis.UniversalClient
		found  string // part of the error; empty: the client is accepted
	}{
		"single":                        {client: single},
		"sentinel":                      {client: redis.NewFailoverClient(sentinel)},
		"sentinel, cluster client":      {client: redis.NewFailoverClusterClient(sentinel)},
		"cluster":                       {client: cluster(redis.ClusterOptions{})},
		"nil":                           {nil, "client of type <nil>"},
		"nil client":                    {(*redis.Client)(nil), "not nil"},
		"nil cluster":                   {(*redis.ClusterClient)(nil), "not nil"},
		"ring":                          {redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}}), "*redis.Ring"},
		"embedded":                      {embedding{single}, "embedding"},
		"read only":                     {cluster(redis.ClusterOptions{ReadOnly: true}), "ReadOnly"},
		"by latency":                    {cluster(redis.ClusterOptions{RouteByLatency: true}), "RouteByLatency"},
		"randomly":                      {cluster(redis.ClusterOptions{RouteRandomly: true}), "RouteRandomly"},
		"sentinel, replicas by latency": {redis.NewFailoverClusterClient(&byLatency), "RouteByLatency"},
	} {
		store, err := redisstore.New(c.client, redisstore.Options{})
		if c.found == "" {
			require.NoError(t, err, name)
			require.NoError(t, store.Close())
			continue
		}
		require.ErrorIs(t, err, driver.ErrInvalid, name)
		require.ErrorContains(t, err, c.found, name)
		require.ErrorContains(t, err, "it must be a *redis.Client, or a *redis.ClusterClient", name)
	}
}

// tell sets the answer of a simulated server to INFO.
func tell(m *miniredis.Miniredis, info string) {
	m.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd == "INFO" {
			c.WriteBulk(info)
		}
		return cmd == "INFO"
	})
}

func TestOpenRejectsOldServers(t *testing.T) {
	t.Parallel()
	for version, accepted := range map[string]bool{
		"2.8.19": false, "5.0.14": false, "6.0.16": false, "6.1.240": false, "nonsense": false, "7": false,
		"6.2.0": true, "6.2": true, "7.0.15": true, "8.2.1": true, "10.0.0": true,
	} {
		m := simulated(t)
		tell(m, "# Server\r\nredis_version:"+version+"\r\nmaxmemory_policy:noeviction\r\n")
		_, err := newStore(t, newClient(t, m.Addr()), redisstore.Options{}).Open(t.Context(), config())
		if accepted {
			require.NoError(t, err, version)
			continue
		}
		require.ErrorIs(t, err, driver.ErrVersion, version)
		assert.Contains(t, err.Error(), version)
		assert.Contains(t, err.Error(), "6.2")
		assert.Empty(t, m.Keys(), "no key was created")
	}
}

// A server does not report its version and lacks a command.
func TestOpenProbesServersThatReportNoVersion(t *testing.T) {
	t.Parallel()
	m := simulated(t)
	m.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd == "ZMSCORE" {
			c.WriteError("ERR unknown command 'ZMSCORE'")
		}
		return cmd == "ZMSCORE"
	})
	_, err := newStore(t, newClient(t, m.Addr()), redisstore.Options{}).Open(t.Context(), config())
	require.ErrorIs(t, err, driver.ErrVersion)
	assert.Empty(t, m.Keys())
}

func TestOpenRejectsEviction(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{MaxMemory: 64 << 20, ExtraArgs: []string{"--maxmemory-policy", "allkeys-lru"}})
	client := newClient(t, server.Addr())
	_, err := newStore(t, client, redisstore.Options{}).Open(t.Context(), config())
	require.ErrorIs(t, err, driver.ErrUnsafe)
	assert.Contains(t, err.Error(), "allkeys-lru")
	assert.Contains(t, err.Error(), "noeviction")
	assert.Zero(t, client.DBSize(t.Context()).Val(), "no key was created")

	put(t, openQueue(t, client, redisstore.Options{AllowEviction: true}), items("a", 1, 10, 0))
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	require.Len(t, claim(t, openQueue(t, client, redisstore.Options{}), 2), 1)
}

// A user has the permissions of the package comment and no others.
func TestDocumentedPermissionsSuffice(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{ExtraArgs: []string{"--maxmemory-policy", "allkeys-lru"}})
	admin := newClient(t, s.Addr())
	data := []string{"+@hash", "+@sortedset", "+type", "+time", "+eval", "+evalsha"}
	setUser := func(name string, rules ...string) *redis.Client {
		t.Helper()
		args := []any{"acl", "setuser", name, "reset", "on", ">secret", "~tw:*"}
		for _, r := range append(data, rules...) {
			args = append(args, r)
		}
		require.NoError(t, admin.Do(t.Context(), args...).Err())
		o := redistest.ClientOptions(s.Addr())
		o.Username, o.Password = name, "secret"
		c := redis.NewClient(o)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	_, err := newStore(t, setUser("informed", "+info"), redisstore.Options{}).Open(t.Context(), config())
	require.ErrorIs(t, err, driver.ErrUnsafe, "INFO has the policy")

	q := openQueue(t, setUser("blind"), redisstore.Options{}) // neither version nor policy is known, and there are no hints
	put(t, q, items("a", 3, 10, 0))
	records := claim(t, q, 10)
	require.Len(t, records, 3)
	apply(t, q, driver.OpBegin, changes(records)...)
	apply(t, q, driver.OpRetry, changes(records)...)
	_, err = q.Heartbeat(t.Context(), driver.Member{Name: "m"}, time.Minute)
	require.NoError(t, err)
	_, err = q.Members(t.Context())
	require.NoError(t, err)
	report, err := q.(driver.Auditor).Audit(t.Context(), 0, true)
	require.NoError(t, err)
	assert.Equal(t, driver.AuditReport{Records: 3}, report)
}

func TestOpenRejectsKeysOfOtherPrograms(t *testing.T) {
	t.Parallel()
	m := simulated(t)
	client := newClient(t, m.Addr())
	open := func() error {
		_, err := newStore(t, client, redisstore.Options{}).Open(t.Context(), config())
		return err
	}
	key := "tw:{orders}:meta"
	require.NoError(t, m.Set(key, "x"))
	require.ErrorIs(t, open(), driver.ErrVersion, "a string")
	m.Del(key)
	for version, fields := range map[string][]string{
		`version "4"; it must be 5`:             {"version", "4", "partitions", "2"},
		`version "6"; it must be 5`:             {"version", "6", "partitions", "2"},
		`""`:                                    {"partitions", "2"},
		"0 partitions; there must be 1 to 1024": {"version", "5", "partitions", "x"},
		"-1 partitions":                         {"version", "5", "partitions", "-1"},
		"MaxBody of the queue is 0; it must be": {"version", "5", "partitions", "2", "max_body", "x"},
	} {
		m.HSet(key, fields...)
		err := open()
		require.ErrorIs(t, err, driver.ErrVersion)
		assert.Contains(t, err.Error(), version)
		m.Del(key)
	}
	q := openQueue(t, client, redisstore.Options{})
	m.Del("tw:{orders:0}:d")
	require.NoError(t, m.Set("tw:{orders:0}:d", "x"))
	_, err := q.Put(t.Context(), driver.Put{Items: items("a", 1, 1, 0)})
	require.ErrorIs(t, err, driver.ErrVersion, "a key of another type")
	err = open()
	require.ErrorIs(t, err, driver.ErrVersion)
	require.ErrorContains(t, err, `"tw:{orders:0}:d" is a string`)
}

// The meta key of a queue is deleted. The queue is not created again with the default number of
// partitions, but only with the number that Open is given.
func TestOpenDoesNotRecreateQueueWithoutItsMetaKey(t *testing.T) {
	t.Parallel()
	mini := simulated(t)
	client := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	store, err := redisstore.New(client, redisstore.Options{})
	require.NoError(t, err)
	config := driver.Config{Queue: "q", Partitions: 1, DeadLimit: 10, DeadBytes: 1 << 30, DeadAge: time.Hour}
	backend, err := store.Open(t.Context(), config)
	require.NoError(t, err)
	_, err = backend.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "m", MaxAttempts: 1}}})
	require.NoError(t, err)
	mini.Del("tw:{q}:meta")

	config.Partitions = 0
	_, err = store.Open(t.Context(), config)
	require.ErrorIs(t, err, driver.ErrVersion)
	require.ErrorContains(t, err, `"tw:{q}:meta" is missing`)
	config.Partitions = 1
	_, err = store.Open(t.Context(), config)
	require.NoError(t, err)
	config.Partitions = 0
	backend, err = store.Open(t.Context(), config)
	require.NoError(t, err)
	assert.Equal(t, 1, backend.Config().Partitions)
}

// A message in any partition shows that the queue exists. Here only the last partition that a queue
// may have is left.
func TestOpenFindsMessagesInAnyPartitionWithoutMetaKey(t *testing.T) {
	t.Parallel()
	mini := simulated(t)
	client := newClient(t, mini.Addr())
	store := newStore(t, client, redisstore.Options{})
	c := config()
	c.Partitions = 1
	q, err := store.Open(t.Context(), c)
	require.NoError(t, err)
	put(t, q, items("a", 1, 10, 0))
	for _, key := range mini.Keys() {
		if kind, found := strings.CutPrefix(key, "tw:{orders:0}"); found {
			last := fmt.Sprintf("tw:{orders:%d}%s", contract.MaxPartitions-1, kind)
			require.NoError(t, client.Rename(t.Context(), key, last).Err())
		}
	}
	mini.Del("tw:{orders}:meta")

	c.Partitions = 0
	_, err = store.Open(t.Context(), c)
	require.ErrorIs(t, err, driver.ErrVersion, "the message would never be claimed from a queue with fewer partitions")
	assert.False(t, mini.Exists("tw:{orders}:meta"))
}

// pipelineHook calls before once, ahead of the first pipeline with EXISTS.
type pipelineHook struct {
	before func()
	once   sync.Once
}

func (h *pipelineHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h *pipelineHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h *pipelineHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, all []redis.Cmder) error {
		for _, cmd := range all {
			if cmd.Name() == "exists" {
				h.once.Do(h.before)
			}
		}
		return next(ctx, all)
	}
}

// Two processes create a queue concurrently. The first sees no queue, and then messages of the
// second.
func TestOpenJoinsQueueThatAnotherProcessCreates(t *testing.T) {
	t.Parallel()
	mini := simulated(t)
	c := config()
	c.Partitions = 0
	client, made := newClient(t, mini.Addr()), false
	client.AddHook(&pipelineHook{before: func() {
		other, err := newStore(t, newClient(t, mini.Addr()), redisstore.Options{}).Open(t.Context(), c)
		require.NoError(t, err)
		_, err = other.Put(t.Context(), driver.Put{Items: items("a", 1, 10, 0)})
		require.NoError(t, err)
		made = true
	}})
	q, err := newStore(t, client, redisstore.Options{}).Open(t.Context(), c)
	require.NoError(t, err)
	assert.True(t, made)
	assert.Equal(t, 8, q.Config().Partitions)
}
