package main

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// manualTimers is a timer library whose timers fire when the test calls expire.
type manualTimers struct{ armed []*manualTimer }

type manualTimer struct {
	fire    func()
	pending bool
}

func (h *manualTimers) afterFunc(_ time.Duration, f func()) timer {
	t := &manualTimer{f, true}
	h.armed = append(h.armed, t)
	return t
}

func (h *manualTimers) pending() int    { return len(h.armed) }
func (h *manualTimers) summary() string { return "" }
func (h *manualTimers) stop()           {}

func (t *manualTimer) Touch() bool { return t.pending }
func (t *manualTimer) Stop() bool  { return t.pending }

// expire fires the timer. The timer is no longer pending when its function runs.
func (t *manualTimer) expire() {
	t.pending = false
	t.fire()
}

// newTestSession returns a session with a timeout of 1 ns. The test calls the methods of the
// session itself.
func newTestSession(t *testing.T, impl implementation) (*session, *net.TCPConn) {
	t.Helper()
	t.Cleanup(impl.stop)
	srv, err := newServer(impl, time.Nanosecond, time.Nanosecond, &stalls{lastRun: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	t.Cleanup(srv.close)
	client, err := net.DialTCP("tcp", nil, srv.listener.Addr().(*net.TCPAddr))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	conn, err := srv.listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return newSession(srv, conn), client
}

// newManualSession returns a session with manual timers.
func newManualSession(t *testing.T) (*session, *manualTimers, *net.TCPConn) {
	t.Helper()
	h := &manualTimers{}
	s, client := newTestSession(t, timerImplementation{h})
	return s, h, client
}

// forEachImplementation runs a test for each implementation, with a session whose timeout has
// passed.
func forEachImplementation(t *testing.T, test func(t *testing.T, s *session, client *net.TCPConn)) {
	for _, name := range implementations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			impl, err := config{impl: name}.newImplementation()
			require.NoError(t, err)
			s, client := newTestSession(t, impl)
			_, err = s.conn.Read(s.buf[:])
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			test(t, s, client)
		})
	}
}

// requireEnd waits until the kernel has delivered the end of the connection.
func requireEnd(t *testing.T, want endKind, s *session) {
	t.Helper()
	require.Eventually(t, func() bool { return s.afterTimeout() == want }, time.Minute, time.Millisecond)
}

func TestIdleConnectionIsCut(t *testing.T) {
	t.Parallel()
	forEachImplementation(t, func(t *testing.T, s *session, _ *net.TCPConn) {
		assert.Equal(t, cut, s.afterTimeout())
		fired, _ := s.srv.late()
		assert.EqualValues(t, 1, fired)
	})
}

// The timeout passes while a heartbeat waits in the kernel, because the server was too slow to read
// it.
func TestBeatInKernelKeepsConnection(t *testing.T) {
	t.Parallel()
	forEachImplementation(t, func(t *testing.T, s *session, client *net.TCPConn) {
		_, err := client.Write([]byte(".."))
		require.NoError(t, err)
		require.Eventually(t, func() bool { return s.afterTimeout() == notEnded && s.srv.keptByBeat.Load() == 1 }, time.Minute, time.Millisecond)
		assert.EqualValues(t, 2, s.srv.beats.Load())
		_, err = s.conn.Read(s.buf[:])
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the beat has started another timeout")
		assert.Equal(t, cut, s.afterTimeout(), "there is nothing more to read")
	})
}

func TestConnectionClosedAtTimeoutIsNotCut(t *testing.T) {
	t.Parallel()
	forEachImplementation(t, func(t *testing.T, s *session, client *net.TCPConn) {
		require.NoError(t, client.Close())
		requireEnd(t, closed, s)
	})
}

func TestConnectionResetAtTimeoutIsNotCut(t *testing.T) {
	t.Parallel()
	forEachImplementation(t, func(t *testing.T, s *session, client *net.TCPConn) {
		require.NoError(t, client.SetLinger(0))
		require.NoError(t, client.Close())
		requireEnd(t, reset, s)
	})
}

// The client runs on the same machine and needs time to catch up.
func TestConnectionGetsGraceOnceAfterStall(t *testing.T) {
	t.Parallel()
	s, h, _ := newManualSession(t)
	now := time.Now()
	s.stallsAllowed -= time.Second
	s.srv.stalls.record(now.Add(-time.Second), now)
	s.srv.stalls.lastRun = now.Add(time.Hour) // no stall is in progress
	h.armed[0].expire()
	assert.Equal(t, notEnded, s.afterTimeout())
	assert.EqualValues(t, 1, s.srv.keptByStall.Load())
	require.Len(t, h.armed, 2)
	h.armed[1].expire()
	assert.Equal(t, cut, s.afterTimeout())

	s.stallsAllowed -= time.Second
	assert.Equal(t, notEnded, s.afterTimeout(), "another stall")
}

func TestReadAvailableDoesNotWait(t *testing.T) {
	t.Parallel()
	s, _, client := newManualSession(t)
	n, err := readAvailable(s.conn, s.raw, s.buf[:])
	assert.Zero(t, n)
	assert.NoError(t, err)

	_, err = client.Write([]byte("..."))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		n, err = readAvailable(s.conn, s.raw, s.buf[:])
		return n > 0
	}, time.Minute, time.Millisecond)
	assert.Equal(t, 3, n)
	assert.NoError(t, err)

	require.NoError(t, client.Close())
	require.Eventually(t, func() bool {
		_, err = readAvailable(s.conn, s.raw, s.buf[:])
		return err != nil
	}, time.Minute, time.Millisecond)
	assert.ErrorIs(t, err, io.EOF)
}
