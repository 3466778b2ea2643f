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

// inHand are timers that do not run by themselves.
type inHand struct{ armed []*handTimer }

type handTimer struct {
	fire    func()
	pending bool
}

func (h *inHand) afterFunc(_ time.Duration, f func()) timer {
	t := &handTimer{f, true}
	h.armed = append(h.armed, t)
	return t
}

func (h *inHand) pending() int    { return len(h.armed) }
func (h *inHand) summary() string { return "" }
func (h *inHand) stop()           {}

func (t *handTimer) Touch() bool { return t.pending }
func (t *handTimer) Stop() bool  { return t.pending }

// expire is what a timer library does: the timer is no longer pending, then its function runs.
func (t *handTimer) expire() {
	t.pending = false
	t.fire()
}

// newTestSession returns a session of which no goroutine reads, with a timeout that passes at once.
func newTestSession(t *testing.T, impl implementation) (*session, *net.TCPConn) {
	t.Helper()
	t.Cleanup(impl.stop)
	srv, err := newServer(impl, time.Nanosecond, time.Nanosecond, &stalls{ran: time.Now().Add(time.Hour)})
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

// handSession returns a session with a timer that does not run by itself.
func handSession(t *testing.T) (*session, *inHand, *net.TCPConn) {
	t.Helper()
	h := &inHand{}
	s, client := newTestSession(t, timerGuards{h})
	return s, h, client
}

// forEachImplementation runs a test with a session of each implementation, of which the timeout has
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

// soon waits for what the kernel delivers without anyone to wait for.
func soon(t *testing.T, want how, s *session) {
	t.Helper()
	require.Eventually(t, func() bool { return s.suspect() == want }, time.Minute, time.Millisecond)
}

func TestIdleConnectionIsCut(t *testing.T) {
	t.Parallel()
	forEachImplementation(t, func(t *testing.T, s *session, _ *net.TCPConn) {
		assert.Equal(t, cut, s.suspect())
		fired, _ := s.srv.late()
		assert.EqualValues(t, 1, fired)
	})
}

// The timeout passes although a beat has come: it waits in the kernel, as nobody was there to read
// it.
func TestBeatInTheKernelSavesAConnection(t *testing.T) {
	t.Parallel()
	forEachImplementation(t, func(t *testing.T, s *session, client *net.TCPConn) {
		_, err := client.Write([]byte(".."))
		require.NoError(t, err)
		require.Eventually(t, func() bool { return s.suspect() == unknown && s.srv.saved.Load() == 1 }, time.Minute, time.Millisecond)
		assert.EqualValues(t, 2, s.srv.beats.Load())
		_, err = s.conn.Read(s.buf[:])
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the beat has armed another timeout")
		assert.Equal(t, cut, s.suspect(), "nothing is left to read")
	})
}

func TestSuspectClosed(t *testing.T) {
	t.Parallel()
	forEachImplementation(t, func(t *testing.T, s *session, client *net.TCPConn) {
		require.NoError(t, client.Close())
		soon(t, closed, s)
	})
}

func TestSuspectReset(t *testing.T) {
	t.Parallel()
	forEachImplementation(t, func(t *testing.T, s *session, client *net.TCPConn) {
		require.NoError(t, client.SetLinger(0))
		require.NoError(t, client.Close())
		soon(t, reset, s)
	})
}

// With -impl wheelnet the timeout of a connection is a timer of the wheel, which ends with the
// connection.
func TestWheelKeepsTheDeadlinesOfWheelnet(t *testing.T) {
	t.Parallel()
	impl, err := config{impl: "wheelnet"}.newImplementation()
	require.NoError(t, err)
	s, _ := newTestSession(t, impl)
	s.srv.timeout = time.Hour
	s.beat(1)
	assert.Equal(t, 1, impl.pending())
	s.end(cut)
	assert.Zero(t, impl.pending())
}

// A Read that a deadline ends before the deadline is a mistake of the implementation.
func TestReadThatEndsEarlyIsNoted(t *testing.T) {
	t.Parallel()
	s, _ := newTestSession(t, netDeadlines{})
	assert.True(t, s.guard.passed())
	assert.Zero(t, s.srv.early.Load())
	s.guard = s.srv.impl.guard(s.srv, s.conn, time.Hour)
	assert.False(t, s.guard.passed())
	assert.EqualValues(t, 1, s.srv.early.Load())
}

// A timer that fired just before its beat was read may be heard of after its successor was armed.
func TestLateAlarmOfAnOldGuardIsIgnored(t *testing.T) {
	t.Parallel()
	s, h, _ := handSession(t)
	s.srv.timeout = time.Hour
	h.armed[0].pending = false
	s.beat(1)
	require.Len(t, h.armed, 2)
	h.armed[0].fire()
	_, err := s.conn.Read(s.buf[:])
	assert.Error(t, err)
	assert.Equal(t, unknown, s.suspect())
	assert.Zero(t, s.srv.early.Load(), "it was not early by its own deadline")

	h.armed[1].expire()
	assert.EqualValues(t, 1, s.srv.early.Load(), "this one was")
}

// After a stall, in which the client stood still as well, a connection gets some more time: once.
func TestStallBuysTime(t *testing.T) {
	t.Parallel()
	s, h, _ := handSession(t)
	now := time.Now()
	s.fresh -= time.Second
	s.srv.stalls.note(now.Add(-time.Second), now)
	s.srv.stalls.ran = now.Add(time.Hour) // none goes on
	h.armed[0].expire()
	assert.Equal(t, unknown, s.suspect())
	assert.EqualValues(t, 1, s.srv.spared.Load())
	require.Len(t, h.armed, 2)
	h.armed[1].expire()
	assert.Equal(t, cut, s.suspect())

	s.fresh -= time.Second
	assert.Equal(t, unknown, s.suspect(), "another stall")
}

func TestReadHeldDoesNotWait(t *testing.T) {
	t.Parallel()
	s, _, client := handSession(t)
	n, err := readHeld(s.conn, s.raw, s.buf[:])
	assert.Zero(t, n)
	assert.NoError(t, err)

	_, err = client.Write([]byte("..."))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		n, err = readHeld(s.conn, s.raw, s.buf[:])
		return n > 0
	}, time.Minute, time.Millisecond)
	assert.Equal(t, 3, n)
	assert.NoError(t, err)

	require.NoError(t, client.Close())
	require.Eventually(t, func() bool {
		_, err = readHeld(s.conn, s.raw, s.buf[:])
		return err != nil
	}, time.Minute, time.Millisecond)
	assert.ErrorIs(t, err, io.EOF)
}

// Both libraries keep the contract that guards rely on.
func TestTimersContract(t *testing.T) {
	t.Parallel()
	for _, impl := range []string{"wheel", "std"} {
		guards, err := config{impl: impl}.newImplementation()
		require.NoError(t, err)
		tm := guards.(timerGuards)
		defer tm.stop()

		fired := make(chan time.Time, 2)
		a := tm.afterFunc(time.Second, func() { fired <- time.Now() })
		assert.Equal(t, 1, tm.pending(), impl)
		touched := time.Now()
		assert.True(t, a.Touch(), impl)
		assert.GreaterOrEqual(t, (<-fired).Sub(touched), time.Second, impl)
		assert.Equal(t, 0, tm.pending(), impl)
		assert.False(t, a.Touch(), impl)
		assert.False(t, a.Stop(), impl)
		assert.Empty(t, fired, "%s: Touch of a fired timer arms nothing", impl)
		assert.Equal(t, 0, tm.pending(), impl)

		a = tm.afterFunc(time.Hour, func() {})
		assert.True(t, a.Stop(), impl)
		assert.False(t, a.Stop(), impl)
		assert.False(t, a.Touch(), impl)
		assert.Equal(t, 0, tm.pending(), impl)
	}
	_, err := config{impl: "heap"}.newImplementation()
	assert.ErrorContains(t, err, `"heap"`)
}
