package wheelnet

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

func TestReadAndWriteTimeOut(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "unix"} {
		tw := newWheel(t, timingwheel.Options{})
		server, _ := pairOf(t, tw, network)
		set := time.Now()
		require.NoError(t, server.SetDeadline(set.Add(30*time.Millisecond)))
		_, err := server.Read(make([]byte, 1))
		requireTimeout(t, err, set.Add(30*time.Millisecond))
		_, err = server.Read(make([]byte, 1))
		requireTimeout(t, err, set)
		for err = nil; err == nil; { // until the buffers of the kernel are full
			_, err = server.Write(make([]byte, 1<<16))
		}
		requireTimeout(t, err, set)
	}
}

func TestLaterDeadlineMakesConnectionUsableAgain(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "unix"} {
		tw := newWheel(t, timingwheel.Options{})
		server, client := pairOf(t, tw, network)
		for _, next := range []time.Time{{}, time.Now().Add(time.Hour)} {
			require.NoError(t, server.SetReadDeadline(time.Now().Add(time.Millisecond)))
			_, err := server.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.NoError(t, server.SetReadDeadline(next))
			_, err = client.Write([]byte("x"))
			require.NoError(t, err)
			_, err = server.Read(make([]byte, 1))
			require.NoError(t, err)
		}
	}
}

// One goroutine moves the deadline while another goroutine reads.
func TestDeadlineMovesDuringRead(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{})
	server, _ := pairOf(t, tw, "tcp")
	at := time.Now().Add(5 * time.Millisecond)
	require.NoError(t, server.SetReadDeadline(at))
	moved := make(chan time.Time)
	go func() {
		for range 20 {
			at = time.Now().Add(5 * time.Millisecond)
			assert.NoError(t, server.SetReadDeadline(at))
			time.Sleep(time.Millisecond)
		}
		moved <- at
	}()
	for {
		_, err := server.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		select {
		case last := <-moved:
			_, err := server.Read(make([]byte, 1))
			requireTimeout(t, err, last)
			return
		default: // the machine was too slow to move the deadline in time
		}
	}
}

func TestCloseEndsRead(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{})
	server, _ := pairOf(t, tw, "tcp")
	require.NoError(t, server.SetReadDeadline(time.Now().Add(time.Hour)))
	time.AfterFunc(time.Millisecond, func() { server.Close() })
	_, err := server.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	assert.Zero(t, tw.Len())
	assert.ErrorIs(t, server.Close(), net.ErrClosed)
}

func TestConnectionHasMethodsOfInnerConnection(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{})
	server, client := pairOf(t, tw, "tcp")
	for _, c := range []net.Conn{server, client} {
		_, ok := c.(interface {
			io.ReaderFrom
			io.WriterTo
			CloseRead() error
			CloseWrite() error
			SetKeepAlive(bool) error
			SetNoDelay(bool) error
		})
		assert.True(t, ok)
		_, ok = c.(interface{ NetConn() net.Conn }).NetConn().(*net.TCPConn)
		assert.True(t, ok)
	}
	require.NoError(t, client.(*tcpConn).CloseWrite())
	_, err := server.Read(make([]byte, 1))
	assert.Equal(t, io.EOF, err)

	server, _ = pairOf(t, tw, "unix")
	_, ok := server.(interface{ NetConn() net.Conn }).NetConn().(*net.UnixConn)
	assert.True(t, ok)
	_, ok = server.(interface{ CloseWrite() error })
	assert.True(t, ok)
}

func TestCopyBothWays(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{})
	data := make([]byte, 1<<20)
	_, err := rand.Read(data)
	require.NoError(t, err)
	for _, networks := range [][2]string{{"tcp", "tcp"}, {"tcp", "unix"}, {"unix", "tcp"}, {"unix", "unix"}} {
		in, source := pairOf(t, tw, networks[0])
		sink, out := pairOf(t, tw, networks[1])
		for _, c := range []net.Conn{in, out} {
			require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
		}
		go func() {
			_, err := source.Write(data)
			assert.NoError(t, err)
			source.Close()
		}()
		go func() {
			n, err := io.CopyN(out, in, int64(len(data)/2))
			assert.NoError(t, err)
			assert.EqualValues(t, len(data)/2, n)
			n, err = io.Copy(out, in)
			assert.NoError(t, err)
			assert.EqualValues(t, len(data)/2, n)
			out.Close()
		}()
		got, err := io.ReadAll(sink)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got), "%v", networks)
	}
}

func TestReadFromLeavesRestOfLimit(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{})
	in, source := pairOf(t, tw, "tcp")
	_, out := pairOf(t, tw, "tcp")
	_, err := source.Write([]byte("abc"))
	require.NoError(t, err)
	require.NoError(t, source.Close())
	limited := &io.LimitedReader{R: in, N: 10}
	n, err := out.(io.ReaderFrom).ReadFrom(limited)
	require.NoError(t, err)
	assert.EqualValues(t, 3, n)
	assert.EqualValues(t, 7, limited.N)
}

func TestTLSOverConnection(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{})
	certificates := httptest.NewUnstartedServer(nil)
	certificates.StartTLS()
	defer certificates.Close()
	inner, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	l := tls.NewListener(Listener(inner, tw), certificates.TLS)
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if assert.NoError(t, err) {
			io.Copy(c, c) //nolint:errcheck // ends when the client closes
			c.Close()
		}
	}()
	raw, err := (&Dialer{Wheel: tw}).DialContext(context.Background(), "tcp", inner.Addr().String())
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(certificates.Certificate())
	c := tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: "example.com"})
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, err = c.Write([]byte("ping"))
	require.NoError(t, err)
	got := make([]byte, 4)
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	assert.Equal(t, "ping", string(got))
	assert.Same(t, raw, c.NetConn())
	at := time.Now().Add(5 * time.Millisecond)
	require.NoError(t, c.SetReadDeadline(at))
	_, err = c.Read(got)
	requireTimeout(t, err, at)
}

// refusing is a connection that does not support deadlines, as a channel of package ssh.
type refusing struct{ net.Conn }

var errRefused = errors.New("deadline not supported")

func (refusing) SetDeadline(time.Time) error      { return errRefused }
func (refusing) SetReadDeadline(time.Time) error  { return errRefused }
func (refusing) SetWriteDeadline(time.Time) error { return errRefused }

func TestUnsupportedDeadlineReturnsErrorOfInnerConnection(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{})
	c := Conn(refusing{}, tw)
	for _, at := range []time.Time{{}, time.Unix(1, 0), time.Now().Add(time.Hour)} {
		assert.ErrorIs(t, c.SetDeadline(at), errRefused)
		assert.ErrorIs(t, c.SetReadDeadline(at), errRefused)
		assert.ErrorIs(t, c.SetWriteDeadline(at), errRefused)
	}
	assert.Zero(t, tw.Len())
}

func TestConnClearsDeadlineOfInnerConnection(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{})
	ours, theirs := net.Pipe()
	defer ours.Close()
	require.NoError(t, ours.SetDeadline(time.Unix(1, 0)))
	c := Conn(ours, tw)
	go theirs.Write([]byte("x")) //nolint:errcheck // the read fails then
	_, err := c.Read(make([]byte, 1))
	require.NoError(t, err)
}

func TestBadArguments(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{})
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	defer l.Close()
	const isNil = ": the wheel is nil; it must come from timingwheel.New or timingwheel.Default"
	for want, f := range map[string]func(){
		"wheelnet: Conn" + isNil:                  func() { Conn(a, nil) },
		"wheelnet: Listener" + isNil:              func() { Listener(l, nil) },
		"wheelnet: Conn: the connection is nil":   func() { Conn(nil, tw) },
		"wheelnet: Listener: the listener is nil": func() { Listener(nil, tw) },
	} {
		assert.PanicsWithValue(t, want, f)
	}
}

// On a wheel whose callbacks can be held back, one callback that blocks would keep every deadline
// from taking effect. A Read with a deadline, and tls.Conn.Close to a peer that does not read,
// would never return.
func TestWheelsWhoseCallbacksCanBeHeldBackAreRefused(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	defer l.Close()
	pool := timingwheel.ExecutorFunc(func(f func()) { go f() })
	for option, options := range map[string][]timingwheel.Options{
		"Manual":   {{Manual: true}, {Manual: true, Executor: pool}},
		"Executor": {{Executor: timingwheel.Inline}, {Executor: timingwheel.Goroutines}, {Executor: pool}},
	} {
		refused := ": the wheel has Options." + option + "; connections need a wheel without Manual and Executor"
		for _, opts := range options {
			tw := newWheel(t, opts)
			dialer := &Dialer{Wheel: tw}
			for name, f := range map[string]func(){
				"Conn":     func() { Conn(a, tw) },
				"Listener": func() { Listener(l, tw) },
				"Dialer":   func() { dialer.Dial("tcp", l.Addr().String()) }, //nolint:errcheck // it panics
			} {
				assert.PanicsWithValue(t, "wheelnet: "+name+refused, f)
			}
		}
	}
}

func TestListenerAndDialerReturnErrorsOfPackageNet(t *testing.T) {
	t.Parallel()
	tw := newWheel(t, timingwheel.Options{})
	inner, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	l := Listener(inner, tw)
	require.NoError(t, l.Close())
	c, err := l.Accept()
	assert.ErrorIs(t, err, net.ErrClosed)
	assert.Nil(t, c)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c, err = (&Dialer{Wheel: tw}).DialContext(ctx, "tcp", inner.Addr().String())
	assert.Error(t, err)
	assert.Nil(t, c)
}

func TestZeroDialerUsesDefault(t *testing.T) {
	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	defer l.Close()
	c, err := new(Dialer).Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	before := timingwheel.Default().Len()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Hour)))
	assert.Equal(t, before+1, timingwheel.Default().Len())
}

// The documentation states the memory of a connection. Calls that set deadlines do not allocate.
func TestSizeAndAllocations(t *testing.T) {
	if strconv.IntSize == 64 {
		assert.EqualValues(t, 112, unsafe.Sizeof(tcpConn{}))
	}
	tw := newWheel(t, timingwheel.Options{})
	c, _ := newRecorded(tw)
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Hour)))
	at := time.Now().Add(2 * time.Hour)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		c.SetReadDeadline(at)              //nolint:errcheck // not closed
		c.SetReadDeadline(time.Time{})     //nolint:errcheck // not closed
		c.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // not closed
	}))
}

// The wheel is stopped while goroutines read and move their deadlines.
func TestReadsEndAtTheirDeadlinesIfTheWheelStops(t *testing.T) {
	t.Parallel()
	for range 10 {
		tw := newWheel(t, timingwheel.Options{Tick: 50 * time.Microsecond})
		var wg sync.WaitGroup
		for range 8 {
			c, _ := pairOf(t, tw, "tcp")
			wg.Go(func() {
				for range 10 {
					for range 3 {
						at := time.Now().Add(time.Duration(mathrand.IntN(1000)-100) * time.Microsecond)
						assert.NoError(t, c.SetDeadline(at.Add(time.Duration(mathrand.IntN(3)-1)*time.Millisecond)))
						assert.NoError(t, c.SetReadDeadline(at))
					}
					at := time.Now().Add(time.Duration(mathrand.IntN(1000)) * time.Microsecond)
					assert.NoError(t, c.SetReadDeadline(at))
					_, err := c.Read(make([]byte, 1))
					assert.False(t, time.Now().Before(at), "early")
					assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
				}
			})
		}
		wg.Go(func() {
			time.Sleep(time.Duration(mathrand.IntN(5)) * time.Millisecond)
			tw.Stop()
		})
		done := make(chan struct{})
		go func() {
			wg.Wait()
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("a read continues after its deadline")
		}
	}
}
