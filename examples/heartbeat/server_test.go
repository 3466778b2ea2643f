package main

import (
	"io"
	"net"
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
func newTestSession(t *testing.T) (*session, *inHand, *net.TCPConn) {
	t.Helper()
	h := &inHand{}
	srv, err := newServer(h, time.Nanosecond, time.Nanosecond, &stalls{ran: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	t.Cleanup(srv.close)
	client, err := net.DialTCP("tcp", nil, srv.listener.Addr().(*net.TCPAddr))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	conn, err := srv.listener.AcceptTCP()
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return newSession(srv, conn), h, client
}

// soon waits for what the kernel delivers without anyone to wait for.
func soon(t *testing.T, want how, s *session) {
	t.Helper()
	require.Eventually(t, func() bool { return s.suspect() == want }, time.Minute, time.Millisecond)
}

func TestSuspectIdle(t *testing.T) {
	t.Parallel()
	s, _, _ := newTestSession(t)
	s.guard.expire()
	assert.Equal(t, cut, s.suspect())
}

// The timer fires although a beat has come: it waits in the kernel, as nobody was there to read it.
func TestBeatInTheKernelSavesAConnection(t *testing.T) {
	t.Parallel()
	s, h, client := newTestSession(t)
	_, err := client.Write([]byte(".."))
	require.NoError(t, err)
	h.armed[0].expire()
	require.Eventually(t, func() bool { return s.suspect() == unknown && s.srv.saved.Load() == 1 }, time.Minute, time.Millisecond)
	assert.EqualValues(t, 2, s.srv.beats.Load())
	assert.Len(t, h.armed, 2, "a fired timer is replaced")
	assert.Equal(t, cut, s.suspect(), "nothing is left to read")
}

func TestSuspectClosedAndReset(t *testing.T) {
	t.Parallel()
	s, _, client := newTestSession(t)
	require.NoError(t, client.Close())
	soon(t, closed, s)

	s, _, client = newTestSession(t)
	require.NoError(t, client.SetLinger(0))
	require.NoError(t, client.Close())
	soon(t, reset, s)
}

// A timer that fired just before its beat was read may be heard of after its successor was armed.
func TestLateAlarmOfAnOldGuardIsIgnored(t *testing.T) {
	t.Parallel()
	s, h, _ := newTestSession(t)
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
	s, h, _ := newTestSession(t)
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
	s, _, client := newTestSession(t)
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
		tm, err := config{impl: impl}.newTimers()
		require.NoError(t, err)
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
	_, err := config{impl: "none"}.newTimers()
	assert.ErrorContains(t, err, "none")
}
