package timingwheel

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a callback or payload refers to, and a wheel that nobody uses any more, are for the garbage
// collector.

// held by nothing but a timer: noinline keeps the callers' frames from referring to it.
//
//go:noinline
func armResource(arm func(f func()) Timer) (Timer, weak.Pointer[resource]) {
	r := new(resource)
	return arm(func() { r.bytes[0]++ }), weak.Make(r)
}

func TestClosureIsReleased(t *testing.T) {
	for name, executor := range map[string]Executor{"default": nil, "Goroutines": Goroutines, "Inline": Inline} {
		t.Run(name, func(t *testing.T) {
			tw := startWheel(t, Options{Executor: executor, Shards: 1})
			other := tw.AfterFunc(time.Hour, func() {}) // keeps the page alive
			arm := func(d time.Duration) func(func()) Timer {
				return func(f func()) Timer { return tw.AfterFunc(d, f) }
			}

			timer, r := armResource(arm(time.Hour))
			runtime.GC()
			require.NotNil(t, r.Value(), "a pending timer holds its closure")
			require.True(t, timer.Stop())
			collected(t, r, "the closure of a stopped timer")
			runtime.KeepAlive(timer)

			timer, r = armResource(arm(0))
			collected(t, r, "the closure of a fired timer")
			assert.False(t, timer.Stop())

			timer, r = armResource(func(f func()) Timer {
				return tw.AfterFunc(0, func() { f(); runtime.Goexit() })
			})
			collected(t, r, "the closure of a callback that called Goexit")
			runtime.KeepAlive(timer)

			timer, r = armResource(func(f func()) Timer { return tw.ScheduleFunc(Every(ms), f) })
			time.Sleep(3 * ms)
			require.True(t, timer.Stop())
			collected(t, r, "the closure of a stopped plan")
			runtime.KeepAlive(timer)

			timer, r = armResource(func(f func()) Timer {
				s := &lastRun{period: ms}
				s.left.Store(2)
				return tw.ScheduleFunc(s, f)
			})
			collected(t, r, "the closure of a plan that has come to its end")
			assert.False(t, timer.Stop())

			timer, r = armResource(arm(time.Hour))
			tw.Stop()
			collected(t, r, "the closure of a pending timer of a stopped wheel")
			assert.False(t, timer.Stop())
			assert.False(t, other.Stop())
			runtime.KeepAlive(tw)
		})
	}
}

// The timer is due and the executor has its call: Stop releases the closure all the same.
func TestClosureOfAHandedOverTimerIsReleasedAtStop(t *testing.T) {
	h := &held{}
	tw := startWheel(t, Options{Executor: h, Shards: 1})
	timer, r := armResource(func(f func()) Timer { return tw.AfterFunc(0, f) })
	await(t, "it is handed over", func() bool { return h.len() > 0 })
	require.True(t, timer.Stop())
	collected(t, r, "the closure")
	h.release()
	runtime.KeepAlive(timer)
}

//go:noinline
func addResource(w *Timeouts[*resource], d time.Duration) (Timer, weak.Pointer[resource]) {
	r := new(resource)
	return w.Add(d, r), weak.Make(r)
}

func TestPayloadIsReleased(t *testing.T) {
	var expired atomic.Int32
	w := startTimeouts(t, Options{Shards: 1}, func(batch []*resource) { expired.Add(int32(len(batch))) })
	keep := w.Add(time.Hour, nil)

	timer, r := addResource(w, time.Hour)
	require.True(t, timer.Stop())
	collected(t, r, "the payload of a stopped timer")

	timer, r = addResource(w, 0)
	await(t, "it expires", func() bool { return expired.Load() == 1 })
	collected(t, r, "an expired payload")
	assert.False(t, timer.Stop())

	timer, r = addResource(w, time.Hour)
	require.Len(t, w.RemoveAll(), 2)
	collected(t, r, "a removed payload")
	assert.False(t, timer.Stop())
	assert.False(t, keep.Stop())

	timer, r = addResource(w, time.Hour)
	w.Stop()
	collected(t, r, "a payload of a stopped wheel")
	runtime.KeepAlive(timer)
	runtime.KeepAlive(w)
}

// forgotten makes a wheel, uses it and forgets it. What is left is a weak pointer to its shard: the
// shard holds everything, and the runtime's timer that is the alarm could hold the shard.
//
//go:noinline
func forgotten(t *testing.T, opts Options, use func(tw *TimingWheel)) weak.Pointer[shardOf[func()]] {
	t.Helper()
	opts.Shards = 1
	tw, err := New(opts)
	require.NoError(t, err)
	use(tw)
	return weak.Make(tw.engine.shards[0])
}

// A wheel without pending timers needs no Stop to be collected, whatever it was used for.
func TestForgottenWheelIsCollected(t *testing.T) {
	uses := map[string]func(tw *TimingWheel){
		"nothing": func(*TimingWheel) {},
		"timers that have fired": func(tw *TimingWheel) {
			for range 100 {
				tw.AfterFunc(ms, func() {})
			}
			assert.NoError(t, drainWheel(tw))
		},
		"far timers, armed and stopped": func(tw *TimingWheel) {
			for range 10 {
				tw.AfterFunc(24*time.Hour, func() {}).Stop()
			}
		},
		"so many of them that no stop switches the alarm off at once": func(tw *TimingWheel) {
			for range 5000 {
				tw.AfterFunc(24*time.Hour, func() {}).Stop()
			}
		},
		"far timers of two buckets, the later one stopped last": func(tw *TimingWheel) {
			for range 5000 {
				tw.AfterFunc(time.Hour, func() {}).Stop()
			}
			a, b := tw.AfterFunc(time.Hour, func() {}), tw.AfterFunc(50*time.Hour, func() {})
			a.Stop()
			b.Stop()
		},
		"the earlier one stopped last": func(tw *TimingWheel) {
			for range 5000 {
				tw.AfterFunc(time.Hour, func() {}).Stop()
			}
			a, b := tw.AfterFunc(time.Hour, func() {}), tw.AfterFunc(50*time.Hour, func() {})
			b.Stop()
			a.Stop()
		},
		"a far timer that was hastened": func(tw *TimingWheel) {
			tw.AfterFunc(24*time.Hour, func() {}).Reschedule(ms)
			assert.NoError(t, drainWheel(tw))
		},
		"a near timer that was postponed and stopped": func(tw *TimingWheel) {
			timer := tw.AfterFunc(2*time.Hour, func() {})
			timer.Reschedule(50 * time.Hour)
			timer.Stop()
		},
		"a flush": func(tw *TimingWheel) {
			tw.AfterFunc(24*time.Hour, func() {})
			tw.Flush()
			assert.NoError(t, drainWheel(tw))
		},
		"a plan that was stopped": func(tw *TimingWheel) {
			tw.ScheduleFunc(Every(24*time.Hour), func() {}).Stop()
		},
		"plans that have ended": func(tw *TimingWheel) {
			last := &lastRun{period: ms}
			last.left.Store(2)
			tw.ScheduleFunc(last, func() {})
			tw.ScheduleRun(overlapping(2), func(Run) {})
			assert.NoError(t, drainWheel(tw))
		},
		"timers and tickers with a channel": func(tw *TimingWheel) {
			<-tw.After(ms)
			timer := tw.NewTimer(ms)
			<-timer.C
			timer.Reset(24 * time.Hour)
			timer.Stop()
			tw.NewTimer(0) // its value is never received
			for range tw.Tick(ms) {
				break
			}
			assert.NoError(t, drainWheel(tw))
		},
		"sleep": func(tw *TimingWheel) {
			ctx, cancel := context.WithCancel(context.Background())
			assert.NoError(t, tw.Sleep(ctx, ms))
			time.AfterFunc(ms, cancel)
			assert.Equal(t, context.Canceled, tw.Sleep(ctx, 24*time.Hour))
		},
		"Stop, with timers pending": func(tw *TimingWheel) {
			tw.AfterFunc(24*time.Hour, func() {})
			tw.Stop()
		},
	}
	for name, use := range uses {
		for _, executor := range []Executor{nil, Goroutines} {
			collected(t, forgotten(t, Options{Executor: executor}, use), "a wheel after "+name)
		}
	}
}

// A wheel with timers pending is not forgotten, though nobody holds it: they fire.
func TestUnreferencedWheelFires(t *testing.T) {
	fired := make(chan struct{})
	forgotten(t, Options{}, func(tw *TimingWheel) { tw.AfterFunc(20*ms, func() { close(fired) }) })
	runtime.GC()
	runtime.GC()
	receive(t, fired, "the timer")
}
