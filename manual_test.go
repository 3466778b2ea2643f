package timingwheel

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

// Advance panics on a wheel that is not Manual and while another Advance is running.
func TestAdvancePanicsIfNestedOrNotManual(t *testing.T) {
	t.Parallel()
	s := newRecordingWheel(t, Options{}, 0)
	s.AfterFunc(ms, func() {
		require.PanicsWithValue(t, "timingwheel: Advance called while another Advance on the same wheel is under way",
			func() { s.Advance(s.Now().Add(time.Hour)) })
		s.note("nested")()
	})
	require.Equal(t, "nested", s.to(ms))
	require.Equal(t, modelStart.Add(ms), s.Now(), "the nested call must not move the clock")
	tw, err := New(Options{})
	require.NoError(t, err)
	defer tw.Stop()
	require.PanicsWithValue(t, "timingwheel: Advance called on a wheel that is not Manual", func() { tw.Advance(time.Now()) })
	require.Empty(t, s.to(time.Second), "the wheel is usable after the panic")
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

// An executor gets calls from several shards in order of ticks.
func TestManualSubmitsInOrderOfTicks(t *testing.T) {
	t.Parallel()
	var order []time.Duration
	opts := Options{Manual: true, Shards: 3, WheelSize: 4, Executor: ExecutorFunc(func(f func()) { f() })}
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

// An executor that panics may have kept the call or not. In both cases every timer has a call after
// the next Advance, in order of arming, and a call too many does nothing.
func TestEachTimerHasACallAfterTheExecutorPanics(t *testing.T) {
	t.Parallel()
	for name, keeps := range map[string]bool{"having kept the call": true, "having dropped the call": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, n := &held{}, 0
			tw := startWheel(t, Options{Manual: true, Executor: ExecutorFunc(func(f func()) {
				n++
				if n%4 != 0 || keeps {
					h.Go(f)
				}
				if n%4 == 0 {
					panic("refused")
				}
			})})
			ran := 0
			for i := range 10 {
				tw.AfterFunc(time.Millisecond, func() { assert.Equal(t, i, ran); ran++ })
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
	tw := startWheel(t, Options{Manual: true, Executor: ExecutorFunc(func(f func()) { f() })})
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

// A callback that the executor runs immediately stops the wheel. The executor gets no further call.
func TestManualSubmitsNoCallAfterStop(t *testing.T) {
	t.Parallel()
	calls := 0
	tw := startWheel(t, Options{Manual: true, Shards: 2, Executor: ExecutorFunc(func(f func()) { calls++; f() })})
	for id := range 20 {
		tw.AfterFunc(time.Duration(id)*time.Millisecond, tw.Stop)
	}
	assert.Equal(t, 1, tw.Advance(tw.Now().Add(time.Second)))
	assert.Equal(t, 1, calls)
	assert.Zero(t, tw.Flush())
	assert.Equal(t, 1, calls)
}

// Outside Manual mode the executor ends the goroutine of the driver while another call begins.
func TestCallDroppedByGoexitIsNotCountedAsBegun(t *testing.T) {
	t.Parallel()
	h := &held{}
	var n, ran atomic.Int32
	tw := startWheel(t, Options{Shards: 1, Executor: ExecutorFunc(func(f func()) {
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
	tw := startWheel(t, Options{Manual: true, Executor: ExecutorFunc(func(f func()) {
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

// With an executor that runs calls immediately, Advance returns the number of submitted timers, as
// with Inline. It excludes timers that callbacks have stopped, moved, flushed or discarded before.
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
		for _, executor := range []Executor{Inline, ExecutorFunc(func(f func()) { f() })} {
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
	tw := startWheel(t, Options{Manual: true, Executor: ExecutorFunc(func(f func()) {
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

// Next never returns a time after the deadline of a timer that is being claimed meanwhile.
func TestRaceNextOfTheLastTimer(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true, Executor: Goroutines})
	for range scaled(20_000) {
		tw.AfterFunc(0, nothing)
		tw.Advance(tw.Now())
		for at, ok := tw.Next(); ok; at, ok = tw.Next() {
			require.False(t, at.After(tw.Now()))
		}
	}
}
