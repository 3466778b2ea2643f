package storeurl

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
)

// passOne sends a message through the store of a URL.
func passOne(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store, err := Open(url, Use{Consume: true})
	require.NoError(t, err)
	defer func() { assert.NoError(t, store.Close()) }()
	q, err := durable.Open(ctx, store, durable.Options{Partitions: 2})
	require.NoError(t, err)
	defer func() { assert.NoError(t, q.Shutdown(ctx)) }()
	_, err = q.Enqueue(ctx, durable.Message{ID: "one", Body: []byte("body")})
	require.NoError(t, err)
	d, err := q.Take(ctx)
	require.NoError(t, err)
	assert.Equal(t, "body", string(d.Body))
	require.NoError(t, d.Ack(ctx))
}

func TestOpenMemory(t *testing.T) {
	t.Parallel()
	passOne(t, "memory:")
	passOne(t, "MEMORY:")
}

func TestOpenTakesPathsAsTheyAre(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	passOne(t, "dir:"+filepath.Join(dir, "a b?c%20"))
	assert.DirExists(t, filepath.Join(dir, "a b?c%20"), "paths are not decoded")
	passOne(t, "dir://"+filepath.ToSlash(filepath.Join(dir, "second")))
	assert.DirExists(t, filepath.Join(dir, "second"))
}

func TestOpenOfADirectoryInUse(t *testing.T) {
	t.Parallel()
	for _, served := range []bool{true, false} {
		t.Run(fmt.Sprintf("served=%v", served), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "q")
			passOne(t, "dir:"+path) // it creates the queue
			owner, err := pebblestore.Open(path, pebblestore.Options{Socket: served})
			require.NoError(t, err)
			t.Run("by", func(t *testing.T) { // which waits until all have ended
				for name, use := range map[string]Use{
					"a consumer": {Consume: true}, "change": {}, "read": {Read: true}, "read all": {Read: true, All: true},
				} {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						store, err := Open("dir:"+path, use)
						if !served || use.Consume {
							require.ErrorIs(t, err, durable.ErrLocked)
							return
						}
						require.NoError(t, err)
						_, err = durable.Open(t.Context(), store, durable.Options{Partitions: 2})
						require.NoError(t, err)
						require.NoError(t, store.Close())
					})
				}
			})
			require.NoError(t, owner.Close())
			passOne(t, "dir:"+path)
		})
	}
}

// A service starts while a program looks into its directory.
func TestReaderKeepsNoDirectory(t *testing.T) {
	t.Parallel()
	url := "dir:" + filepath.Join(t.TempDir(), "q")
	passOne(t, url)
	store, err := Open(url, Use{Read: true})
	require.NoError(t, err)
	passOne(t, url)
	require.NoError(t, store.Close())
}

func TestOpenRedisDecodesPasswords(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	redistest.AwaitDisconnects(t, server)
	server.RequireUserAuth("me", "s:e@c/r")
	passOne(t, "redis://me:s%3Ae%40c%2Fr@"+server.Addr()+"/3?dial_timeout=2s")
	assert.NotEmpty(t, server.DB(3).Keys())
	assert.Empty(t, server.DB(0).Keys())
}

func TestClientOfSingleServerURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]struct {
		addr string
		db   int
		tls  bool
	}{
		"redis://":                   {"localhost:6379", 0, false},
		"redis://host":               {"host:6379", 0, false},
		"redis://[::1]/2":            {"[::1]:6379", 2, false},
		"redis://[::1]:7000":         {"[::1]:7000", 0, false},
		"rediss://host:6380/1":       {"host:6380", 1, true},
		"REDIS://:word@host:1/?db=4": {"host:1", 4, false},
	} {
		c, err := newClient(url)
		require.NoError(t, err, url)
		o := c.(*redis.Client).Options()
		assert.Equal(t, want.addr, o.Addr, url)
		assert.Equal(t, want.db, o.DB, url)
		assert.Equal(t, want.tls, o.TLSConfig != nil, url)
		require.NoError(t, c.Close())
	}
}

func TestClientOfClusterURL(t *testing.T) {
	t.Parallel()
	c, err := newClient("rediss-cluster://me:word@a:7000,b:7001,[::1]:7002/?max_retries=5")
	require.NoError(t, err)
	defer c.Close()
	o := c.(*redis.ClusterClient).Options()
	assert.Equal(t, []string{"a:7000", "b:7001", "[::1]:7002"}, o.Addrs)
	assert.Equal(t, "me", o.Username)
	assert.Equal(t, "word", o.Password)
	assert.NotNil(t, o.TLSConfig)
}

func TestClientOfSentinelURL(t *testing.T) {
	t.Parallel()
	const raw = "redis-sentinel://me:word@a:1,b:2/my%20master/5?username=u&password=p"
	_, one, err := clientURL(raw)
	require.NoError(t, err)
	o, err := redis.ParseFailoverURL(one)
	require.NoError(t, err)
	assert.Equal(t, []string{"a:1", "b:2"}, o.SentinelAddrs)
	assert.Equal(t, "my master", o.MasterName)
	assert.Equal(t, 5, o.DB)
	assert.Equal(t, []string{"me", "word", "u", "p"}, []string{o.SentinelUsername, o.SentinelPassword, o.Username, o.Password})
	c, err := newClient(raw)
	require.NoError(t, err)
	assert.Equal(t, 5, c.(*redis.Client).Options().DB)
	require.NoError(t, c.Close())
}

func TestOpenRejectsInvalidURLs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, want string }{
		{"", "dir:PATH"},
		{"delayq.db", "dir:PATH"},
		{"file:q.db", "dir:PATH"},
		{"dir:", "dir:PATH"},
		{"dir://", "dir:///PATH"},
		{"dir://delayq.db", "dir:///PATH"},
		{"memory:x", "memory:,"},
		{"http://host", "redis-cluster"},
		{"redis:host", "redis-cluster"},
		{"redis-ring://host:1", "redis-cluster"},
		{"postgres:host", "postgres://"},
		{"postgres-cluster://host/db?sslmode=disable", "postgres://"},
		{"postgresql-sentinel://host/m", "postgres://"},
		{"postgres://host:port/db", "host[:port]"},
		{"postgres://host/db?sslmode=perhaps", "?sslmode=require"},
		{"postgres://host/db?pool_max_conns=none", "of pgxpool"},
		{"postgres://host/db?schema=a;x=b", "percent-encoding"},
		{"redis-://", "redis-sentinel"},
		{"redis://a:1,b:2", "redis-cluster://"},
		{"redis://host:port", "host:port"},
		{"redis://host:1/x", "[/db]"},
		{"redis://host:1/-1", "host:port[/db]"},
		{"redis://host:1/0?nonsense=1", "?dial_timeout=3s"},
		{"redis://host:1/0#part", "percent-encoding"},
		{"redis://host:1?db=%zz", "percent-encoding"},
		{"redis://host:1?db=3;pool_size=1", "percent-encoding"},
		{"redis-cluster://a:1,b", "host:port"},
		{"redis-cluster://a:1/3", "host:port,host:port or"},
		{"redis-cluster://a:1?read_only=true", "replicas"},
		{"redis-sentinel://a:1", "/master[/db]"},
		{"redis-sentinel://a:1/", "/master[/db]"},
		{"redis-sentinel://a:1/%zz", "percent-encoding"},
		{"redis-sentinel://a:1/m/x", "/master[/db]"},
		{"redis-sentinel://a:1/m?replica_only=true", "replicas"},
		{"redis-sentinel://a:1/m?route_by_latency=true", "replicas"},
		{"redis-sentinel://a:1/m?route_randomly=true", "replicas"},
		{"redis-cluster://a:1?route_by_latency=true", "replicas"},
		{"redis-cluster://a:1?route_randomly=true", "replicas"},
		{"redis-sentinel://a:1/m/-1", "/master[/db]"},
	} {
		open, err := Parse(c.url)
		require.ErrorIs(t, err, durable.ErrInvalid, c.url)
		require.ErrorContains(t, err, c.want, c.url)
		assert.Contains(t, err.Error(), `"`+Redact(c.url)+`"`, "the error names the value")
		assert.Nil(t, open)
	}
}

func TestParseOpensNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "q")
	for _, url := range []string{
		"memory:", "dir:" + dir, "dir://" + filepath.ToSlash(dir), "redis://", "redis://host:1/2", "rediss-cluster://a:1,b:2",
		"redis-sentinel://a:1,b:2/m/3?min_idle_conns=5", "postgres://", "Postgres://u@host:1/db?schema=jobs", "postgresql://a:1,b:2/db?sslmode=disable",
	} {
		_, err := Parse(url)
		require.NoError(t, err)
	}
	assert.NoDirExists(t, dir)
}

func TestErrorsContainNoPassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://me:hush@host:port",
		"redis://me:hush@host:1/x",
		"redis://me:hu#hush@host:1",
		"redis://me:hush/hush@host:1",
		"redis://me:hush?hush@host:1",
		"redis://me:hush@hush@host:1",
		"redis://me:%zzhush@host:1",
		"redis://me:hush",
		"redis-cluster://me:hush",
		"redis-cluster://a:1,me:hush",
		"redis:me:hush@host",
		"redis-sentinel://a:1?password=hush",
		"redis-sentinel://a:1/m/x?password=hush&username=u",
		"redis-sentinel://a:1/m?username=u;password=hush",
		"redis://host:1?pass=hush",
		"redis://host:1?pwd=hush",
		"hush@localhost:6379/0",
		"hush?x",
		"hush",
		"hush:",
		"redis-sentinel://h:1/m?password=no&hush",
		"redis-sentinel://h:1/m?password:hush",
		"redis-sentinel://h:1/m/0&password=hush",
		"redis-sentinel://h:1/m?db=1?password=hush",
		"redis://h:1/0&password=hush",
		"redis://h:1?protocol=3?password=hush",
		"redis-cluster://h:1?protocol=3?password=hush",
		"redis://me:hush%@host:1",
		"postgres://me:hush@host:port",
		"postgres://me:hush/hush@host/db",
		"postgres://me:hush?hush@host/db",
		"postgres://me:hush@hush@host/db",
		"postgresql://me:%zzhush@host",
		"postgres://me:hush",
		"postgres:me:hush@host",
		"postgres://host/db?sslmode=x&password=hush",
		"postgres://host/db?pool_max_conns=x&user=u;password=hush",
		"//me:hush@host",
		"http://me:hush@host",
	} {
		_, err := Parse(url)
		require.ErrorIs(t, err, durable.ErrInvalid, url)
		assert.NotContains(t, err.Error(), "hush")
	}
}

func TestRedactHidesWhatFollowsTheScheme(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://a:b@host:1/2?x=1&Password=p": "redis:…",
		"redis-cluster://h:1,i:2":             "redis-cluster:…",
		"postgres://me:hush@host":             "postgres:…",
		"postgresql://host/db":                "postgresql:…",
		"postgres-x://host/db":                "…",
		"REDISS-sentinel://h:1/m":             "REDISS-sentinel:…",
		"redis":                               "…",
		"redis?password=p":                    "…",
		"redis-ring://h:1":                    "…",
		"a@b":                                 "…",
		"memory:x":                            "memory:…",
		"Dir:a@b:c":                           "Dir:a@b:c",
		"memory:":                             "memory:",
		"":                                    "",
	} {
		assert.Equal(t, want, Redact(url))
	}
}

func TestCloseOfRedisStoreClosesItsClient(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	redistest.AwaitDisconnects(t, server)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	store, err := openRedis(client, Use{})
	require.NoError(t, err)
	require.NoError(t, client.Ping(t.Context()).Err())
	require.NoError(t, store.Close())
	require.ErrorIs(t, client.Ping(t.Context()).Err(), redis.ErrClosed)
}

func TestPathOfDirectoryURLs(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{"file:a": "", "dir:a": "a", "DIR:/a": "/a", "dir:///a": "/a", "dir://a": "", "dir:": "", "memory:": "", "redis://a": ""} {
		path, ok := Path(url)
		assert.Equal(t, want != "", ok, url)
		if ok {
			assert.Equal(t, want, path)
		}
	}
}

// newClient returns a client for a URL, which is not connected.
func newClient(raw string) (redis.UniversalClient, error) {
	store, err := Open(raw, Use{})
	if err != nil {
		return nil, err
	}
	return store.(onRedis).client, nil
}

// Open opens the store of a URL.
func Open(url string, use Use) (durable.Store, error) {
	open, err := Parse(url)
	if err != nil {
		return nil, err
	}
	return open(use)
}
