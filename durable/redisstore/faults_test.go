package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// The server is made to forget its scripts before each call.
func TestCallsSucceedWhileScriptsAreFlushed(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	flush := func() { require.NoError(t, client.ScriptFlush(t.Context()).Err()) }
	for i := range 3 {
		flush()
		put(t, q, items(fmt.Sprint(i), 10, 10, 0))
		flush()
		records := claim(t, q, 100)
		require.Len(t, records, 10)
		for _, op := range []driver.Op{driver.OpExtend, driver.OpBegin, driver.OpAck} {
			flush()
			apply(t, q, op, changes(records)...)
		}
	}
	waiting := openQueue(t, client, redisstore.Options{Wait: 1, WaitTimeout: time.Millisecond})
	flush()
	_, err := waiting.Put(t.Context(), driver.Put{Items: items("w", 1, 1, 0)})
	require.ErrorIs(t, err, driver.ErrUnavailable, "there are no replicas")
	require.Len(t, claim(t, q, 100), 1, "but the message is stored")
}

// A server answers with errors. Each error has the expected kind.
func TestErrorRepliesHaveTheirKinds(t *testing.T) {
	t.Parallel()
	for reply, kind := range map[string]error{
		"OOM command not allowed when used memory > 'maxmemory'.":                                                    driver.ErrFull,
		"ERR Error running script (call to f_12): @user_script:1: -OOM command not allowed when used memory":         driver.ErrFull,
		"LOADING Redis is loading the dataset in memory":                                                             driver.ErrUnavailable,
		"READONLY You can't write against a read only replica.":                                                      driver.ErrUnavailable,
		"ERR Error running script (call to f_12): @user_script:1: -READONLY You can't write against a read only one": driver.ErrUnavailable,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":                           driver.ErrUnavailable,
		"CLUSTERDOWN The cluster is down":                                                                            driver.ErrUnavailable,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                                    driver.ErrUnavailable,
		"MOVED 3999 127.0.0.1:1":                                            driver.ErrUnavailable,
		"NOREPLICAS Not enough good replicas to write.":                     driver.ErrUnavailable,
		"MISCONF Redis is configured to save RDB snapshots":                 driver.ErrUnavailable,
		"BUSY Redis is busy running a script.":                              driver.ErrUnavailable,
		"ERR max number of clients reached":                                 driver.ErrUnavailable,
		"ERR WAIT cannot be used with replica instances.":                   driver.ErrUnavailable,
		"WRONGTYPE Operation against a key holding the wrong kind of value": driver.ErrVersion,
		"NOPERM this user has no permissions":                               nil,
		"ERR something else":                                                nil,
	} {
		m := simulated(t)
		client := redis.NewClient(&redis.Options{Addr: m.Addr(), MaxRetries: -1})
		t.Cleanup(func() { _ = client.Close() })
		q := openQueue(t, client, redisstore.Options{})
		m.SetError(reply)
		_, err := q.Count(t.Context(), 0)
		require.Error(t, err, reply)
		for _, k := range []error{driver.ErrFull, driver.ErrUnavailable, driver.ErrVersion, driver.ErrClosed, driver.ErrInvalid} {
			assert.Equal(t, errors.Is(kind, k), errors.Is(err, k), "%s: %v", reply, k) //nolint:testifylint // kind may be nil
		}
		assert.Contains(t, err.Error(), "orders", "the error names the queue")
	}
}

func TestCallsWithoutAServerReturnErrUnavailable(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{AppendOnly: true, AppendFsync: "always"})
	client := newClient(t, server.Addr())
	q := openQueue(t, client, redisstore.Options{})
	put(t, q, items("a", 100, 10, 0))
	impatient := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: 200 * time.Millisecond, MaxRetries: -1})
	t.Cleanup(func() { _ = impatient.Close() })
	hurried := openInTime(t, impatient)

	server.Pause() // the server accepts connections and does not answer
	_, err := hurried.Count(t.Context(), 0)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = hurried.Count(ctx, 0)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	server.Continue()

	server.Kill()
	_, err = hurried.Put(t.Context(), driver.Put{Items: items("b", 1, 1, 0)})
	require.ErrorIs(t, err, driver.ErrUnavailable)
	_, err = newStore(t, impatient, redisstore.Options{}).Open(t.Context(), config())
	require.ErrorIs(t, err, driver.ErrUnavailable)
	server.Restart()
	require.Eventually(t, func() bool {
		c, err := q.Count(t.Context(), 0)
		return err == nil && c.Scheduled == 100
	}, time.Minute, 20*time.Millisecond, "acknowledged messages survive the restart")

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = q.Count(canceled, 0)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, driver.ErrUnavailable)
	require.NoError(t, client.Close())
	_, err = q.Count(t.Context(), 0)
	require.ErrorIs(t, err, driver.ErrClosed, "of the client")
}

// openInTime opens a queue, several times if the server is slower than the client waits.
func openInTime(t *testing.T, impatient redis.UniversalClient) (q driver.Backend) {
	t.Helper()
	store := newStore(t, impatient, redisstore.Options{})
	require.Eventually(t, func() bool {
		var err error
		q, err = store.Open(t.Context(), config())
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	return q
}

// lossy is a connection that loses replies to scripts.
type lossy struct {
	net.Conn
	lose    *atomic.Int32
	pending bool
}

func (c *lossy) Write(b []byte) (int, error) {
	c.pending = strings.Contains(string(b), "evalsha")
	return c.Conn.Write(b)
}

func (c *lossy) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b) // the server has run the script
	if c.pending && err == nil && c.lose.Add(-1) >= 0 {
		_ = c.Conn.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// lossyClient returns a client of m that loses the next replies to scripts, as many as lose says.
func lossyClient(t *testing.T, m *miniredis.Miniredis, lose *atomic.Int32) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: m.Addr(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &lossy{Conn: c, lose: lose}, err
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Replies to calls that have removed a message are lost. The client must not repeat such a call by
// itself: the second answer would be that there is no such message.
func TestClientDoesNotRepeatRemovals(t *testing.T) {
	t.Parallel()
	var lose atomic.Int32
	client := lossyClient(t, simulated(t), &lose)
	q := openQueue(t, client, redisstore.Options{})
	put(t, q, items("a", 6, 1, 0))
	dead := changes(claim(t, q, 4))
	apply(t, q, driver.OpBegin, dead...)
	apply(t, q, driver.OpBury, dead[:2]...)
	for op, change := range map[driver.Op][]driver.Change{
		driver.OpPurge: dead[:2], driver.OpAck: dead[2:],
		driver.OpCancel: {{ID: items("a", 6, 1, 0)[4].ID}, {ID: items("a", 6, 1, 0)[5].ID}},
	} {
		apply(t, q, op, change[0]) // the script is known from here on
		lose.Store(1)
		_, err := q.Apply(t.Context(), driver.Batch{Op: op, Changes: change[1:]})
		require.ErrorIs(t, err, driver.ErrUnavailable, "transition %d", op)
	}
}

// The reply to a Cancel that has taken effect is lost.
func TestCancelIsExactIfItsReplyWasLost(t *testing.T) {
	t.Parallel()
	var lose atomic.Int32
	client := lossyClient(t, simulated(t), &lose)
	q, err := durable.Open(t.Context(), newStore(t, client, redisstore.Options{}), durable.Options{Queue: "orders", Partitions: 1})
	require.NoError(t, err)
	t.Cleanup(q.Close)
	for _, id := range []string{"a", "b"} {
		_, err = q.Enqueue(t.Context(), durable.Message{ID: id, Delay: time.Hour})
		require.NoError(t, err)
	}
	result, err := q.Cancel(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, durable.ResultCancelled, result)
	lose.Store(1)
	result, err = q.Cancel(t.Context(), "b")
	require.NoError(t, err)
	require.Equal(t, durable.ResultCancelled, result, "NotFound would be wrong")
}

// Replies to calls that have taken effect are lost. The client or the caller repeats the calls.
func TestRepeatedCallsHaveTheSameResult(t *testing.T) {
	t.Parallel()
	var lose atomic.Int32
	client := lossyClient(t, simulated(t), &lose)
	q := openQueue(t, client, redisstore.Options{})
	put(t, q, items("known", 1, 1, time.Hour)) // the script is known from here on

	lose.Store(1)
	call := driver.Put{Call: calling("p", 1), Items: items("a", 2, 10, 0)}
	_, err := q.Put(t.Context(), call)
	require.ErrorIs(t, err, driver.ErrUnavailable, "the client must not repeat the call")
	statuses, err := q.Put(t.Context(), call)
	require.NoError(t, err)
	require.Equal(t, []driver.Status{driver.StatusDone, driver.StatusDone}, statuses)

	lose.Store(1)
	_, err = q.Put(t.Context(), driver.Put{Items: items("b", 1, 10, 0)})
	require.ErrorIs(t, err, driver.ErrUnavailable, "nor a call without a caller")
	records := claim(t, q, 10)
	require.Len(t, records, 3, "each message was stored once")
	apply(t, q, driver.OpBegin, changes(records)...)
	lose.Store(1)
	apply(t, q, driver.OpBegin, changes(records)...)
	lose.Store(1)
	_, err = q.Apply(t.Context(), driver.Batch{Op: driver.OpRetry, Changes: changes(records)})
	require.ErrorIs(t, err, driver.ErrUnavailable, "the caller must know that there are two copies")
	apply(t, q, driver.OpRetry, changes(records)...)
	for _, r := range claim(t, q, 10) {
		assert.Equal(t, 1, r.Attempts, "one attempt, however many copies of the call there were")
	}
}

// The last token is lost, as in a failover. Tokens still rise.
func TestTokensRiseIfTheLastWasLost(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	put(t, q, items("a", 100, 10, 0))
	var last uint64
	for range 10 {
		for _, r := range claim(t, q, 10) {
			require.Greater(t, r.Token, last)
			last = r.Token
		}
		require.NoError(t, client.HDel(t.Context(), "tw:{orders:0}:c", "token").Err())
	}
	require.Less(t, last, uint64(1)<<53)
}

// Four new producers a second enqueue one message each and end. The store remembers only the
// producers whose calls may still be repeated.
func TestProducersAreForgotten(t *testing.T) {
	t.Parallel()
	m := simulated(t)
	now := time.Now()
	client := newClient(t, m.Addr())
	store := newStore(t, client, redisstore.Options{})
	remembered := func() (n int) {
		fields, err := m.HKeys("tw:{orders:0}:c")
		require.NoError(t, err)
		for _, f := range fields {
			if strings.HasPrefix(f, "p:") {
				n++
			}
		}
		return n
	}
	const producers, pause = 60, time.Second
	most := 0
	for i := range producers {
		m.SetTime(now.Add(time.Duration(i) * pause))
		q, err := durable.Open(t.Context(), store, durable.Options{Queue: "orders", Partitions: 1, RetryFor: time.Second})
		require.NoError(t, err)
		_, err = q.Enqueue(t.Context(), durable.Message{Delay: time.Hour})
		require.NoError(t, err)
		q.Close()
		most = max(most, remembered())
	}
	live := int(10 * time.Second / pause) // the shortest time during which a copy of a call may arrive
	require.GreaterOrEqual(t, most, live)
	require.Less(t, most, 3*live, "remembered producers, of %d", producers)
	require.NotContains(t, m.Keys(), "tw:{orders:0}:p")
}
