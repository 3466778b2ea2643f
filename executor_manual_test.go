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

// goFunc is an executor made of a function.
type goFunc func(f func())

func (g goFunc) Go(f func()) { g(f) }

// Advance counts what has become due, whatever calls the executor still holds for timers that are
// gone.
func TestManualAdvanceCountsWhatIsHandedOver(t *testing.T) {
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
	assert.Equal(t, 5, h.len(), "the calls for the stopped timers serve the new ones")
	arm(2)
	assert.Equal(t, 2, step())
	assert.Zero(t, step(), "nothing is handed over twice")
	assert.Equal(t, 6, h.release())
	assert.Equal(t, 6, ran)
	assert.Zero(t, tw.Len())
	verifyShards(t, tw.engine)
}

// An executor gets the calls of several shards in order of ticks.
func TestManualHandsOverInOrderOfTicks(t *testing.T) {
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

// A call that is run at once takes the first timer that is due, perhaps one that another call was
// given for. Whatever the executor runs at once and whatever it keeps, each timer has its call in
// the end.
func TestManualExecutorThatKeepsSomeCalls(t *testing.T) {
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
			for _, s := range tw.engine.shards {
				assert.LessOrEqual(t, s.owner.calls(), 0, "a due timer has no call")
			}
		}
		h.release()
		assert.Equal(t, 100, ran)
		assert.Zero(t, tw.Len())
	}
}

// An executor that panics may have kept the call or not. Either way the next Advance sees to it
// that every timer has one, and a call too many does nothing.
func TestManualExecutorThatPanics(t *testing.T) {
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
			for caught(func() { tw.Advance(now) }) != nil {
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

// What an Advance that unwound has not handed over is handed over, and counted, by the next one.
func TestManualLeftoverIsCounted(t *testing.T) {
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
	require.Equal(t, "boom", caught(func() { tw.Advance(now) }))
	assert.Equal(t, 6, tw.Advance(now))
	assert.Equal(t, 10, n)
	assert.Zero(t, tw.Stats().Running)
}

// A callback that the executor runs at once stops the wheel: the executor is given nothing any
// more.
func TestManualNothingIsHandedOverAfterStop(t *testing.T) {
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

// The executor refuses a call by a panic while another one, which it has kept, begins: the account
// of the calls must not believe that the refused one has.
func TestCallIsRefusedWhileAnotherBegins(t *testing.T) {
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
	require.Equal(t, "refused", caught(func() { tw.Advance(now) }))
	assert.Equal(t, 2, tw.Advance(now))
	h.release()
	assert.Equal(t, 3, ran)
	assert.Zero(t, tw.Len())
}

// The same outside Manual mode, where the executor ends the driver's goroutine.
func TestCallIsDroppedByGoexitWhileAnotherBegins(t *testing.T) {
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
	await(t, "all have run", func() bool { h.release(); return ran.Load() == 3 })
	assert.Zero(t, tw.Len())
}

// A callback recovers from a Flush that has unwound: the Advance around it hands over what that has
// left.
func TestAdvanceHandsOverWhatANestedFlushHasLeft(t *testing.T) {
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
		assert.Equal(t, "refused", caught(func() { tw.Flush() }))
	})
	for range 3 {
		tw.AfterFunc(time.Hour, func() { ran++ })
	}
	tw.Advance(tw.Now().Add(time.Millisecond))
	assert.Equal(t, 3, h.release())
	assert.Equal(t, 4, ran)
}

// With an executor that runs calls at once Advance returns what it has handed over, as with Inline:
// not what callbacks have stopped, moved, flushed or discarded before.
func TestManualAdvanceCountsOnlyWhatItHandsOver(t *testing.T) {
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

// A Flush runs what is overdue before what is not due yet.
func TestManualFlushRunsInOrderOfTicks(t *testing.T) {
	t.Parallel()
	var order []int
	tw := startWheel(t, Options{Manual: true})
	note := func(k int) func() { return func() { order = append(order, k) } }
	tw.AfterFunc(time.Millisecond, boom)
	tw.AfterFunc(time.Millisecond, note(1))
	require.Equal(t, "boom", caught(func() { tw.Advance(tw.Now().Add(time.Millisecond)) }))
	tw.AfterFunc(0, note(2))
	tw.AfterFunc(time.Second, note(3))
	assert.Equal(t, 3, tw.Flush())
	assert.Equal(t, []int{1, 2, 3}, order)
}

// A callback that leaves a call to be given whenever it runs does not keep Advance from returning.
func TestManualAdvanceEndsAlsoWhereEveryFlushUnwinds(t *testing.T) {
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
		assert.Equal(t, "re-entered", caught(func() { tw.Flush() }))
	}
	tw.AfterFunc(time.Millisecond, again)
	tw.Advance(tw.Now().Add(time.Millisecond))
	assert.Equal(t, 2, runs)
	assert.Equal(t, 1, tw.Len())
}
