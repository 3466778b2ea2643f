package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTimerLibrariesKeepContractOfTimer(t *testing.T) {
	t.Parallel()
	runAtOnce(t, map[string]string{"wheel": "wheel", "std": "std"}, func(t *testing.T, name string) {
		impl, err := config{impl: name}.newImplementation()
		require.NoError(t, err)
		tm := impl.(timerImplementation)
		defer tm.stop()

		const timeout = 500 * time.Millisecond
		fired := make(chan time.Time, 2)
		a := tm.afterFunc(timeout, func() { fired <- time.Now() })
		assert.Equal(t, 1, tm.pending())
		touched := time.Now()
		assert.True(t, a.Touch())
		assert.GreaterOrEqual(t, (<-fired).Sub(touched), timeout)
		assert.Equal(t, 0, tm.pending())
		assert.False(t, a.Touch())
		assert.False(t, a.Stop())
		assert.Empty(t, fired, "Touch armed a fired timer")
		assert.Equal(t, 0, tm.pending())

		a = tm.afterFunc(time.Hour, func() {})
		assert.True(t, a.Stop())
		assert.False(t, a.Stop())
		assert.False(t, a.Touch())
		assert.Equal(t, 0, tm.pending())
	})
}

func TestUnknownImplementationReturnsError(t *testing.T) {
	t.Parallel()
	_, err := config{impl: "heap"}.newImplementation()
	assert.ErrorContains(t, err, `"heap"`)
}

// With -impl wheelnet, the timeout of a connection is a timer of the wheel until the connection
// ends.
func TestWheelKeepsDeadlinesOfWheelnet(t *testing.T) {
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

// A deadline that ends a Read early is a bug of the implementation.
func TestEarlyDeadlineIsCounted(t *testing.T) {
	t.Parallel()
	s, _ := newTestSession(t, netImplementation{})
	assert.True(t, s.timeout.passed())
	assert.Zero(t, s.srv.early.Load())
	s.timeout = s.srv.impl.start(s.srv, s.conn, time.Hour)
	assert.False(t, s.timeout.passed())
	assert.EqualValues(t, 1, s.srv.early.Load())
}

// A timer fires just before a heartbeat is read, and its callback runs after the next timer was
// armed.
func TestLateCallbackOfPreviousTimeoutIsIgnored(t *testing.T) {
	t.Parallel()
	s, h, _ := newManualSession(t)
	s.srv.timeout = time.Hour
	h.armed[0].pending = false
	s.beat(1)
	require.Len(t, h.armed, 2)
	h.armed[0].fire()
	_, err := s.conn.Read(s.buf[:])
	assert.Error(t, err)
	assert.Equal(t, notEnded, s.afterTimeout())
	assert.Zero(t, s.srv.early.Load(), "the first timer was not early by its own deadline")

	h.armed[1].expire()
	assert.EqualValues(t, 1, s.srv.early.Load(), "the second timer was early")
}
