package adopters

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// serveGRPC runs a server of the health service on l until the end of the test.
func serveGRPC(t testing.TB, tr transport, l net.Listener, options ...grpc.ServerOption) {
	server := grpc.NewServer(options...)
	healthpb.RegisterHealthServer(server, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- server.Serve(tr.listener(l)) }()
	t.Cleanup(func() {
		server.Stop()
		assert.NoError(t, receive(t, served))
	})
}

// newGRPCClient returns a client that dials address with dial. It is closed at the end of the test.
func newGRPCClient(t testing.TB, dial func(context.Context, string) (net.Conn, error), address string, options ...grpc.DialOption) healthpb.HealthClient {
	client, err := grpc.NewClient("passthrough:"+address, append(options,
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)...)
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return healthpb.NewHealthClient(client)
}

// dialGRPC is dial with the signature of a gRPC dialer.
func (tr transport) dialGRPC(ctx context.Context, address string) (net.Conn, error) {
	return tr.dial(ctx, "tcp", address)
}

func TestGRPCServerCutsPeerThatIsSilentInHandshake(t *testing.T) {
	for name, sent := range map[string]string{"nothing": "", "preface": http2.ClientPreface} {
		t.Run(name, func(t *testing.T) {
			testTransports(t, func(t *testing.T, tr transport) {
				l := listen(t)
				serveGRPC(t, tr, l, grpc.ConnectionTimeout(timeout))
				start := time.Now()
				c := connect(t, l.Addr().String())
				send(t, c, sent)
				requireCut(t, c, start, timeout)
			})
		})
	}
}

func TestGRPCClientGivesUpOnServerThatIsSilentInHandshake(t *testing.T) {
	testTransports(t, func(t *testing.T, tr transport) {
		client := newGRPCClient(t, tr.dialGRPC, listen(t).Addr().String(), grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1, MaxDelay: time.Second},
			MinConnectTimeout: timeout,
		}))
		start := time.Now()
		_, err := client.Check(t.Context(), new(healthpb.HealthCheckRequest))
		assert.GreaterOrEqual(t, time.Since(start), timeout, "early: %v", err)
		assert.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	})
}

// requireDeadline checks that err is the end of a stream of the health service at the deadline of
// its context. The code is Canceled if the server ended the stream first.
func requireDeadline(t testing.TB, err error) {
	t.Helper()
	require.Contains(t, []codes.Code{codes.DeadlineExceeded, codes.Canceled}, status.Code(err), "%v", err)
}

func TestGRPCCallEndsAtDeadlineOfItsContext(t *testing.T) {
	testTransports(t, func(t *testing.T, tr transport) {
		l := listen(t)
		serveGRPC(t, tr, l)
		client := newGRPCClient(t, tr.dialGRPC, l.Addr().String())
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		stream, err := client.Watch(ctx, new(healthpb.HealthCheckRequest))
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)
		_, err = stream.Recv() // the status does not change
		requireDeadline(t, err)
		assert.GreaterOrEqual(t, time.Since(start), timeout)

		_, err = client.Check(t.Context(), new(healthpb.HealthCheckRequest))
		assert.NoError(t, err, "the end of a call must not end the connection")
	})
}

func TestGRPCServerKeepsLivePeer(t *testing.T) {
	testTransports(t, func(t *testing.T, tr transport) {
		l := listen(t)
		serveGRPC(t, tr, l, grpc.ConnectionTimeout(timeout), grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: timeout}))
		requireAlive(t, func() func() error {
			dials := 0
			client := newGRPCClient(t, func(ctx context.Context, address string) (net.Conn, error) {
				if dials++; dials > 1 { // gRPC dials one connection at a time
					return nil, net.ErrClosed
				}
				return tr.dialGRPC(ctx, address)
			}, l.Addr().String())
			return func() error {
				_, err := client.Check(t.Context(), new(healthpb.HealthCheckRequest))
				return err
			}
		})
	})
}

// silentInHTTP2 writes the preface and the settings of HTTP/2 to c. Then it only reads until c is
// closed.
func silentInHTTP2(t testing.TB, c net.Conn, preface string) {
	_, err := io.WriteString(c, preface)
	assert.NoError(t, err)
	framer := http2.NewFramer(c, c)
	assert.NoError(t, framer.WriteSettings())
	assert.NoError(t, framer.WriteSettingsAck())
	_, err = io.Copy(io.Discard, c)
	assert.NoError(t, err)
}

// In fake time, gRPC's keepalive cuts a silent peer at the same instant with package net and with
// wheelnet. It does not cut a live peer.
func TestGRPCKeepaliveCutsOnlySilentPeer(t *testing.T) {
	t.Parallel()
	const pings, answer = 10 * time.Second, time.Second // gRPC accepts no shorter interval
	server := grpc.KeepaliveParams(keepalive.ServerParameters{Time: pings, Timeout: answer})
	client := grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pings, Timeout: answer})
	for _, impl := range []string{"net", "wheelnet"} {
		t.Run("server/"+impl, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := bufconn.Listen(1 << 16)
				serveGRPC(t, newTransport(t, impl), l, server)
				start := time.Now()
				c, err := l.Dial()
				require.NoError(t, err)
				defer c.Close()
				silentInHTTP2(t, c, http2.ClientPreface)
				assert.Equal(t, pings+answer, time.Since(start))
			})
		})
		t.Run("client/"+impl, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTransport(t, impl)
				l := bufconn.Listen(1 << 16)
				defer l.Close()
				var peer sync.WaitGroup
				defer peer.Wait()
				peer.Go(func() {
					c, err := l.Accept()
					if assert.NoError(t, err) {
						silentInHTTP2(t, c, "")
						c.Close()
					}
				})
				dials := 0
				client := newGRPCClient(t, func(context.Context, string) (net.Conn, error) {
					if dials++; dials > 1 {
						return nil, net.ErrClosed
					}
					c, err := l.Dial()
					return tr.conn(c), err
				}, "peer", client)
				start := time.Now()
				_, err := client.Check(t.Context(), new(healthpb.HealthCheckRequest))
				require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
				assert.ErrorContains(t, err, "keepalive")
				assert.Equal(t, pings+answer, time.Since(start))
			})
		})
		t.Run("live/"+impl, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTransport(t, impl)
				l := bufconn.Listen(1 << 16)
				serveGRPC(t, tr, l, server, grpc.ConnectionTimeout(time.Second),
					grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pings}))
				client := newGRPCClient(t, func(context.Context, string) (net.Conn, error) {
					c, err := l.Dial()
					return tr.conn(c), err
				}, "peer", client)
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
				defer cancel()
				stream, err := client.Watch(ctx, new(healthpb.HealthCheckRequest))
				require.NoError(t, err)
				_, err = stream.Recv()
				require.NoError(t, err)
				_, err = stream.Recv() // the status does not change
				requireDeadline(t, err)
				assert.Equal(t, 24*time.Hour, time.Since(start))
			})
		})
	}
}

// There is no benchmark without deadlines, because gRPC always has a ConnectionTimeout.
func BenchmarkGRPC(b *testing.B) {
	benchTransports(b, []string{"net", "wheelnet"}, func(b *testing.B, tr transport) {
		l := listen(b)
		serveGRPC(b, tr, l)
		client := newGRPCClient(b, tr.dialGRPC, l.Addr().String())
		_, err := client.Check(b.Context(), new(healthpb.HealthCheckRequest))
		require.NoError(b, err)
		parallel(b, func(pb *testing.PB) {
			for pb.Next() {
				if _, err := client.Check(b.Context(), new(healthpb.HealthCheckRequest)); !assert.NoError(b, err) {
					return
				}
			}
		})
	})
}
