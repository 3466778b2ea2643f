package wheelnet

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

const tick = time.Millisecond // the default of timingwheel.Options

// newWheel returns a wheel that is stopped at the end of the test.
func newWheel(t testing.TB, opts timingwheel.Options) *timingwheel.TimingWheel {
	tw, err := timingwheel.New(opts)
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	return tw
}

// recorder is an inner connection that records its deadlines.
type recorder struct {
	net.Conn
	mu          sync.Mutex
	read, write time.Time
	calls       int
	closed      bool
}

func (r *recorder) SetDeadline(t time.Time) error {
	return errors.Join(r.SetReadDeadline(t), r.SetWriteDeadline(t))
}

func (r *recorder) SetReadDeadline(t time.Time) error { return r.set(&r.read, t) }

func (r *recorder) SetWriteDeadline(t time.Time) error { return r.set(&r.write, t) }

func (r *recorder) set(d *time.Time, t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return net.ErrClosed
	}
	*d = t
	r.calls++
	return nil
}

func (r *recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return nil
}

// expired reports whether the read deadline and the write deadline of r have passed.
func (r *recorder) expired() (read, write bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	passed := func(t time.Time) bool { return !t.IsZero() && !t.After(time.Now()) }
	return passed(r.read), passed(r.write)
}

// newRecorded returns a connection and its inner connection, of which no call is counted yet.
func newRecorded(tw *timingwheel.TimingWheel) (*plainConn, *recorder) {
	r := new(recorder)
	c := Conn(r, tw).(*plainConn)
	r.calls = 0
	return c, r
}

// pairOf returns both ends of a connection. They are closed at the end of the test.
func pairOf(t testing.TB, tw *timingwheel.TimingWheel, network string) (server, client net.Conn) {
	t.Helper()
	address := "localhost:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "socket")
	}
	inner, err := net.Listen(network, address)
	require.NoError(t, err)
	l := Listener(inner, tw)
	defer l.Close()
	require.Equal(t, inner.Addr(), l.Addr())
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		assert.NoError(t, err)
		accepted <- c
	}()
	client, err = (&Dialer{Wheel: tw}).Dial(network, inner.Addr().String())
	require.NoError(t, err)
	server = <-accepted
	t.Cleanup(func() { server.Close(); client.Close() })
	return server, client
}

// requireTimeout checks that err is the error of a passed deadline, and that deadline has passed.
func requireTimeout(t testing.TB, err error, deadline time.Time) {
	t.Helper()
	require.False(t, time.Now().Before(deadline), "early")
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	var ne net.Error
	require.True(t, errors.As(err, &ne) && ne.Timeout(), "%v", err)
}
