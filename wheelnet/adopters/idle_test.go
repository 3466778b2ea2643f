package adopters

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

// idleServer is an echo server of gnet or netpoll that closes idle connections. The tests in this
// file run for both.
type idleServer struct {
	wheel   *timingwheel.TimingWheel
	timeout time.Duration

	// start sets these.
	address    net.Addr
	lastChance time.Duration // how long after the timeout the server closes a connection
}

// newManualWheel returns a Manual wheel and its current time.
func newManualWheel(t *testing.T) (*timingwheel.TimingWheel, time.Time) {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	return tw, tw.Now()
}

// dialEcho returns a connection that is closed at the end of the test.
func dialEcho(t testing.TB, address net.Addr) net.Conn {
	c, err := net.Dial(address.Network(), address.String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// echo sends a byte and waits until it comes back.
func echo(c net.Conn) error {
	b := []byte{1}
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err := io.ReadFull(c, b)
	return err
}

// requireClosed waits until the server has closed the connection.
func requireClosed(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(never)))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

// requireLen waits until n timers are on the wheel.
func requireLen(t *testing.T, tw *timingwheel.TimingWheel, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return tw.Len() == n }, never, time.Millisecond)
}

// testSilentIsCut checks that a silent connection is closed after its timeout and not a tick
// earlier, and that a live connection stays open. The wheel is Manual. The live connection sends
// two messages each time, because the server answers the second one only after it has processed
// the first.
func testSilentIsCut(t *testing.T, start func(t *testing.T, s *idleServer)) {
	t.Parallel()
	const timeout = 10 * time.Second
	tw, now := newManualWheel(t)
	s := &idleServer{wheel: tw, timeout: timeout}
	start(t, s)
	silent, live := dialEcho(t, s.address), dialEcho(t, s.address)
	send := func() {
		require.NoError(t, echo(live))
		require.NoError(t, echo(live))
	}
	requireLen(t, tw, 2)

	tw.Advance(now.Add(timeout / 2))
	send()
	tw.Advance(now.Add(timeout - tick))
	require.Equal(t, 2, tw.Len())
	send()
	tw.Advance(now.Add(timeout))
	tw.Advance(now.Add(timeout + s.lastChance))
	requireClosed(t, silent)
	send()
	requireLen(t, tw, 1)
	for range 10 {
		tw.Advance(tw.Now().Add(timeout - tick))
		send()
	}

	require.NoError(t, live.Close())
	requireLen(t, tw, 0)
}

// testNeverEarly checks that connections that go silent are closed, and not before the timeout has
// passed since the last byte that the server answered.
func testNeverEarly(t *testing.T, start func(t *testing.T, s *idleServer)) {
	t.Parallel()
	s := &idleServer{wheel: newWheel(t), timeout: 50 * time.Millisecond}
	start(t, s)
	var clients sync.WaitGroup
	for i := range 50 {
		last := time.Now()
		c := dialEcho(t, s.address)
		clients.Go(func() {
			for range i % 10 {
				time.Sleep(time.Duration(i) * time.Millisecond)
				sent := time.Now()
				if echo(c) != nil { // the server has cut it, because this goroutine did not run in time
					break
				}
				last = sent
			}
			assert.NoError(t, c.SetReadDeadline(time.Now().Add(never)))
			_, err := c.Read(make([]byte, 1))
			assert.Error(t, err)
			assert.NotErrorIs(t, err, os.ErrDeadlineExceeded)
			assert.GreaterOrEqual(t, time.Since(last), s.timeout)
		})
	}
	clients.Wait()
	requireLen(t, s.wheel, 0)
}

// testCloseRacesWithTimeout checks that no timer is left if clients close their connections at
// about the time of the timeout.
func testCloseRacesWithTimeout(t *testing.T, start func(t *testing.T, s *idleServer)) {
	s := &idleServer{wheel: newWheel(t), timeout: 3 * time.Millisecond}
	start(t, s)
	for range 30 {
		var clients sync.WaitGroup
		for i := range 20 {
			c := dialEcho(t, s.address)
			clients.Go(func() {
				_ = echo(c) // the server may have closed it
				time.Sleep(s.timeout + time.Duration(i-10)*200*time.Microsecond)
				assert.NoError(t, c.Close())
			})
		}
		clients.Wait()
	}
	requireLen(t, s.wheel, 0)
}

// testShutdown checks that a server with open connections leaves no timer when it stops.
func testShutdown(t *testing.T, start func(t *testing.T, s *idleServer)) {
	t.Parallel()
	s := &idleServer{wheel: newWheel(t), timeout: time.Hour}
	t.Run("server", func(server *testing.T) {
		start(server, s)
		for range 3 {
			require.NoError(server, echo(dialEcho(t, s.address)))
		}
		requireLen(server, s.wheel, 3)
	})
	requireLen(t, s.wheel, 0)
}

// benchEcho sends b.N messages over 64 connections. It reports the CPU time of the server and
// the clients for each message.
func benchEcho(b *testing.B, address net.Addr) {
	const conns = 64
	var left atomic.Int64
	left.Store(int64(b.N))
	clients := make([]net.Conn, conns)
	for i := range clients {
		clients[i] = dialEcho(b, address)
		require.NoError(b, echo(clients[i]))
	}
	before := processorTime()
	b.ResetTimer()
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if !assert.NoError(b, echo(c)) {
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(processorTime()-before)/float64(b.N), "cpu-ns/op")
}
