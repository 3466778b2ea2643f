package timingwheel

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Start and Advance set the clock of a Manual wheel. It never goes back.
func TestAdvanceNeverGoesBack(t *testing.T) {
	t.Parallel()
	s := newRecordingWheel(t, Options{}, 1<<60)
	require.True(t, s.Now().Equal(modelStart))
	s.after(ms, "a")
	require.Empty(t, s.to(-time.Hour))
	require.True(t, s.Now().Equal(modelStart))
	require.Equal(t, "a", s.to(time.Hour))
	require.Empty(t, s.to(time.Minute))
	require.True(t, s.Now().Equal(modelStart.Add(time.Hour)))
	s.after(0, "due now")
	require.Equal(t, "due now", s.to(-time.Hour))
}

// Timers run in order of ticks, and in one tick in the order of arming, whatever levels they
// passed.
func TestAdvanceRunsInOrderOfTicksThenOfArming(t *testing.T) {
	t.Parallel()
	s := newRecordingWheel(t, Options{Tick: ms, WheelSize: 4, Levels: 2}, 0)
	s.after(20*ms, "far1")
	e := s.after(9*ms, "reset")
	s.after(10*ms-1, "1")
	s.to(8 * ms) // the ones above have moved to the finest level
	s.after(12*ms, "far2")
	s.after(2*ms, "2")
	s.after(ms+1, "3")
	require.True(t, e.Reschedule(2*ms), "a Reschedule counts as arming")
	s.after(ms, "0")
	require.Equal(t, "0 1 2 3 reset far1 far2", s.to(20*ms))
}

// A Reschedule during an Advance loses no timer, whether the Advance has found the timer due before
// or not.
func TestRaceRescheduleDuringAdvance(t *testing.T) {
	t.Parallel()
	for range scaled(400) {
		s := newRecordingWheel(t, Options{Tick: ms, Shards: 1}, 0)
		timers := make([]Timer, 2000)
		for i := range timers {
			timers[i] = s.AfterFunc(2*ms, func() {})
		}
		moved := make(chan struct{})
		go func() {
			defer close(moved)
			for _, tm := range timers {
				tm.Reschedule(5 * ms)
			}
		}()
		ran := 0
		for k := range 4 {
			runtime.Gosched()
			ran += s.Advance(modelStart.Add(time.Duration(k) * ms))
		}
		<-moved
		ran += s.Advance(s.Now().Add(time.Hour))
		require.Equal(t, len(timers), ran)
		require.Zero(t, s.Len())
	}
}

// A timer that a callback arms runs in a later Advance, even if it is due at once. So a chain of
// zero delays starves neither the caller of Advance nor another timer.
func TestChainOfZeroDelaysStarvesNoTimer(t *testing.T) {
	t.Parallel()
	s := newRecordingWheel(t, Options{}, 0)
	var again func()
	again = func() {
		s.note("zero")()
		s.AfterFunc(0, again)
	}
	s.AfterFunc(0, again)
	s.after(ms, "other")
	require.Equal(t, "zero", s.to(0))
	require.Equal(t, "zero other", s.to(2*ms))
	require.Equal(t, "zero", s.to(2*ms))
	require.Equal(t, 1, s.Len())
}

// If a callback panics or exits, Advance unwinds to its caller and the other timers stay due.
func TestPanicAndGoexitLoseNothingElse(t *testing.T) {
	t.Parallel()
	for _, leave := range []func(){func() { panic("of a callback") }, runtime.Goexit} {
		s := newRecordingWheel(t, Options{}, 0)
		for _, d := range []time.Duration{ms, 2 * ms, time.Second} {
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

func TestAdvanceContinuesAfterAReportedPanic(t *testing.T) {
	t.Parallel()
	var reported []any
	s := newRecordingWheel(t, Options{OnPanic: func(v any, stack []byte) {
		require.Contains(t, string(stack), "TestAdvanceContinuesAfterAReportedPanic")
		reported = append(reported, v)
	}}, 0)
	s.AfterFunc(ms, func() {
		s.note("panics")()
		panic("here")
	})
	s.after(ms, "next")
	require.Equal(t, "panics next", s.to(ms))
	require.Equal(t, []any{"here"}, reported)
}

// Advance panics on a wheel that is not Manual and while another Advance is running.
func TestAdvancePanicsIfNestedOrNotManual(t *testing.T) {
	t.Parallel()
	s := newRecordingWheel(t, Options{}, 0)
	s.AfterFunc(ms, func() {
		require.PanicsWithValue(t, "timingwheel: Advance while another Advance of the same wheel is under way",
			func() { s.Advance(s.Now()) })
		s.note("nested")()
	})
	require.Equal(t, "nested", s.to(ms))
	tw, err := New(Options{})
	require.NoError(t, err)
	defer tw.Stop()
	require.PanicsWithValue(t, "timingwheel: Advance of a wheel that is not Manual", func() { tw.Advance(time.Now()) })
	require.Empty(t, s.to(time.Second), "the wheel is usable after the panic")
}

func TestStopResult(t *testing.T) {
	t.Parallel()
	s := newRecordingWheel(t, Options{WheelSize: 4, Levels: 2}, 0)
	for _, d := range []time.Duration{0, ms, 10 * ms, time.Hour} {
		e := s.after(d, "stopped")
		require.True(t, e.Stop())
		require.False(t, e.Stop(), "a second time")
		require.False(t, e.Reschedule(0), "after Stop")
		_, ok := e.Deadline()
		require.False(t, ok)
	}
	require.Empty(t, s.to(2*time.Hour))
	var e Timer
	e = s.AfterFunc(ms, func() { require.False(t, e.Stop(), "during its own run") })
	s.Advance(s.Now().Add(time.Second))
	require.False(t, e.Stop(), "after the run")
	require.False(t, Timer{}.Stop())
	require.False(t, Timer{}.Reschedule(0))
	require.False(t, Timer{}.RescheduleAt(modelStart))
}

// Reschedule moves a timer earlier, later, to the same time and to the past. The last call decides.
// After the run Reschedule arms nothing.
func TestRescheduleResult(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		moves []time.Duration
		at    time.Duration
	}{
		{[]time.Duration{10 * ms}, 10 * ms},
		{[]time.Duration{3 * ms}, 3 * ms},
		{[]time.Duration{time.Hour}, time.Hour},
		{[]time.Duration{time.Hour, 5 * ms, day, 2 * ms}, 2 * ms},
		{[]time.Duration{2 * ms, day, 50 * ms}, 50 * ms},
		{[]time.Duration{day, 0}, 0},
		{[]time.Duration{-day}, 0},
		{[]time.Duration{0, 5 * ms}, 5 * ms},
	} {
		s := newRecordingWheel(t, Options{WheelSize: 4, Levels: 3}, 1<<50-1<<50%int64(ms))
		e := s.after(10*ms, "reset")
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
		require.False(t, e.Reschedule(ms), "after the run")
		require.Empty(t, s.to(30*day))
	}
}

// A timer that is rescheduled to a past time within the current tick is due at once.
func TestRescheduleToNowWithinTheTick(t *testing.T) {
	t.Parallel()
	s := newRecordingWheel(t, Options{}, 0)
	e := s.after(ms/4, "reset")
	require.Empty(t, s.to(ms/2))
	require.True(t, e.Reschedule(0))
	require.Equal(t, "reset", s.to(ms/2))
}

// A callback may stop and reschedule other timers of its bucket, although they are due already. A
// rescheduled timer runs in a later Advance, however far the current one goes.
func TestCallbackStopsAndReschedulesTimersOfItsBucket(t *testing.T) {
	t.Parallel()
	for _, to := range []time.Duration{10 * ms, 20 * ms} {
		s := newRecordingWheel(t, Options{}, 0)
		var stopped, sooner, zero, past, later Timer
		s.AfterFunc(10*ms, func() {
			require.True(t, stopped.Stop())
			require.False(t, stopped.Stop())
			require.True(t, sooner.Reschedule(ms))
			require.True(t, zero.Reschedule(0))
			require.True(t, past.RescheduleAt(modelStart))
			require.True(t, later.Reschedule(time.Hour))
			s.note("first")()
		})
		stopped, sooner = s.after(10*ms, "stopped"), s.after(10*ms, "sooner")
		zero, past = s.after(10*ms, "zero"), s.after(10*ms, "past")
		later = s.after(10*ms, "later")
		s.after(10*ms, "last")
		require.Equal(t, "first last", s.to(to))
		require.Equal(t, "zero past", s.to(to))
		require.Equal(t, "sooner", s.to(to+ms))
		require.Equal(t, "later", s.to(2*time.Hour))
		require.Zero(t, s.Len())
	}
}

// A callback stops the wheel. No callback runs afterwards, and all methods return what is
// documented.
func TestWheelStoppedByItsCallback(t *testing.T) {
	t.Parallel()
	s := newRecordingWheel(t, Options{}, 0)
	s.AfterFunc(ms, func() {
		s.note("stops")()
		s.Stop()
		s.Stop()
	})
	e := s.after(ms, "sibling")
	s.after(time.Hour, "far")
	require.Equal(t, "stops", s.to(ms))
	require.Empty(t, s.to(day))
	require.Zero(t, s.Len())
	require.False(t, e.Stop())
	require.False(t, e.Reschedule(ms))
	require.Equal(t, Timer{}, s.after(ms, "late"))
	require.Equal(t, Timer{}, s.AtFunc(modelStart, s.note("late")))
	require.Equal(t, Timer{}, s.ScheduleFunc(Every(ms), s.note("late")))
	_, ok := s.Next()
	require.False(t, ok)
	require.Zero(t, s.Flush())
	require.NoError(t, s.Shutdown(t.Context()))
	require.Empty(t, s.to(2*day))
}

// In Manual mode a panic or a Goexit unwinds to the caller of Advance. The other due timers stay
// due.
func TestManualPanicUnwindsToAdvanceAndLosesNothing(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(){"panic": boom, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Manual: true, WheelSize: 4, Levels: 2})
			now := tw.Now()
			var order []int
			for i := range 300 { // two to a tick, over more than one level
				tw.AfterFunc(time.Duration(1+i/2)*time.Millisecond, func() {
					order = append(order, i)
					if i%10 == 3 {
						leave()
					}
				})
			}
			now = now.Add(time.Second)
			for calls := 1; tw.Len() > 0; calls++ {
				require.LessOrEqual(t, calls, 31)
				ended := make(chan any)
				go func() {
					defer func() { ended <- recover() }()
					tw.Advance(now)
				}()
				value := receive(t, ended, "Advance")
				if name == "panic" && calls <= 30 {
					assert.Equal(t, "boom", value)
				} else {
					assert.Nil(t, value)
				}
				verifyShards(t, tw.engine)
			}
			for i := range 300 {
				require.Equal(t, i, order[i])
			}
			assert.Zero(t, tw.Stats().Running)
			require.NoError(t, tw.Shutdown(t.Context()))
		})
	}
}

// With OnPanic the same panics are reported, and one Advance runs all due timers.
func TestManualOnPanicRunsAllDueTimers(t *testing.T) {
	t.Parallel()
	reported := 0
	tw := startWheel(t, Options{Manual: true, OnPanic: func(value any, stack []byte) {
		reported++
		assert.Equal(t, "boom", value)
		assert.Contains(t, string(stack), "timingwheel.boom(")
	}})
	for range 10 {
		tw.AfterFunc(time.Millisecond, boom)
	}
	assert.Equal(t, 10, tw.Advance(tw.Now().Add(time.Millisecond)))
	assert.Equal(t, 10, reported)
}

func TestNestedAdvancePanics(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true})
	var value any
	ran := false
	tw.AfterFunc(time.Millisecond, func() {
		defer func() { value = recover() }()
		tw.Advance(tw.Now().Add(time.Hour))
	})
	tw.AfterFunc(2*time.Millisecond, func() { ran = true })
	start := tw.Now()
	assert.Equal(t, 1, tw.Advance(start.Add(time.Millisecond)))
	message, _ := value.(string)
	assert.True(t, strings.HasPrefix(message, "timingwheel: Advance while another Advance"), message)
	assert.Equal(t, start.Add(time.Millisecond), tw.Now(), "the nested call must not move the clock")
	assert.False(t, ran)
	assert.Equal(t, 1, tw.Advance(start.Add(2*time.Millisecond)), "Advance still works")
	assert.True(t, ran)
}

// goFunc is a function that implements Executor.
type goFunc func(f func())

func (g goFunc) Go(f func()) { g(f) }

// Advance counts the timers that have become due, also if the executor still has calls for stopped
// timers.
func TestManualAdvanceCountsSubmittedTimers(t *testing.T) {
	t.Parallel()
	h := &held{}
	tw := startWheel(t, Options{Manual: true, Executor: h})
	ran := 0
	arm := func(n int) (timers []Timer) {
		for range n {
			timers = append(timers, tw.AfterFunc(time.Millisecond, func() { ran++ }))
		}
		return timers
	}
	step := func() int { return tw.Advance(tw.Now().Add(time.Millisecond)) }
	first := arm(5)
	assert.Equal(t, 5, step())
	for _, timer := range first[:3] {
		assert.True(t, timer.Stop())
	}
	arm(2)
	assert.Equal(t, 2, step())
	assert.Equal(t, 7, h.len(), "each timer has a call of its own")
	arm(2)
	assert.Equal(t, 2, step())
	assert.Zero(t, step(), "no call is submitted twice")
	assert.Equal(t, 9, h.release())
	assert.Equal(t, 6, ran)
	assert.Zero(t, tw.Len())
	verifyShards(t, tw.engine)
}

// An executor gets the calls of several shards in order of ticks.
func TestManualSubmitsInOrderOfTicks(t *testing.T) {
	t.Parallel()
	var order []time.Duration
	opts := Options{Manual: true, Shards: 3, WheelSize: 4, Executor: goFunc(func(f func()) { f() })}
	tw := startWheel(t, opts)
	sut := subjectOf(tw.engine, func(id int) func() {
		return func() { order = append(order, time.Duration(id)*time.Millisecond) }
	})
	for id := 90; id > 0; id-- {
		sut.add(id%3, time.Duration(id)*time.Millisecond, id)
	}
	require.Equal(t, 90, tw.Advance(tw.Now().Add(time.Second)))
	require.Len(t, order, 90)
	for i, d := range order {
		require.Equal(t, time.Duration(i+1)*time.Millisecond, d)
	}
}

// A call that runs at once claims the first due timer, perhaps one for which another call was
// submitted. Whichever calls the executor runs at once or keeps, each due timer has a call at the
// end.
func TestEachTimerHasACallIfTheExecutorKeepsSome(t *testing.T) {
	t.Parallel()
	for every := 1; every <= 5; every++ {
		h, n := &held{}, 0
		tw := startWheel(t, Options{Manual: true, Shards: 2, WheelSize: 4, Executor: goFunc(func(f func()) {
			if n++; n%every == 0 {
				f()
			} else {
				h.Go(f)
			}
		})})
		ran := 0
		for id := range 100 {
			tw.AfterFunc(time.Duration(id/4)*time.Millisecond, func() {
				if ran++; ran%7 == 0 {
					tw.Flush()
				}
			})
		}
		for step := range 30 {
			tw.Advance(tw.Now().Add(time.Millisecond))
			if step%3 == 0 {
				h.release()
			}
			verifyShards(t, tw.engine)
			assert.Zero(t, tw.engine.dues[0].Stats().Queued, "a due timer has no call")
		}
		h.release()
		assert.Equal(t, 100, ran)
		assert.Zero(t, tw.Len())
	}
}

// An executor that panics may have kept the call or not. In both cases every timer has a call after
// the next Advance, and a call too many does nothing.
func TestEachTimerHasACallAfterTheExecutorPanics(t *testing.T) {
	t.Parallel()
	for name, keeps := range map[string]bool{"having kept the call": true, "having dropped the call": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, n := &held{}, 0
			tw := startWheel(t, Options{Manual: true, Executor: goFunc(func(f func()) {
				n++
				if n%4 != 0 || keeps {
					h.Go(f)
				}
				if n%4 == 0 {
					panic("refused")
				}
			})})
			ran := 0
			for range 10 {
				tw.AfterFunc(time.Millisecond, func() { ran++ })
			}
			now := tw.Now().Add(time.Millisecond)
			unwound := 0
			for panicValue(func() { tw.Advance(now) }) != nil {
				unwound++
				require.Equal(t, 10, tw.Len())
				require.Less(t, unwound, 10)
			}
			assert.Positive(t, unwound)
			h.release()
			assert.Equal(t, 10, ran)
			tw.AfterFunc(time.Millisecond, func() { ran++ })
			n = 0
			assert.Equal(t, 1, tw.Advance(now.Add(time.Millisecond)))
			h.release()
			assert.Equal(t, 11, ran)
			verifyShards(t, tw.engine)
		})
	}
}

// If a panic ends an Advance, the next Advance submits and counts the remaining timers.
func TestAdvanceCountsTimersLeftByAPanic(t *testing.T) {
	t.Parallel()
	n := 0
	tw := startWheel(t, Options{Manual: true, Executor: goFunc(func(f func()) { f() })})
	for range 10 {
		tw.AfterFunc(time.Millisecond, func() {
			if n++; n == 4 {
				boom()
			}
		})
	}
	now := tw.Now().Add(time.Millisecond)
	require.Equal(t, "boom", panicValue(func() { tw.Advance(now) }))
	assert.Equal(t, 6, tw.Advance(now))
	assert.Equal(t, 10, n)
	assert.Zero(t, tw.Stats().Running)
}

// A callback that the executor runs at once stops the wheel. The executor gets no further call.
func TestManualSubmitsNoCallAfterStop(t *testing.T) {
	t.Parallel()
	calls := 0
	tw := startWheel(t, Options{Manual: true, Shards: 2, Executor: goFunc(func(f func()) { calls++; f() })})
	for id := range 20 {
		tw.AfterFunc(time.Duration(id)*time.Millisecond, tw.Stop)
	}
	assert.Equal(t, 1, tw.Advance(tw.Now().Add(time.Second)))
	assert.Equal(t, 1, calls)
	assert.Zero(t, tw.Flush())
	assert.Equal(t, 1, calls)
}

// The executor refuses a call by a panic while another call, which it has kept, begins. The count
// of queued calls must not take the refused call for a call that has begun.
func TestRefusedCallIsNotCountedAsBegun(t *testing.T) {
	t.Parallel()
	h, n, ran := &held{}, 0, 0
	tw := startWheel(t, Options{Manual: true, Executor: goFunc(func(f func()) {
		if n++; n == 2 {
			h.release()
			panic("refused")
		}
		h.Go(f)
	})})
	for range 3 {
		tw.AfterFunc(time.Millisecond, func() { ran++ })
	}
	now := tw.Now().Add(time.Millisecond)
	require.Equal(t, "refused", panicValue(func() { tw.Advance(now) }))
	assert.Equal(t, 2, tw.Advance(now))
	h.release()
	assert.Equal(t, 3, ran)
	assert.Zero(t, tw.Len())
}

// The same holds outside Manual mode, if the executor ends the goroutine of the driver.
func TestCallDroppedByGoexitIsNotCountedAsBegun(t *testing.T) {
	t.Parallel()
	h := &held{}
	var n, ran atomic.Int32
	tw := startWheel(t, Options{Shards: 1, Executor: goFunc(func(f func()) {
		if n.Add(1) == 2 {
			h.release()
			runtime.Goexit()
		}
		h.Go(f)
	})})
	at := time.Now().Add(time.Millisecond)
	for range 3 {
		tw.AtFunc(at, func() { ran.Add(1) })
	}
	await(t, "all callbacks have run", func() bool { h.release(); return ran.Load() == 3 })
	assert.Zero(t, tw.Len())
}

// A callback recovers from a Flush that has unwound. The surrounding Advance submits the missing
// calls.
func TestAdvanceSubmitsCallsThatANestedFlushHasLeft(t *testing.T) {
	t.Parallel()
	h, refuse, ran := &held{}, false, 0
	tw := startWheel(t, Options{Manual: true, Executor: goFunc(func(f func()) {
		switch {
		case refuse:
			refuse = false
			panic("refused")
		case ran == 0:
			f()
		default:
			h.Go(f)
		}
	})})
	tw.AfterFunc(time.Millisecond, func() {
		ran++
		refuse = true
		assert.Equal(t, "refused", panicValue(func() { tw.Flush() }))
	})
	for range 3 {
		tw.AfterFunc(time.Hour, func() { ran++ })
	}
	tw.Advance(tw.Now().Add(time.Millisecond))
	assert.Equal(t, 3, h.release())
	assert.Equal(t, 4, ran)
}

// With an executor that runs calls at once, Advance returns the number of submitted timers, as with
// Inline. It excludes timers that callbacks have stopped, moved, flushed or discarded before.
func TestManualAdvanceCountsOnlySubmittedTimers(t *testing.T) {
	t.Parallel()
	const n = 4
	for name, act := range map[string]func(tw *TimingWheel, timers []Timer){
		"stop": func(_ *TimingWheel, timers []Timer) {
			for _, timer := range timers {
				timer.Stop()
			}
		},
		"reset": func(_ *TimingWheel, timers []Timer) {
			for _, timer := range timers {
				timer.Reschedule(0)
			}
		},
		"flush":        func(tw *TimingWheel, _ []Timer) { tw.Flush() },
		"stop of all":  func(tw *TimingWheel, _ []Timer) { tw.Stop() },
		"shutdown":     func(tw *TimingWheel, _ []Timer) { go tw.Shutdown(context.Background()); tw.Stop() },
		"stop further": func(_ *TimingWheel, timers []Timer) { timers[n-1].Stop() },
	} {
		for _, executor := range []Executor{Inline, goFunc(func(f func()) { f() })} {
			tw := startWheel(t, Options{Manual: true, Executor: executor})
			timers := make([]Timer, n)
			first := true
			for i := range timers {
				timers[i] = tw.AfterFunc(time.Millisecond, func() {
					if first {
						first = false
						act(tw, timers)
					}
				})
			}
			want := 1
			if name == "stop further" {
				want = n - 1
			}
			assert.Equal(t, want, tw.Advance(tw.Now().Add(time.Millisecond)), "%s, %T", name, executor)
		}
	}
}

// A Flush runs overdue timers before the others.
func TestManualFlushRunsInOrderOfTicks(t *testing.T) {
	t.Parallel()
	var order []int
	tw := startWheel(t, Options{Manual: true})
	note := func(k int) func() { return func() { order = append(order, k) } }
	tw.AfterFunc(time.Millisecond, boom)
	tw.AfterFunc(time.Millisecond, note(1))
	require.Equal(t, "boom", panicValue(func() { tw.Advance(tw.Now().Add(time.Millisecond)) }))
	tw.AfterFunc(0, note(2))
	tw.AfterFunc(time.Second, note(3))
	assert.Equal(t, 3, tw.Flush())
	assert.Equal(t, []int{1, 2, 3}, order)
}

// A callback leaves a missing call behind whenever it runs. Advance returns nevertheless.
func TestManualAdvanceReturnsIfEveryFlushUnwinds(t *testing.T) {
	t.Parallel()
	within, runs := false, 0
	tw := startWheel(t, Options{Manual: true, Executor: goFunc(func(f func()) {
		if within {
			panic("re-entered")
		}
		within = true
		defer func() { within = false }()
		f()
	})})
	var again func()
	again = func() {
		runs++
		tw.AfterFunc(time.Hour, again)
		assert.Equal(t, "re-entered", panicValue(func() { tw.Flush() }))
	}
	tw.AfterFunc(time.Millisecond, again)
	tw.Advance(tw.Now().Add(time.Millisecond))
	assert.Equal(t, 2, runs)
	assert.Zero(t, tw.Len())
}
