package adopters

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/cloudwego/netpoll"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// netpollEcho is the onRequest of an echo server.
func netpollEcho(_ context.Context, c netpoll.Connection) error {
	message, err := c.Reader().Next(c.Reader().Len())
	if err == nil {
		_, err = c.Writer().WriteBinary(message)
	}
	if err == nil {
		err = c.Writer().Flush()
	}
	if err == nil {
		err = c.Reader().Release()
	}
	if err != nil {
		return errors.Join(err, c.Close())
	}
	return nil
}

// runNetpoll runs a server until the end of the test, and returns its address.
func runNetpoll(t testing.TB, loop netpoll.EventLoop) net.Addr {
	l, err := netpoll.CreateListener("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- loop.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), never)
		defer cancel()
		require.NoError(t, loop.Shutdown(ctx))
		require.NoError(t, <-served)
	})
	return l.Addr()
}

func startNetpoll(t *testing.T, s *idleServer) {
	loop, err := NewNetpollLoop(s.wheel, s.timeout, nil, netpollEcho)
	require.NoError(t, err)
	s.address, s.lastChance = runNetpoll(t, loop), s.timeout/4
}

func TestNetpollCutsSilentConnections(t *testing.T)   { testSilentIsCut(t, startNetpoll) }
func TestNetpollCutsNoConnectionEarly(t *testing.T)   { testNeverEarly(t, startNetpoll) }
func TestNetpollCloseRacesWithTimeout(t *testing.T)   { testCloseRacesWithTimeout(t, startNetpoll) }
func TestNetpollLeavesNoTimerAtShutdown(t *testing.T) { testShutdown(t, startNetpoll) }

// While a request is handled, the connection is not idle. Afterwards it has the whole timeout.
func TestNetpollCutsNoConnectionDuringRequest(t *testing.T) {
	const timeout = 10 * time.Second
	tw, now := newManualWheel(t)
	requests := make(chan chan struct{})
	loop, err := NewNetpollLoop(tw, timeout, nil, func(ctx context.Context, c netpoll.Connection) error {
		released := make(chan struct{})
		requests <- released
		<-released
		return netpollEcho(ctx, c)
	})
	require.NoError(t, err)
	c := dialEcho(t, runNetpoll(t, loop))
	echoed := make(chan error)
	go func() { echoed <- echo(c) }()
	released := <-requests
	require.Equal(t, 1, tw.Advance(now.Add(timeout)))
	require.Equal(t, 1, tw.Advance(now.Add(3*timeout)), "the second timer, which fires during the request too")
	close(released)
	require.NoError(t, <-echoed)
	requireLen(t, tw, 1)
	require.Zero(t, tw.Advance(now.Add(4*timeout-tick)))
	require.Equal(t, 1, tw.Advance(now.Add(4*timeout)))
	require.Equal(t, 1, tw.Advance(now.Add(4*timeout+timeout/4)))
	requireClosed(t, c)
}

// If expire runs late, it does not close a connection that has served a request since the timer
// fired. A request that waits in the socket when the timer fires is served, and the timeout begins
// again. After expire has closed the connection, no request is served.
func TestNetpollLateExpireCutsOnlySilentConnections(t *testing.T) {
	const timeout = 10 * time.Second
	tw, now := newManualWheel(t)
	var served int
	var idle *netpollIdle
	connect, request := withIdleTimeout(tw, timeout, nil, func(context.Context, netpoll.Connection) error {
		served++
		idle.expire() // as if the timer had fired before the request
		return nil
	})
	conn := new(fakeNetpollConn)
	ctx := connect(context.Background(), conn)
	idle = ctx.Value(netpollIdleKey{}).(*netpollIdle)
	for range 3 {
		require.NoError(t, request(ctx, conn))
		idle.expire()
	}
	require.Zero(t, conn.closed)
	require.Equal(t, 1, tw.Advance(now.Add(timeout)))
	require.NoError(t, request(ctx, conn))
	require.Equal(t, 4, served)
	require.Zero(t, tw.Advance(now.Add(2*timeout-tick)))
	require.Equal(t, 1, tw.Advance(now.Add(2*timeout)))
	require.Zero(t, tw.Advance(now.Add(2*timeout+timeout/4-tick)))
	require.Zero(t, conn.closed)
	require.Equal(t, 1, tw.Advance(now.Add(2*timeout+timeout/4)))
	require.Equal(t, 1, conn.closed)
	require.NoError(t, request(ctx, conn))
	require.Equal(t, 2, conn.closed)
	require.Equal(t, 4, served)
	require.Zero(t, tw.Len())
}

// The context of onConnect reaches onRequest, and the options reach netpoll.
func TestNetpollLoopPassesContextAndOptionsOn(t *testing.T) {
	type key struct{}
	connect := func(ctx context.Context, _ netpoll.Connection) context.Context {
		return context.WithValue(ctx, key{}, "value")
	}
	failed := make(chan error, 1)
	request := func(ctx context.Context, c netpoll.Connection) error {
		assert.Equal(t, "value", ctx.Value(key{}))
		_, err := c.Reader().Next(2) // the client sends 1
		failed <- err
		return c.Close()
	}
	tw := newWheel(t)
	loop, err := NewNetpollLoop(tw, time.Hour, connect, request, netpoll.WithReadTimeout(time.Millisecond))
	require.NoError(t, err)
	c := dialEcho(t, runNetpoll(t, loop))
	_, err = c.Write([]byte{1})
	require.NoError(t, err)
	require.ErrorIs(t, <-failed, netpoll.ErrReadTimeout)
	requireClosed(t, c)
	requireLen(t, tw, 0)
}

func TestNetpollLoopRefusesBadArguments(t *testing.T) {
	tw := newWheel(t)
	_, err := NewNetpollLoop(tw, -time.Second, nil, netpollEcho)
	require.EqualError(t, err, "adopters: NewNetpollLoop: timeout is -1s; it must be positive")
	_, err = NewNetpollLoop(nil, time.Second, nil, netpollEcho)
	require.ErrorContains(t, err, "tw or onRequest is nil")
	_, err = NewNetpollLoop(tw, time.Second, nil, nil)
	require.ErrorContains(t, err, "tw or onRequest is nil")
}

// netpollImpl is one way to close idle connections after a minute.
type netpollImpl struct {
	name    string
	connect netpoll.OnConnect
	request netpoll.OnRequest
	options []netpoll.Option
}

// netpollImpls returns the implementations that work with any onRequest:
//
//	none       no timeout
//	wheel      NewNetpollLoop
//	afterfunc  a time.AfterFunc timer for each connection, which is reset after each request
func netpollImpls(b *testing.B, onRequest netpoll.OnRequest) []netpollImpl {
	connect, request := withIdleTimeout(newWheel(b), time.Minute, nil, onRequest)
	resetting := func(ctx context.Context, c netpoll.Connection) error {
		err := onRequest(ctx, c)
		ctx.Value(afterFuncKey{}).(*time.Timer).Reset(time.Minute)
		return err
	}
	return []netpollImpl{
		{name: "none", connect: connectNothing, request: onRequest},
		{name: "wheel", connect: connect, request: request},
		{name: "afterfunc", connect: connectAfterFunc, request: resetting},
	}
}

func connectNothing(ctx context.Context, _ netpoll.Connection) context.Context { return ctx }

type afterFuncKey struct{}

func connectAfterFunc(ctx context.Context, c netpoll.Connection) context.Context {
	t := time.AfterFunc(time.Minute, func() { _ = c.Close() })
	_ = c.AddCloseCallback(func(netpoll.Connection) error { t.Stop(); return nil })
	return context.WithValue(ctx, afterFuncKey{}, t)
}

// BenchmarkNetpollEcho sends a message of one byte over loopback and waits for the echo. It adds
// two options of netpoll:
//
//	readtimeout  WithReadTimeout, with an onRequest that waits for the next request itself
//	keepalive    WithIdleTimeout, which sets TCP keep-alive and closes no silent connection
func BenchmarkNetpollEcho(b *testing.B) {
	impls := append(netpollImpls(b, netpollEcho), netpollImpl{
		name: "readtimeout", connect: connectNothing, request: requestsInTurn,
		options: []netpoll.Option{netpoll.WithReadTimeout(time.Minute)},
	}, netpollImpl{
		name: "keepalive", connect: connectNothing, request: netpollEcho,
		options: []netpoll.Option{netpoll.WithIdleTimeout(time.Minute)},
	})
	for _, impl := range impls {
		b.Run("impl="+impl.name, func(b *testing.B) {
			options := append(impl.options, netpoll.WithOnConnect(impl.connect))
			loop, err := netpoll.NewEventLoop(impl.request, options...)
			require.NoError(b, err)
			benchEcho(b, runNetpoll(b, loop))
		})
	}
}

// requestsInTurn serves requests one after the other, until the connection is closed or the read
// timeout passes.
func requestsInTurn(ctx context.Context, c netpoll.Connection) error {
	for {
		if _, err := c.Reader().Peek(1); err != nil {
			return errors.Join(err, c.Close())
		}
		if err := netpollEcho(ctx, c); err != nil {
			return err
		}
	}
}

// BenchmarkNetpollRequest calls onRequest without a network, for a random one of 100,000
// connections.
func BenchmarkNetpollRequest(b *testing.B) {
	nothing := func(context.Context, netpoll.Connection) error { return nil }
	for _, impl := range netpollImpls(b, nothing) {
		b.Run("impl="+impl.name, func(b *testing.B) {
			conns := make([]fakeNetpollConn, 100_000)
			contexts := make([]context.Context, len(conns))
			for i := range conns {
				contexts[i] = impl.connect(context.Background(), &conns[i])
			}
			for b.Loop() {
				i := rand.IntN(len(conns))
				_ = impl.request(contexts[i], &conns[i])
			}
			for i := range conns {
				if conns[i].onClose != nil {
					require.NoError(b, conns[i].onClose(&conns[i]))
				}
			}
		})
	}
}

// fakeNetpollConn stores its close callback and counts the calls to Close.
type fakeNetpollConn struct {
	netpoll.Connection
	onClose netpoll.CloseCallback
	closed  int
}

func (c *fakeNetpollConn) Close() error { c.closed++; return nil }

func (c *fakeNetpollConn) AddCloseCallback(f netpoll.CloseCallback) error {
	c.onClose = f
	return nil
}
