package timingwheel

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The one test that runs the wheel as a program does: the defaults, on the clock of the machine.
func TestRealClockSmoke(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	delays := []time.Duration{
		math.MinInt64, -time.Second, 0, 1, 999 * time.Microsecond, time.Millisecond, 1500 * time.Microsecond,
		10 * time.Millisecond, 255 * time.Millisecond, 256 * time.Millisecond, 257 * time.Millisecond,
	}
	type run struct {
		d, after time.Duration
	}
	runs := make(chan run, 2*len(delays))
	for _, d := range delays {
		armed := time.Now()
		tw.AfterFunc(d, func() { runs <- run{d, time.Since(armed)} })
	}
	got := map[time.Duration]bool{}
	for range delays {
		r := receive(t, runs, "a timer")
		assert.GreaterOrEqual(t, r.after, r.d, "early")
		assert.False(t, got[r.d], "%v fired twice", r.d)
		got[r.d] = true
	}
	assert.Zero(t, tw.Len())
	st := tw.Stats()
	assert.EqualValues(t, len(delays), st.Armed)
	assert.EqualValues(t, len(delays), st.Fired)
	assert.Zero(t, st.Stopped)
	assert.Empty(t, runs)
}

func TestStopAnswersTrueOnce(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	fired := make(chan struct{}, 1)
	timer := tw.AfterFunc(time.Hour, func() { fired <- struct{}{} })
	require.Equal(t, 1, tw.Len())
	assert.True(t, timer.Stop())
	assert.False(t, timer.Stop())
	assert.False(t, timer.Reschedule(0), "Reschedule of a stopped timer arms nothing")
	assert.Zero(t, tw.Len())

	timer = tw.AfterFunc(0, func() { fired <- struct{}{} })
	receive(t, fired, "the callback")
	assert.False(t, timer.Stop())
	assert.False(t, timer.Reschedule(0), "Reschedule of a fired timer arms nothing")
	_, ok := timer.Deadline()
	assert.False(t, ok)
	assert.Empty(t, fired)
}

func TestZeroTimerIsInert(t *testing.T) {
	t.Parallel()
	var timer Timer
	assert.False(t, timer.Stop())
	assert.False(t, timer.Reschedule(0))
	assert.False(t, timer.RescheduleAt(time.Now()))
	_, ok := timer.Deadline()
	assert.False(t, ok)
}

// The last Reschedule wins, whether it moves the timer later, earlier or to the past.
func TestRescheduleOnTheRealClock(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	fired := make(chan time.Time, 2)
	note := func() { fired <- time.Now() }

	start := time.Now()
	timer := tw.AfterFunc(5*time.Millisecond, note)
	if timer.Reschedule(60 * time.Millisecond) { // else the machine was asleep for 5 ms
		assert.GreaterOrEqual(t, receive(t, fired, "postponed").Sub(start), 60*time.Millisecond)
	}

	start = time.Now()
	timer = tw.AfterFunc(time.Hour, note)
	require.True(t, timer.Reschedule(20*time.Millisecond))
	assert.GreaterOrEqual(t, receive(t, fired, "hastened").Sub(start), 20*time.Millisecond)

	for _, past := range []func(Timer) bool{
		func(x Timer) bool { return x.Reschedule(math.MinInt64) },
		func(x Timer) bool { return x.Reschedule(0) },
		func(x Timer) bool { return x.RescheduleAt(time.Now().Add(-time.Hour)) },
		func(x Timer) bool { return x.RescheduleAt(time.Time{}) },
	} {
		timer = tw.AfterFunc(math.MaxInt64, note)
		require.True(t, past(timer))
		receive(t, fired, "rescheduled to the past")
	}

	start = time.Now()
	timer = tw.AfterFunc(time.Hour, note)
	for _, d := range []time.Duration{time.Minute, 2 * time.Hour, 24 * time.Hour, 30 * time.Millisecond} {
		require.True(t, timer.Reschedule(d))
	}
	assert.GreaterOrEqual(t, receive(t, fired, "the last Reschedule").Sub(start), 30*time.Millisecond)
	assert.Zero(t, tw.Len())
	assert.Empty(t, fired)
}

// A date on the wall is as good as a time with a monotonic reading.
func TestAtFunc(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	ran := make(chan time.Time, 1)
	for name, strip := range map[string]func(time.Time) time.Time{
		"monotonic": func(at time.Time) time.Time { return at },
		"wall":      func(at time.Time) time.Time { return at.Round(0) },
		"zone":      func(at time.Time) time.Time { return at.Round(0).UTC() },
	} {
		start := time.Now()
		at := strip(time.Now().Add(20 * time.Millisecond))
		tw.AtFunc(at, func() { ran <- time.Now() })
		// The two clocks are read one after the other, to the nanosecond.
		assert.Greater(t, receive(t, ran, name).Sub(start), 20*time.Millisecond-time.Microsecond, name)

		timer := tw.AtFunc(strip(time.Now().Add(time.Hour)), func() { ran <- time.Now() })
		start = time.Now()
		require.True(t, timer.RescheduleAt(strip(time.Now().Add(20*time.Millisecond))))
		assert.Greater(t, receive(t, ran, name).Sub(start), 20*time.Millisecond-time.Microsecond, name)

		tw.AtFunc(strip(time.Now().Add(-time.Hour)), func() { ran <- time.Now() })
		receive(t, ran, "a time that has passed: "+name)
	}
	tw.AtFunc(time.Time{}, func() { ran <- time.Now() })
	receive(t, ran, "the zero time")
}

func TestDeadlineOnTheRealClock(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	before := time.Now()
	timer := tw.AfterFunc(time.Hour, func() {})
	due, ok := timer.Deadline()
	require.True(t, ok)
	assert.False(t, due.Before(before.Add(time.Hour)))
	assert.False(t, due.After(time.Now().Add(time.Hour+time.Millisecond)), "it is rounded up to a tick")

	at := time.Now().Add(time.Minute)
	require.True(t, timer.RescheduleAt(at))
	due, ok = timer.Deadline()
	require.True(t, ok)
	assert.False(t, due.Before(at))
	assert.Less(t, due.Sub(at), time.Millisecond)
	timer.Stop()
	_, ok = timer.Deadline()
	assert.False(t, ok)
}
