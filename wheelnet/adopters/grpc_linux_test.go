package adopters

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/timingwheel-go/timingwheel/wheelnet"
)

// userTimeout returns a Control that sets TCP_USER_TIMEOUT, as gRPC does for the connections that it
// knows. Accepted connections inherit the option from their listener.
func userTimeout(d time.Duration) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
		})
		if cerr != nil {
			return cerr
		}
		return err
	}
}

// requireUserTimeout checks the option of a connection.
func requireUserTimeout(t testing.TB, c net.Conn, want time.Duration) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	var got int
	cerr := raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) })
	require.NoError(t, cerr)
	require.NoError(t, err)
	require.EqualValues(t, want.Milliseconds(), got)
}

// accepting is a listener that passes on the connections that it accepts.
type accepting struct {
	net.Listener
	accepted chan net.Conn
}

func (l accepting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.accepted <- c
	}
	return c, err
}

func TestGRPCUserTimeoutIsThatOfControl(t *testing.T) {
	t.Parallel()
	tw := newTransport(t, "wheelnet").tw
	config := net.ListenConfig{Control: userTimeout(7 * time.Second)}
	inner, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := accepting{wheelnet.Listener(inner, tw), make(chan net.Conn, 1)}
	serveGRPC(t, transport{}, l, grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: time.Second}))
	dialed := make(chan net.Conn, 1)
	client := newGRPCClient(t, func(ctx context.Context, address string) (net.Conn, error) {
		d := wheelnet.Dialer{Wheel: tw, Dialer: net.Dialer{Control: userTimeout(5 * time.Second)}}
		c, err := d.DialContext(ctx, "tcp", address)
		dialed <- c
		return c, err
	}, l.Addr().String(), grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Minute, Timeout: time.Second}))
	_, err = client.Check(t.Context(), new(healthpb.HealthCheckRequest))
	assert.NoError(t, err)
	requireUserTimeout(t, receive(t, l.accepted), 7*time.Second)
	requireUserTimeout(t, receive(t, dialed), 5*time.Second)
}
