package adopters

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newRedis starts a server. It does not reply to the command SILENT until the end of the test, and
// reads nothing more from a connection that has sent it.
func newRedis(t testing.TB) *miniredis.Miniredis {
	m := miniredis.NewMiniRedis()
	require.NoError(t, m.Start())
	end := make(chan struct{})
	require.NoError(t, m.Server().Register("SILENT", func(*server.Peer, string, []string) { <-end }))
	t.Cleanup(m.Close)
	t.Cleanup(func() { close(end) })
	return m
}

// newRedisClient returns a client that does not retry. It is closed at the end of the test.
func newRedisClient(t testing.TB, tr transport, options redis.Options) *redis.Client {
	options.MaxRetries = -1
	if options.Dialer == nil {
		options.Dialer = tr.dial
	}
	client := redis.NewClient(&options)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

func TestRedisClientEndsCommandToSilentServer(t *testing.T) {
	for _, test := range []struct {
		name    string
		options redis.Options
		wait    time.Duration // the timeout of the context
		silence func(t testing.TB) (address string)
		command func(context.Context, *redis.Client) error
	}{
		{"ReadTimeoutOfHandshake", redis.Options{ReadTimeout: timeout, WriteTimeout: never}, never,
			func(t testing.TB) string { return listen(t).Addr().String() },
			func(ctx context.Context, c *redis.Client) error { return c.Ping(ctx).Err() },
		},
		{"ReadTimeout", redis.Options{ReadTimeout: timeout, WriteTimeout: never}, never,
			func(t testing.TB) string { return newRedis(t).Addr() },
			func(ctx context.Context, c *redis.Client) error { return c.Do(ctx, "SILENT").Err() },
		},
		{"WriteTimeout", redis.Options{ReadTimeout: never, WriteTimeout: timeout}, never,
			func(t testing.TB) string { return newRedis(t).Addr() },
			func(ctx context.Context, c *redis.Client) error {
				_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
					p.Do(ctx, "SILENT")
					for value := make([]byte, 1<<24); p.Len() < 5; { // until all buffers are full
						p.Set(ctx, "key", value, 0)
					}
					return nil
				})
				return err
			},
		},
		{"context", redis.Options{ReadTimeout: never, WriteTimeout: never, ContextTimeoutEnabled: true}, timeout,
			func(t testing.TB) string { return newRedis(t).Addr() },
			func(ctx context.Context, c *redis.Client) error { return c.Do(ctx, "SILENT").Err() },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			testTransports(t, func(t *testing.T, tr transport) {
				options := test.options
				options.Addr = test.silence(t)
				client := newRedisClient(t, tr, options)
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), test.wait)
				defer cancel()
				requireTimeout(t, test.command(ctx, client), start, timeout)
			})
		})
	}
}

// once returns a dialer that fails after the first connection. A client that loses its connection
// then fails instead of reconnecting.
func once(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	var dials atomic.Int32
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials.Add(1) > 1 {
			return nil, errors.New("the connection was closed")
		}
		return dial(ctx, network, address)
	}
}

func TestRedisClientKeepsLiveConnection(t *testing.T) {
	testTransports(t, func(t *testing.T, tr transport) {
		address := newRedis(t).Addr()
		requireAlive(t, func() func() error {
			client := newRedisClient(t, tr, redis.Options{Addr: address, Dialer: once(tr.dial), ReadTimeout: timeout, WriteTimeout: timeout})
			return func() error { return client.Ping(t.Context()).Err() }
		})
	})
}

// The deadlines of the last command pass while the connection is idle. They must not cut the next
// command.
func TestRedisIdleConnectionOutlivesItsDeadlines(t *testing.T) {
	testTransports(t, func(t *testing.T, tr transport) {
		const short = 20 * time.Millisecond
		client := newRedisClient(t, tr, redis.Options{
			Addr:                  newRedis(t).Addr(),
			Dialer:                once(tr.dial),
			ReadTimeout:           never,
			WriteTimeout:          never,
			ContextTimeoutEnabled: true,
		})
		require.NoError(t, client.Ping(t.Context()).Err())
		for range 3 {
			for { // until a command succeeds within its timeout
				ctx, cancel := context.WithTimeout(t.Context(), short)
				err := client.Ping(ctx).Err()
				cancel()
				if err == nil {
					break
				}
				requireTimeout(t, err, time.Now(), 0)
				client = newRedisClient(t, tr, redis.Options{Addr: client.Options().Addr, Dialer: once(tr.dial), ContextTimeoutEnabled: true})
			}
			time.Sleep(2 * short)
			require.NoError(t, client.Ping(t.Context()).Err())
		}
	})
}

func BenchmarkRedis(b *testing.B) {
	benchTransports(b, []string{"none", "net", "wheelnet"}, func(b *testing.B, tr transport) {
		limit := tr.timeout(time.Minute)
		if limit == 0 {
			limit = -2 // -2 makes go-redis set no deadlines
		}
		client := newRedisClient(b, tr, redis.Options{Addr: newRedis(b).Addr(), ReadTimeout: limit, WriteTimeout: limit})
		require.NoError(b, client.Set(b.Context(), "key", "hello", 0).Err())
		parallel(b, func(pb *testing.PB) {
			for pb.Next() {
				if got, err := client.Get(b.Context(), "key").Result(); err != nil || got != "hello" {
					assert.Fail(b, "reply", "%q, %v", got, err)
					return
				}
			}
		})
	})
}
