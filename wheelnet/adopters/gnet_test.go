package adopters

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// gnetPlain is an echo server.
type gnetPlain struct {
	gnet.BuiltinEventEngine
	booted chan gnet.Engine
}

func (s *gnetPlain) OnTick() (time.Duration, gnet.Action) { return time.Hour, gnet.None }

func (s *gnetPlain) OnBoot(engine gnet.Engine) gnet.Action {
	s.booted <- engine
	return gnet.None
}

func (s *gnetPlain) OnTraffic(c gnet.Conn) gnet.Action {
	message, _ := c.Next(-1)
	if _, err := c.Write(message); err != nil {
		return gnet.Close
	}
	return gnet.None
}

// gnetServer is an echo server with idle timeouts.
type gnetServer struct {
	gnetPlain
	*idleServer
}

type gnetSession struct{ idle GnetIdle }

func (s *gnetServer) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	session := new(gnetSession)
	c.SetContext(session)
	session.idle.Start(c, s.wheel, s.timeout)
	return nil, gnet.None
}

func (s *gnetServer) OnTraffic(c gnet.Conn) gnet.Action {
	c.Context().(*gnetSession).idle.Touch()
	return s.gnetPlain.OnTraffic(c)
}

func (s *gnetServer) OnClose(c gnet.Conn, _ error) gnet.Action {
	c.Context().(*gnetSession).idle.Stop()
	return gnet.None
}

// runGnet runs a server with one event loop until the end of the test, and returns its address.
// OnBoot of the handler sends the engine on booted.
func runGnet(
	t testing.TB, address string, handler gnet.EventHandler, booted <-chan gnet.Engine, options ...gnet.Option,
) net.Addr {
	ran := make(chan error, 1)
	go func() { ran <- gnet.Run(handler, address, append(options, gnet.WithLogger(gnetLogger))...) }()
	engine := <-booted
	fd, err := engine.Dup()
	require.NoError(t, err)
	file := os.NewFile(uintptr(fd), "listener")
	l, err := net.FileListener(file)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	require.NoError(t, l.Close()) // l is a copy
	t.Cleanup(func() {
		require.NoError(t, engine.Stop(context.Background()))
		require.NoError(t, <-ran)
	})
	return l.Addr()
}

const gnetTCP = "tcp://127.0.0.1:0"

// gnetLogger writes errors to standard error. gnet keeps the logger of its last engine as the
// default, so the logger must outlive the test.
var gnetLogger = zap.Must(zap.NewProduction(zap.IncreaseLevel(zap.ErrorLevel))).Sugar()

func startGnet(t *testing.T, s *idleServer) {
	server := &gnetServer{gnetPlain: gnetPlain{booted: make(chan gnet.Engine, 1)}, idleServer: s}
	s.address = runGnet(t, gnetTCP, server, server.booted)
}

func TestGnetCutsSilentConnections(t *testing.T)   { testSilentIsCut(t, startGnet) }
func TestGnetCutsNoConnectionEarly(t *testing.T)   { testNeverEarly(t, startGnet) }
func TestGnetCloseRacesWithTimeout(t *testing.T)   { testCloseRacesWithTimeout(t, startGnet) }
func TestGnetLeavesNoTimerAtShutdown(t *testing.T) { testShutdown(t, startGnet) }

// gnetBlocking is a server whose event loop blocks when it receives blockByte: it sends a channel
// on block and waits until the channel is closed.
type gnetBlocking struct {
	gnetServer
	block chan chan struct{}
}

const blockByte = 2

func (s *gnetBlocking) OnTraffic(c gnet.Conn) gnet.Action {
	if first, _ := c.Peek(1); first[0] == blockByte {
		released := make(chan struct{})
		s.block <- released
		<-released
	}
	return s.gnetServer.OnTraffic(c)
}

// Timeouts pass while the event loop is busy. A connection whose socket holds unread data is not
// closed. The sockets are Unix sockets, which hold the data as soon as the client's Write returns.
func TestGnetLateEventLoopCutsOnlySilentConnections(t *testing.T) {
	t.Parallel()
	const timeout = 10 * time.Second
	tw, now := newManualWheel(t)
	server := &gnetBlocking{
		gnetServer: gnetServer{
			gnetPlain:  gnetPlain{booted: make(chan gnet.Engine, 1)},
			idleServer: &idleServer{wheel: tw, timeout: timeout},
		},
		block: make(chan chan struct{}),
	}
	address := runGnet(t, "unix://"+filepath.Join(t.TempDir(), "socket"), server, server.booted)
	silent, live, blocker := dialEcho(t, address), dialEcho(t, address), dialEcho(t, address)
	requireLen(t, tw, 3)
	_, err := blocker.Write([]byte{blockByte})
	require.NoError(t, err)
	released := <-server.block
	require.Equal(t, 3, tw.Advance(now.Add(timeout)))
	_, err = live.Write([]byte{1})
	require.NoError(t, err)
	close(released)
	requireClosed(t, silent)
	for _, c := range []net.Conn{live, blocker} {
		_, err = io.ReadFull(c, make([]byte, 1))
		require.NoError(t, err)
		require.NoError(t, echo(c))
	}
	require.Equal(t, 2, tw.Len())
	require.Equal(t, 2, tw.Advance(now.Add(2*timeout)))
	requireClosed(t, live)
	requireClosed(t, blocker)
}

func TestGnetIdlePanicsOnBadTimeout(t *testing.T) {
	require.PanicsWithValue(t, "adopters: GnetIdle.Start: timeout is 0s; it must be positive", func() {
		new(GnetIdle).Start(nil, newWheel(t), 0)
	})
}

// gnetImpls runs a benchmark with echo servers that close idle connections after a minute:
//
//	none       no timeout
//	wheel      GnetIdle
//	afterfunc  a time.AfterFunc timer for each connection, which is reset on traffic
//	scan       OnTraffic stores the time, and OnTick checks all connections once a second
func gnetImpls(b *testing.B, body func(b *testing.B, handler gnet.EventHandler, booted chan gnet.Engine)) {
	booted := make(chan gnet.Engine, 1)
	plain := gnetPlain{booted: booted}
	idle := &idleServer{wheel: newWheel(b), timeout: time.Minute}
	for _, impl := range []struct {
		name    string
		handler gnet.EventHandler
	}{
		{"none", &plain},
		{"wheel", &gnetServer{gnetPlain: plain, idleServer: idle}},
		{"afterfunc", &gnetAfterFunc{plain}},
		{"scan", &gnetScan{gnetPlain: plain, conns: make(map[gnet.Conn]*atomic.Int64)}},
	} {
		b.Run("impl="+impl.name, func(b *testing.B) { body(b, impl.handler, booted) })
	}
}

type gnetAfterFunc struct{ gnetPlain }

func (s *gnetAfterFunc) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	c.SetContext(time.AfterFunc(time.Minute, func() { _ = c.Close() }))
	return nil, gnet.None
}

func (s *gnetAfterFunc) OnTraffic(c gnet.Conn) gnet.Action {
	c.Context().(*time.Timer).Reset(time.Minute)
	return s.gnetPlain.OnTraffic(c)
}

func (s *gnetAfterFunc) OnClose(c gnet.Conn, _ error) gnet.Action {
	c.Context().(*time.Timer).Stop()
	return gnet.None
}

type gnetScan struct {
	gnetPlain
	mu    sync.Mutex
	conns map[gnet.Conn]*atomic.Int64 // the time of the last traffic, ns
}

func (s *gnetScan) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	last := new(atomic.Int64)
	last.Store(time.Now().UnixNano())
	c.SetContext(last)
	s.mu.Lock()
	s.conns[c] = last
	s.mu.Unlock()
	return nil, gnet.None
}

func (s *gnetScan) OnTraffic(c gnet.Conn) gnet.Action {
	c.Context().(*atomic.Int64).Store(time.Now().UnixNano())
	return s.gnetPlain.OnTraffic(c)
}

func (s *gnetScan) OnClose(c gnet.Conn, _ error) gnet.Action {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	return gnet.None
}

func (s *gnetScan) OnTick() (time.Duration, gnet.Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := time.Now().Add(-time.Minute).UnixNano()
	for c, last := range s.conns {
		if last.Load() < limit {
			_ = c.Close()
		}
	}
	return time.Second, gnet.None
}

// BenchmarkGnetEcho sends a message of one byte over loopback and waits for the echo.
func BenchmarkGnetEcho(b *testing.B) {
	gnetImpls(b, func(b *testing.B, handler gnet.EventHandler, booted chan gnet.Engine) {
		benchEcho(b, runGnet(b, gnetTCP, handler, booted, gnet.WithTicker(true)))
	})
}

// BenchmarkGnetTraffic calls OnTraffic without a network, for a random one of 100,000 connections.
func BenchmarkGnetTraffic(b *testing.B) {
	gnetImpls(b, func(b *testing.B, handler gnet.EventHandler, _ chan gnet.Engine) {
		conns := make([]fakeGnetConn, 100_000)
		for i := range conns {
			handler.OnOpen(&conns[i])
		}
		for b.Loop() {
			handler.OnTraffic(&conns[rand.IntN(len(conns))])
		}
		for i := range conns {
			handler.OnClose(&conns[i], nil)
		}
	})
}

// fakeGnetConn receives one byte on each read and discards what is written.
type fakeGnetConn struct {
	gnet.Conn
	context any
}

var oneByte = []byte{1}

func (c *fakeGnetConn) Context() any                { return c.context }
func (c *fakeGnetConn) SetContext(context any)      { c.context = context }
func (c *fakeGnetConn) Next(int) ([]byte, error)    { return oneByte, nil }
func (c *fakeGnetConn) Write(p []byte) (int, error) { return len(p), nil }
