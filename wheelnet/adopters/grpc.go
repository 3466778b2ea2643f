package adopters

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/timingwheel-go/timingwheel"
)

// GRPCIdleListener returns a listener that closes each accepted connection over which no byte
// arrives for the timeout. After a stall of the process, bytes may wait in the socket although the
// timeout has passed, so gRPC has another quarter of the timeout to read them. GRPCIdleListener
// panics if timeout is not positive. The clients must send bytes more often than that: requests, or
// the pings of keepalive.ClientParameters with PermitWithoutStream. The server accepts these pings
// only with a keepalive.EnforcementPolicy.
//
// In most programs the options of gRPC are the better choice. MaxConnectionIdle of
// keepalive.ServerParameters closes connections without calls, and lets calls complete. Time and
// Timeout ping silent clients. The listener is for a server that must not send pings.
//
// Calls that are in flight on a closed connection fail with code Unavailable. gRPC sets no
// TCP_USER_TIMEOUT and pools no read buffers, because no connection is a *net.TCPConn.
func GRPCIdleListener(l net.Listener, tw *timingwheel.TimingWheel, timeout time.Duration) net.Listener {
	if timeout <= 0 {
		panic(fmt.Sprintf("adopters: GRPCIdleListener: timeout is %v; it must be positive", timeout))
	}
	return &grpcIdleListener{l, tw, timeout}
}

type grpcIdleListener struct {
	net.Listener
	wheel   *timingwheel.TimingWheel
	timeout time.Duration
}

func (l *grpcIdleListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &grpcIdleConn{Conn: conn, timeout: l.timeout}
	c.last.InitStopped(l.wheel, func() { _ = conn.Close() })
	c.idle.Init(l.wheel, l.timeout, func() { c.last.Reset(l.timeout / 4) })
	return c, nil
}

type grpcIdleConn struct {
	net.Conn
	timeout    time.Duration
	idle, last timingwheel.FuncTimer // while idle is armed, last is not
	closed     atomic.Bool
}

func (c *grpcIdleConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.idle.Touch() {
		c.stop()
		if c.idle.Reset(c.timeout); c.closed.Load() {
			c.stop() // Close was called meanwhile
		}
	}
	return n, err
}

func (c *grpcIdleConn) stop() {
	_ = c.idle.StopWait(context.Background()) // its function may be about to arm last
	c.last.Stop()
}

func (c *grpcIdleConn) Close() error {
	c.closed.Store(true)
	c.stop()
	return c.Conn.Close()
}

// GRPCTimeout returns an interceptor that limits each unary call by a client. A call that has an
// earlier deadline keeps it.
func GRPCTimeout(tw *timingwheel.TimingWheel, timeout time.Duration) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		ctx, cancel := tw.WithTimeout(ctx, timeout)
		defer cancel()
		return invoke(ctx, method, request, reply, conn, options...)
	}
}
