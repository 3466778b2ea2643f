package adopters

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"golang.org/x/net/http2"
)

// In fake time, the listener cuts a client that sends no bytes, exactly after the timeout and a
// quarter of it. A client that sends pings keeps its connection.
func TestGRPCIdleListenerCutsOnlySilentClients(t *testing.T) {
	t.Parallel()
	const pings, timeout = 10 * time.Second, 25 * time.Second
	cut := timeout + timeout/4
	synctest.Test(t, func(t *testing.T) {
		tw := newWheel(t)
		inner := bufconn.Listen(1 << 16)
		serveGRPC(t, newTransport(t, "net"), GRPCIdleListener(inner, tw, timeout),
			grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pings, PermitWithoutStream: true}))

		dials := 0
		client := newGRPCClient(t, func(context.Context, string) (net.Conn, error) {
			if dials++; dials > 1 {
				return nil, net.ErrClosed
			}
			return inner.Dial()
		}, "peer", grpc.WithIdleTimeout(0), // otherwise the client closes the connection after 30 minutes
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pings, Timeout: time.Second, PermitWithoutStream: true}))
		check := func() error {
			_, err := client.Check(t.Context(), new(healthpb.HealthCheckRequest))
			return err
		}
		require.NoError(t, check())
		require.Equal(t, 1, tw.Len())

		silent, err := inner.Dial()
		require.NoError(t, err)
		start := time.Now()
		silentInHTTP2(t, silent, http2.ClientPreface)
		assert.GreaterOrEqual(t, time.Since(start), cut)
		assert.LessOrEqual(t, time.Since(start), cut+tick)
		require.NoError(t, silent.Close())

		time.Sleep(24 * time.Hour)
		require.NoError(t, check(), "a client that sends pings was cut")
		require.Equal(t, 1, tw.Len())
	})
}

// When the process runs again after a stall, the timeout has passed and bytes wait in the socket.
// The server reads them, and the timeout begins again.
func TestGRPCIdleListenerKeepsConnectionWhoseBytesWait(t *testing.T) {
	t.Parallel()
	const timeout = 10 * time.Second
	tw, now := newManualWheel(t)
	inner := listen(t)
	client := dialEcho(t, inner.Addr())
	server, err := GRPCIdleListener(inner, tw, timeout).Accept()
	require.NoError(t, err)
	defer server.Close()
	buf := make([]byte, 10)
	for stall := range time.Duration(3) {
		_, err = client.Write([]byte{1})
		require.NoError(t, err)
		require.Equal(t, 1, tw.Advance(now.Add((stall+1)*timeout)))
		n, err := server.Read(buf)
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	require.Zero(t, tw.Advance(now.Add(4*timeout-tick)))
	require.Equal(t, 1, tw.Advance(now.Add(4*timeout)))
	require.Zero(t, tw.Advance(now.Add(4*timeout+timeout/4-tick)))
	require.Equal(t, 1, tw.Advance(now.Add(4*timeout+timeout/4)))
	requireClosed(t, client)
	require.Zero(t, tw.Len())
}

func TestGRPCIdleListenerLeavesNoTimerOfClosedConnections(t *testing.T) {
	tw := newWheel(t)
	t.Run("server", func(t *testing.T) {
		l := listen(t)
		serveGRPC(t, newTransport(t, "net"), GRPCIdleListener(l, tw, never))
		client := newGRPCClient(t, newTransport(t, "net").dialGRPC, l.Addr().String())
		_, err := client.Check(t.Context(), new(healthpb.HealthCheckRequest))
		require.NoError(t, err)
		require.Equal(t, 1, tw.Len())
	})
	requireLen(t, tw, 0)
}

func TestGRPCIdleListenerRefusesTimeout(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "adopters: GRPCIdleListener: timeout is 0s; it must be positive", func() {
		GRPCIdleListener(nil, newWheel(t), 0)
	})
}

// silentHealth is a server that never answers.
type silentHealth struct {
	healthpb.UnimplementedHealthServer
}

func (silentHealth) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// In fake time, a call to a server that does not answer ends at the timeout, or at the deadline of
// the caller if that is earlier. No timer is left.
func TestGRPCTimeoutEndsCall(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	for name, test := range map[string]struct{ caller, want time.Duration }{
		"timeout":            {time.Minute, timeout},
		"deadline of caller": {time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tw := newWheel(t)
				l := bufconn.Listen(1 << 16)
				server := grpc.NewServer()
				healthpb.RegisterHealthServer(server, silentHealth{})
				go server.Serve(l)
				defer server.Stop()
				client := newGRPCClient(t, func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) },
					"peer", grpc.WithUnaryInterceptor(GRPCTimeout(tw, timeout)))
				ctx, cancel := context.WithTimeout(t.Context(), test.caller)
				defer cancel()
				start := time.Now()
				_, err := client.Check(ctx, new(healthpb.HealthCheckRequest))
				assert.Equal(t, codes.DeadlineExceeded, status.Code(err), "%v", err)
				assert.GreaterOrEqual(t, time.Since(start), test.want)
				assert.LessOrEqual(t, time.Since(start), test.want+tick)
				assert.Zero(t, tw.Len())
			})
		})
	}
}
