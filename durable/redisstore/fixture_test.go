package redisstore_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
	"github.com/timingwheel-go/timingwheel/durable/storetest"
)

// newStore returns a store that is closed at the end of the test. Its server may lose data.
func newStore(t testing.TB, client redis.UniversalClient, o redisstore.Options) *redisstore.Store {
	t.Helper()
	o.AllowLossOnCrash = true
	return newSafeStore(t, client, o)
}

// newSafeStore returns a store that is closed at the end of the test. Its server must not lose
// data.
func newSafeStore(t testing.TB, client redis.UniversalClient, o redisstore.Options) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(client, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// newClient returns a client that is closed at the end of the test.
func newClient(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(redistest.ClientOptions(addr))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// simulated starts a simulated server.
func simulated(t testing.TB) *miniredis.Miniredis {
	t.Helper()
	m := miniredis.RunT(t)
	redistest.AwaitDisconnects(t, m)
	return m
}

// config is the configuration of the queue in most tests.
func config() driver.Config {
	return driver.Config{Queue: "orders", Partitions: 2, DeadLimit: 1000, DeadBytes: 1 << 30, DeadAge: 24 * time.Hour}
}

// openQueue opens a queue on a server.
func openQueue(t testing.TB, client redis.UniversalClient, o redisstore.Options) driver.Backend {
	t.Helper()
	b, err := newStore(t, client, o).Open(t.Context(), config())
	require.NoError(t, err)
	return b
}

// items returns n messages with bodies of a size, due after a delay.
func items(prefix string, n, size int, delay time.Duration) []driver.PutItem {
	all := make([]driver.PutItem, n)
	for i := range all {
		all[i] = driver.PutItem{ID: fmt.Sprintf("%s%021d", prefix, i), Body: make([]byte, size), Delay: delay, MaxAttempts: 25}
	}
	return all
}

// changes returns changes of claimed messages.
func changes(records []driver.Record) []driver.Change {
	all := make([]driver.Change, len(records))
	for i, r := range records {
		all[i] = driver.Change{ID: r.ID, Token: r.Token}
	}
	return all
}

// calling returns a call that may take effect for an hour on the clock of this process.
func calling(caller string, seq uint64) driver.Call {
	return driver.Call{Caller: caller, Seq: seq, NotAfter: driver.InstantOf(time.Now()).Add(time.Hour)}
}

// put stores messages, and fails the test unless each is new.
func put(t testing.TB, b driver.Backend, items []driver.PutItem) {
	t.Helper()
	statuses, err := b.Put(t.Context(), driver.Put{Items: items})
	require.NoError(t, err)
	for i, s := range statuses {
		require.Equal(t, driver.StatusDone, s, items[i].ID)
	}
}

// claim claims up to n messages that are due.
func claim(t testing.TB, b driver.Backend, n int) []driver.Record {
	t.Helper()
	c, err := b.Claim(t.Context(), driver.Claim{Horizon: time.Second, Max: n, MaxBytes: 1 << 28, Visibility: time.Hour})
	require.NoError(t, err)
	return c.Records
}

// apply makes a transition, and fails the test unless it succeeds for each message.
func apply(t testing.TB, b driver.Backend, op driver.Op, changes ...driver.Change) {
	t.Helper()
	outcomes, err := b.Apply(t.Context(), driver.Batch{Op: op, Visibility: time.Hour, Changes: changes})
	require.NoError(t, err)
	for i, o := range outcomes {
		require.Equal(t, driver.StatusDone, o.Status, changes[i].ID)
	}
}

// miniFixture returns a store on a simulated server. Its clock stands still unless the test
// advances it.
func miniFixture(t testing.TB) storetest.Fixture {
	m := simulated(t)
	store := newStore(t, newClient(t, m.Addr()), redisstore.Options{})
	f := storetest.Fixture{
		Store:  store,
		Remote: true,
		Reopen: func(t testing.TB) driver.Store {
			_ = store.Close()
			return newStore(t, newClient(t, m.Addr()), redisstore.Options{})
		},
	}
	if strings.Contains(t.Name(), "/Model/") {
		return f // with a running clock these are much faster
	}
	var mu sync.Mutex
	now := time.Now()
	m.SetTime(now)
	f.Advance = func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
		m.SetTime(now)
	}
	return f
}

// permit gives a user of servers the permissions that the package comment lists for everything but
// hints, and the permissions of rules.
func permit(t *testing.T, servers []*redistest.Server, rules ...any) {
	t.Helper()
	args := append([]any{
		"acl", "setuser", "queue", "reset", "on", ">secret", "~tw:*", "+@hash", "+@sortedset", "+@connection", "+cluster",
		"+type", "+time", "+exists", "+eval", "+evalsha", "+info", "+config|get", "+wait", "+asking",
	}, rules...)
	for _, s := range servers {
		require.NoError(t, s.Client(t).Do(t.Context(), args...).Err())
	}
}

// TestMain raises the number of parallel tests above two, because most tests wait for servers, for
// leases to end, or for timeouts.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", strconv.Itoa(max(6, runtime.GOMAXPROCS(0)))); err != nil { // -parallel overrides it
		panic(err)
	}
	debug.SetGCPercent(400) // the simulated server allocates a Lua state for each script
	os.Exit(m.Run())
}

var prefixes atomic.Int64

// fixtureOn returns a store on a real server, with a prefix of its own.
func fixtureOn(t testing.TB, client redis.UniversalClient) storetest.Fixture {
	o := redisstore.Options{Prefix: fmt.Sprintf("test%d", prefixes.Add(1))}
	store := newStore(t, client, o)
	return storetest.Fixture{
		Store:  store,
		Remote: true,
		Reopen: func(t testing.TB) driver.Store {
			_ = store.Close()
			return newStore(t, client, o)
		},
	}
}
