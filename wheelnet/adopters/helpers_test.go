package adopters

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/wheelnet"
)

// timeout is the timeout under test. Live peers send 20 requests in this time.
const timeout = 150 * time.Millisecond

// never is a timeout that does not pass during a test. It is also the limit of waits.
const never = time.Minute

// newWheel returns a wheel that is stopped at the end of the test.
func newWheel(t testing.TB) *timingwheel.TimingWheel {
	tw, err := timingwheel.New(timingwheel.Options{})
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	return tw
}

// transport makes connections, either of package net or of wheelnet.
type transport struct {
	impl string                   // net, wheelnet, or none, which is package net in a program without timeouts
	tw   *timingwheel.TimingWheel // nil unless impl is wheelnet
}

// newTransport returns a transport. At the end of the test it checks that no timer is left on the
// wheel.
func newTransport(t testing.TB, impl string) transport {
	tr := transport{impl: impl}
	if impl == "wheelnet" {
		tr.tw = newWheel(t)
		t.Cleanup(func() {
			require.Eventually(t, func() bool { return tr.tw.Len() == 0 }, never, time.Millisecond, "a timer is left on the wheel")
		})
	}
	return tr
}

// testTransports runs a test with package net and with wheelnet. Both must behave in the same way.
func testTransports(t *testing.T, test func(t *testing.T, tr transport)) {
	t.Helper()
	t.Parallel()
	for _, impl := range []string{"net", "wheelnet"} {
		t.Run(impl, func(t *testing.T) {
			t.Parallel()
			test(t, newTransport(t, impl))
		})
	}
}

// benchTransports runs a benchmark with each of impls.
func benchTransports(b *testing.B, impls []string, bench func(b *testing.B, tr transport)) {
	for _, impl := range impls {
		b.Run("impl="+impl, func(b *testing.B) { bench(b, newTransport(b, impl)) })
	}
}

// parallel runs the body of a benchmark in eight goroutines for each processor. It reports the
// CPU time of the process, clients included, for each operation.
func parallel(b *testing.B, body func(pb *testing.PB)) {
	b.Helper()
	b.ReportAllocs()
	b.SetParallelism(8)
	b.ResetTimer()
	before := processorTime()
	b.RunParallel(body)
	b.StopTimer()
	if used := processorTime() - before; used > 0 {
		b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op")
	}
}

// timeout returns d, or 0 if the program has no timeouts.
func (tr transport) timeout(d time.Duration) time.Duration {
	if tr.impl == "none" {
		return 0
	}
	return d
}

// listener returns l with the connections of tr.
func (tr transport) listener(l net.Listener) net.Listener {
	if tr.tw == nil {
		return l
	}
	return wheelnet.Listener(l, tr.tw)
}

// conn returns c as a connection of tr.
func (tr transport) conn(c net.Conn) net.Conn {
	if tr.tw == nil {
		return c
	}
	return wheelnet.Conn(c, tr.tw)
}

// dial connects to the address like net.Dialer.DialContext.
func (tr transport) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if tr.tw == nil {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	d := wheelnet.Dialer{Wheel: tr.tw}
	return d.DialContext(ctx, network, address)
}

// listen returns a listener on loopback that is closed at the end of the test. As long as a
// connection is not accepted, its peer is silent.
func listen(t testing.TB) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// connect returns a connection of package net that is closed at the end of the test.
func connect(t testing.TB, address string) net.Conn {
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// send writes to a connection.
func send(t testing.TB, c net.Conn, message string) {
	_, err := io.WriteString(c, message)
	require.NoError(t, err)
}

// requireTimeout checks that err is a timeout and that the time after has passed since start.
func requireTimeout(t testing.TB, err error, start time.Time, after time.Duration) {
	t.Helper()
	require.GreaterOrEqual(t, time.Since(start), after, "early: %v", err)
	var ne net.Error
	require.True(t, errors.As(err, &ne) && ne.Timeout(), "%v is no timeout", err)
}

// requireCut checks that the peer of c closes the connection, and not before the time after has
// passed since start.
func requireCut(t testing.TB, c net.Conn, start time.Time, after time.Duration) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(never)))
	_, err := io.Copy(io.Discard, c)
	require.GreaterOrEqual(t, time.Since(start), after, "early: %v", err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the peer does not close the connection")
}

// receive returns the next value of c. It fails the test if there is none for a minute.
func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case x := <-c:
		return x
	case <-time.After(never):
		require.Fail(t, "nothing was received")
		panic("unreachable")
	}
}

// requireAlive checks that a peer that sends 20 requests in each timeout is not cut within twice
// the timeout. If the machine stalls for as long as the timeout, requireAlive starts again. newPeer
// connects a peer and returns a function that sends one request.
func requireAlive(t testing.TB, newPeer func() (request func() error)) {
	t.Helper()
	for range 20 {
		request := newPeer()
		last := time.Now() // deadlines that are set later are at least timeout after it
		stalled := false
		for end := last.Add(2 * timeout); !stalled && time.Now().Before(end); time.Sleep(timeout / 20) {
			begun := time.Now()
			if err := request(); err != nil {
				require.GreaterOrEqual(t, time.Since(last), timeout, "a live peer is cut: %v", err)
				stalled = true
			}
			last = begun
		}
		if !stalled {
			return
		}
	}
	require.Fail(t, "live peers are cut")
}

// getHello is the request of live peers and of the benchmarks.
const getHello = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

// newHTTPPeer connects to a server and returns a function that makes a request on the connection.
func newHTTPPeer(t testing.TB, address string) (request func() error) {
	c := connect(t, address)
	r := bufio.NewReader(c)
	return func() error {
		if _, err := io.WriteString(c, getHello); err != nil {
			return err
		}
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err == nil && string(body) != "hello" {
			err = errors.New("response is " + string(body))
		}
		return err
	}
}

// benchHTTP measures requests to a server. Each client has its own connection. Only the first
// response is parsed, so that most of the CPU time is the server's.
func benchHTTP(b *testing.B, address string) {
	var first bytes.Buffer
	c := connect(b, address)
	send(b, c, getHello)
	response, err := http.ReadResponse(bufio.NewReader(io.TeeReader(c, &first)), nil)
	require.NoError(b, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(b, err)
	parallel(b, func(pb *testing.PB) {
		c, err := net.Dial("tcp", address)
		if !assert.NoError(b, err) {
			return
		}
		defer c.Close()
		request, got := []byte(getHello), make([]byte, first.Len())
		for pb.Next() {
			if _, err := c.Write(request); !assert.NoError(b, err) {
				return
			}
			if _, err := io.ReadFull(c, got); err != nil || !bytes.HasSuffix(got, []byte("\r\n\r\nhello")) {
				assert.Fail(b, "response", "%q, %v", got, err)
				return
			}
		}
	})
}
