package timingwheel_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

// The idioms at the beginning of docs/migrating.md. Each runs with package time and with a wheel on
// fake time. Both must do the same at the same times.

// funcTimer has the methods of *time.Timer and *timingwheel.FuncTimer that the idioms use.
type funcTimer interface {
	Reset(d time.Duration) bool
	Stop() bool
}

// eventLog records events with their times.
type eventLog struct {
	begun time.Time
	mu    sync.Mutex
	lines []event
}

type event struct {
	ms   int // since the log was begun
	what string
	ok   bool
}

func (d *eventLog) note(what string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, event{int(time.Since(d.begun) / time.Millisecond), what, ok})
}

const ms = time.Millisecond

// afterFunc is time.AfterFunc or TimingWheel.NewFuncTimer.
type afterFunc func(d time.Duration, f func()) funcTimer

var idioms = map[string]func(after afterFunc, d *eventLog){
	// Each event postpones an action that happens when no more events come.
	"debounce": func(after afterFunc, d *eventLog) {
		save := after(20*ms, func() { d.note("saved", true) })
		for _, pause := range []time.Duration{5, 15, 19, 21, 3, 40, 0, 25} {
			time.Sleep(pause * ms)
			d.note("edited", save.Reset(20*ms))
		}
	},
	// A function resets its own timer.
	"self-re-arm": func(after afterFunc, d *eventLog) {
		var mu sync.Mutex // the function may run before the variable is set
		var poll funcTimer
		runs := 0
		mu.Lock()
		poll = after(10*ms, func() {
			mu.Lock()
			defer mu.Unlock()
			if runs++; runs < 5 {
				d.note("polled", poll.Reset(time.Duration(runs)*10*ms))
			}
		})
		mu.Unlock()
	},
	// A timer is stopped while there is nothing to wait for.
	"stop and restart": func(after afterFunc, d *eventLog) {
		retransmit := after(30*ms, func() { d.note("retransmitted", true) })
		for range 3 {
			time.Sleep(20 * ms)
			d.note("acknowledged", retransmit.Stop())
			time.Sleep(50 * ms)
			d.note("sent", retransmit.Reset(30*ms))
		}
		time.Sleep(100 * ms)
		d.note("acknowledged too late", retransmit.Stop())
		d.note("sent", retransmit.Reset(30*ms))
	},
	// A deadline is set, moved earlier and later, and removed.
	"SetDeadline": func(after afterFunc, d *eventLog) {
		timeout := after(time.Hour, func() { d.note("timeout", true) })
		timeout.Stop()
		set := func(at time.Time) {
			if at.IsZero() {
				d.note("removed", timeout.Stop())
				return
			}
			d.note("set", timeout.Reset(time.Until(at)))
		}
		set(time.Now().Add(50 * ms))
		time.Sleep(10 * ms)
		set(time.Now().Add(10 * ms))
		time.Sleep(5 * ms)
		set(time.Time{})
		time.Sleep(50 * ms)
		set(time.Now().Add(-time.Second))
		time.Sleep(5 * ms)
		set(time.Now().Add(7 * ms))
	},
}

func TestIdiomsOfPackageTime(t *testing.T) {
	t.Parallel()
	for name, idiom := range idioms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(after func(tw *timingwheel.TimingWheel) afterFunc) (lines []event) {
				inBubble(t, func(tw *timingwheel.TimingWheel) {
					d := &eventLog{begun: time.Now()}
					idiom(after(tw), d)
					time.Sleep(time.Minute)
					synctest.Wait()
					lines = d.lines
				})
				return lines
			}
			want := run(func(*timingwheel.TimingWheel) afterFunc {
				return func(d time.Duration, f func()) funcTimer { return time.AfterFunc(d, f) }
			})
			got := run(func(tw *timingwheel.TimingWheel) afterFunc {
				return func(d time.Duration, f func()) funcTimer { return tw.NewFuncTimer(d, f) }
			})
			assert.Equal(t, want, got)
			assert.NotEmpty(t, got)
		})
	}
}

// A heartbeat that resets a time.Timer touches a FuncTimer.
func TestIdiomOfHeartbeats(t *testing.T) {
	t.Parallel()
	heartbeat := func(d *eventLog, beat func() bool) []event {
		for _, pause := range []time.Duration{10, 29, 28, 1, 25, 31} {
			time.Sleep(pause * ms)
			d.note("beat", beat())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		return d.lines
	}
	var want, got []event
	inBubble(t, func(*timingwheel.TimingWheel) {
		d := &eventLog{begun: time.Now()}
		timer := time.AfterFunc(30*ms, func() { d.note("cut", true) })
		want = heartbeat(d, func() bool { return timer.Stop() && !timer.Reset(30*ms) })
	})
	inBubble(t, func(tw *timingwheel.TimingWheel) {
		d := &eventLog{begun: time.Now()}
		timer := tw.NewFuncTimer(30*ms, func() { d.note("cut", true) })
		got = heartbeat(d, timer.Touch)
	})
	assert.Equal(t, want, got)
}

// Attempts are repeated until one succeeds. With package time a goroutine leaves the loop over its
// ticker. With a wheel the run stops its plan, and needs no variable that the first run could find
// unset.
func TestIdiomOfRetries(t *testing.T) {
	t.Parallel()
	const succeeds = 4
	var want, got []event
	inBubble(t, func(*timingwheel.TimingWheel) {
		d := &eventLog{begun: time.Now()}
		retry := time.NewTicker(20 * ms)
		go func() {
			defer retry.Stop()
			for n := 1; ; n++ {
				<-retry.C
				if d.note("attempt", n == succeeds); n == succeeds {
					return
				}
			}
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		want = d.lines
	})
	inBubble(t, func(tw *timingwheel.TimingWheel) {
		d := &eventLog{begun: time.Now()}
		tw.ScheduleRun(timingwheel.Every(20*ms), func(r *timingwheel.Run) {
			if d.note("attempt", r.N == succeeds); r.N == succeeds {
				r.Stop()
			}
		})
		time.Sleep(time.Second)
		synctest.Wait()
		got = d.lines
	})
	assert.Len(t, want, succeeds)
	assert.Equal(t, want, got)
}

// After Stop or Reset has returned, the channel of a timer holds no stale value, so it need not be
// drained.
func TestIdiomOfChannels(t *testing.T) {
	t.Parallel()
	wait := func(d *eventLog, c <-chan time.Time, timer funcTimer) []event {
		for _, pause := range []time.Duration{5, 50, 20, 0} {
			time.Sleep(pause * ms)
			synctest.Wait()
			d.note("stopped", timer.Stop())
			d.note("reset", timer.Reset(20*ms))
			select {
			case <-c:
				d.note("stale", false)
			default:
			}
		}
		<-c
		d.note("received", true)
		return d.lines
	}
	var want, got []event
	inBubble(t, func(*timingwheel.TimingWheel) {
		timer := time.NewTimer(10 * ms)
		want = wait(&eventLog{begun: time.Now()}, timer.C, timer)
	})
	inBubble(t, func(tw *timingwheel.TimingWheel) {
		timer := tw.NewChannelTimer(10 * ms)
		got = wait(&eventLog{begun: time.Now()}, timer.C, timer)
	})
	assert.Equal(t, want, got)
}

// inBubble runs f on fake time, with a wheel.
func inBubble(t *testing.T, f func(tw *timingwheel.TimingWheel)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tw, err := timingwheel.New(timingwheel.Options{})
		require.NoError(t, err)
		f(tw)
		require.NoError(t, tw.Shutdown(context.Background()))
		synctest.Wait()
	})
}
