package timingwheel

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The clock of a Manual wheel stands where Start or the last Advance has put it, and never goes
// back.
func TestAdvanceNeverGoesBack(t *testing.T) {
	t.Parallel()
	s := newStory(t, Options{}, 1<<60)
	require.True(t, s.Now().Equal(modelStart))
	s.after(msec, "a")
	require.Empty(t, s.to(-time.Hour))
	require.True(t, s.Now().Equal(modelStart))
	require.Equal(t, "a", s.to(time.Hour))
	require.Empty(t, s.to(time.Minute))
	require.True(t, s.Now().Equal(modelStart.Add(time.Hour)))
	s.after(0, "due where the clock stands")
	require.Equal(t, "due where the clock stands", s.to(-time.Hour))
}

// Ticks in order, and in a tick the order of arming, whatever the levels the timers came through.
func TestAdvanceRunsInOrderOfTicksThenOfArming(t *testing.T) {
	t.Parallel()
	s := newStory(t, Options{Tick: msec, WheelSize: 4, Levels: 2}, 0)
	s.after(20*msec, "far1")
	e := s.after(9*msec, "reset")
	s.after(10*msec-1, "1")
	s.to(8 * msec) // the ones above have moved to the finest level
	s.after(12*msec, "far2")
	s.after(2*msec, "2")
	s.after(msec+1, "3")
	require.True(t, e.Reschedule(2*msec), "a Reschedule counts as arming")
	s.after(msec, "0")
	require.Equal(t, "0 1 2 3 reset far1 far2", s.to(20*msec))
}

// What a callback arms runs in a later Advance, however soon it is due, so a chain of zero delays
// starves neither the caller nor another timer.
func TestChainOfZeroDelaysStarvesNobody(t *testing.T) {
	t.Parallel()
	s := newStory(t, Options{}, 0)
	var again func()
	again = func() {
		s.note("zero")()
		s.AfterFunc(0, again)
	}
	s.AfterFunc(0, again)
	s.after(msec, "other")
	require.Equal(t, "zero", s.to(0))
	require.Equal(t, "zero other", s.to(2*msec))
	require.Equal(t, "zero", s.to(2*msec))
	require.Equal(t, 1, s.Len())
}

// A callback that panics or exits unwinds to the caller and loses nothing else: the rest stays due.
func TestPanicAndGoexitLoseNothingElse(t *testing.T) {
	t.Parallel()
	for _, leave := range []func(){func() { panic("of a callback") }, runtime.Goexit} {
		s := newStory(t, Options{}, 0)
		for _, d := range []time.Duration{msec, 2 * msec, time.Second} {
			s.after(d, "before")
			s.AfterFunc(d, leave)
			s.after(d, "after")
		}
		for range 3 {
			done := make(chan bool)
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				s.Advance(modelStart.Add(time.Minute))
			}()
			<-done
			s.verify()
			require.Zero(t, s.Stats().Running)
		}
		require.Equal(t, []string{"before", "after", "before", "after", "before"}, s.ran)
		require.Equal(t, "after", s.to(time.Minute))
		require.Zero(t, s.Len())
	}
}

func TestOnPanicReportsAndGoesOn(t *testing.T) {
	t.Parallel()
	var reported []any
	s := newStory(t, Options{OnPanic: func(v any, stack []byte) {
		require.Contains(t, string(stack), "TestOnPanicReportsAndGoesOn")
		reported = append(reported, v)
	}}, 0)
	s.AfterFunc(msec, func() {
		s.note("panics")()
		panic("here")
	})
	s.after(msec, "next")
	require.Equal(t, "panics next", s.to(msec))
	require.Equal(t, []any{"here"}, reported)
}

// Advance is for Manual wheels, one at a time.
func TestAdvanceWhereItMayNotBe(t *testing.T) {
	t.Parallel()
	s := newStory(t, Options{}, 0)
	s.AfterFunc(msec, func() {
		require.PanicsWithValue(t, "timingwheel: Advance while another Advance of the same wheel is under way",
			func() { s.Advance(s.Now()) })
		s.note("nested")()
	})
	require.Equal(t, "nested", s.to(msec))
	tw, err := New(Options{})
	require.NoError(t, err)
	defer tw.Stop()
	require.PanicsWithValue(t, "timingwheel: Advance of a wheel that is not Manual", func() { tw.Advance(time.Now()) })
	require.Empty(t, s.to(time.Second), "a panic has left the wheel usable")
}

func TestStopResult(t *testing.T) {
	t.Parallel()
	s := newStory(t, Options{WheelSize: 4, Levels: 2}, 0)
	for _, d := range []time.Duration{0, msec, 10 * msec, time.Hour} {
		e := s.after(d, "stopped")
		require.True(t, e.Stop())
		require.False(t, e.Stop(), "a second time")
		require.False(t, e.Reschedule(0), "after Stop")
		_, ok := e.Deadline()
		require.False(t, ok)
	}
	require.Empty(t, s.to(2*time.Hour))
	var e Timer
	e = s.AfterFunc(msec, func() { require.False(t, e.Stop(), "during its own run") })
	s.Advance(s.Now().Add(time.Second))
	require.False(t, e.Stop(), "after the run")
	require.False(t, Timer{}.Stop())
	require.False(t, Timer{}.Reschedule(0))
	require.False(t, Timer{}.RescheduleAt(modelStart))
}

// Reschedule moves a timer earlier, later, to the same time and to the past. The last call wins.
// After the run Reschedule arms nothing.
func TestRescheduleResult(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		moves []time.Duration
		at    time.Duration
	}{
		{[]time.Duration{10 * msec}, 10 * msec},
		{[]time.Duration{3 * msec}, 3 * msec},
		{[]time.Duration{time.Hour}, time.Hour},
		{[]time.Duration{time.Hour, 5 * msec, day, 2 * msec}, 2 * msec},
		{[]time.Duration{2 * msec, day, 50 * msec}, 50 * msec},
		{[]time.Duration{day, 0}, 0},
		{[]time.Duration{-day}, 0},
		{[]time.Duration{0, 5 * msec}, 5 * msec},
	} {
		s := newStory(t, Options{WheelSize: 4, Levels: 3}, 1<<50-1<<50%int64(msec))
		e := s.after(10*msec, "reset")
		for i, d := range c.moves {
			if i%2 == 0 {
				require.True(t, e.Reschedule(d))
			} else {
				require.True(t, e.RescheduleAt(modelStart.Add(d)))
			}
		}
		if c.at > 0 {
			require.Empty(t, s.to(c.at-1), "%+v", c)
		}
		require.Equal(t, "reset", s.to(c.at), "%+v", c)
		require.False(t, e.Reschedule(msec), "after the run")
		require.Empty(t, s.to(30*day))
	}
}

// A timer that is rescheduled to a time within the current tick that has passed is due at once.
func TestRescheduleToNowWithinTheTick(t *testing.T) {
	t.Parallel()
	s := newStory(t, Options{}, 0)
	e := s.after(msec/4, "reset")
	require.Empty(t, s.to(msec/2))
	require.True(t, e.Reschedule(0))
	require.Equal(t, "reset", s.to(msec/2))
}

// A callback may stop and reschedule timers of its own bucket, which have been collected with it. A
// timer that it reschedules runs in a later Advance, however far this one went.
func TestSiblingsOfOneBucket(t *testing.T) {
	t.Parallel()
	for _, to := range []time.Duration{10 * msec, 20 * msec} {
		s := newStory(t, Options{}, 0)
		var stopped, sooner, zero, past, later Timer
		s.AfterFunc(10*msec, func() {
			require.True(t, stopped.Stop())
			require.False(t, stopped.Stop())
			require.True(t, sooner.Reschedule(msec))
			require.True(t, zero.Reschedule(0))
			require.True(t, past.RescheduleAt(modelStart))
			require.True(t, later.Reschedule(time.Hour))
			s.note("first")()
		})
		stopped, sooner = s.after(10*msec, "stopped"), s.after(10*msec, "sooner")
		zero, past = s.after(10*msec, "zero"), s.after(10*msec, "past")
		later = s.after(10*msec, "later")
		s.after(10*msec, "last")
		require.Equal(t, "first last", s.to(to))
		require.Equal(t, "zero past", s.to(to))
		require.Equal(t, "sooner", s.to(to+msec))
		require.Equal(t, "later", s.to(2*time.Hour))
		require.Zero(t, s.Len())
	}
}

// Stop of the wheel by a callback: nothing runs after it, and everything answers as documented.
func TestWheelStoppedByItsCallback(t *testing.T) {
	t.Parallel()
	s := newStory(t, Options{}, 0)
	s.AfterFunc(msec, func() {
		s.note("stops")()
		s.Stop()
		s.Stop()
	})
	e := s.after(msec, "sibling")
	s.after(time.Hour, "far")
	require.Equal(t, "stops", s.to(msec))
	require.Empty(t, s.to(day))
	require.Zero(t, s.Len())
	require.False(t, e.Stop())
	require.False(t, e.Reschedule(msec))
	require.Equal(t, Timer{}, s.after(msec, "late"))
	require.Equal(t, Timer{}, s.AtFunc(modelStart, s.note("late")))
	require.Equal(t, Timer{}, s.ScheduleFunc(Every(msec), s.note("late")))
	_, ok := s.Next()
	require.False(t, ok)
	require.Zero(t, s.Flush())
	require.NoError(t, s.Shutdown(t.Context()))
	require.Empty(t, s.to(2*day))
}
