package timingwheel

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/sampling"
)

// armer returns the name of the test function that has armed a timer: the innermost one of the
// stack.
func armer(o *sampling.Origin) string {
	frames := runtime.CallersFrames(o.PCs)
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); strings.HasSuffix(f.File, "_test.go") {
			return f.Function[strings.LastIndexByte(f.Function, '.')+1:]
		}
	}
	return "the library"
}

// holdersOf returns the number of samples of a wheel by the function that armed the timers.
func holdersOf(e *engine) map[string]int {
	by := map[string]int{}
	e.eachSample(func(o *sampling.Origin, _, _ int64) { by[armer(o)]++ })
	return by
}

// Functions that arm timers. Tests look for them in profiles.

//go:noinline
func armsOne(tw *TimingWheel, d time.Duration) Timer { return tw.AfterFunc(d, func() {}) }

//go:noinline
func armsAnother(tw *TimingWheel, d time.Duration) Timer { return tw.AfterFunc(d, func() {}) }

//go:noinline
func makesTicker(tw *TimingWheel, d time.Duration) *Ticker { return tw.NewTicker(d) }

//go:noinline
func resetsTicker(t *Ticker, d time.Duration) { t.Reset(d) }

//go:noinline
func schedules(tw *TimingWheel, d time.Duration, f func()) Timer { return tw.ScheduleFunc(Every(d), f) }

//go:noinline
func resetsTimer(t *FuncTimer, d time.Duration) { t.Reset(d) }

//go:noinline
func resetsAgain(t *FuncTimer, d time.Duration) { t.Reset(d) }

// Each call that arms a timer is in the profile until the timer is stopped.
func TestProfileHasEachCallThatArms(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{ProfileRate: 1})
	ctx, cancel := context.WithCancel(t.Context())
	slept := make(chan error, 1)
	var embedded FuncTimer
	sleep := func() { slept <- tw.Sleep(ctx, time.Hour) }
	for name, arm := range map[string]func() (stop func() bool){
		"AfterFunc":       func() func() bool { return tw.AfterFunc(time.Hour, func() {}).Stop },
		"AtFunc":          func() func() bool { return tw.AtFunc(time.Now().Add(time.Hour), func() {}).Stop },
		"NewFuncTimer":    func() func() bool { return tw.NewFuncTimer(time.Hour, func() {}).Stop },
		"Init":            func() func() bool { embedded.Init(tw, time.Hour, func() {}); return embedded.Stop },
		"ScheduleFunc":    func() func() bool { return tw.ScheduleFunc(Every(time.Hour), func() {}).Stop },
		"NewChannelTimer": func() func() bool { return tw.NewChannelTimer(time.Hour).Stop },
		"NewTicker": func() func() bool {
			ticker := tw.NewTicker(time.Hour)
			return func() bool { ticker.Stop(); return true }
		},
		"WithTimeout": func() func() bool {
			_, cancel := tw.WithTimeout(t.Context(), time.Hour)
			return func() bool { cancel(); return true }
		},
		"Sleep": func() func() bool {
			go sleep()
			for len(holdersOf(tw.engine)) == 0 {
				time.Sleep(time.Millisecond)
			}
			return func() bool { cancel(); return assert.ErrorIs(t, <-slept, context.Canceled) }
		},
	} {
		stop := arm()
		armed := reflect.ValueOf(arm).Pointer()
		if name == "Sleep" {
			armed = reflect.ValueOf(sleep).Pointer()
		}
		function := runtime.FuncForPC(armed).Name()
		require.Equal(t, map[string]int{function[strings.LastIndexByte(function, '.')+1:]: 1}, holdersOf(tw.engine), name)
		require.True(t, stop(), name)
		require.Empty(t, holdersOf(tw.engine), name)
	}
	require.False(t, embedded.Reset(time.Hour))
	require.Equal(t, map[string]int{"TestProfileHasEachCallThatArms": 1}, holdersOf(tw.engine), "Reset")
}

func TestProfileHasTimeouts(t *testing.T) {
	t.Parallel()
	to, err := NewTimeouts(Options{ProfileRate: 1, Manual: true}, func([]int) {})
	require.NoError(t, err)
	defer to.Stop()
	for n := range 5 {
		to.Add(time.Hour, n)
	}
	require.Equal(t, map[string]int{"TestProfileHasTimeouts": 5}, holdersOf(to.engine))
	require.Len(t, to.RemoveAll(), 5)
	require.Empty(t, holdersOf(to.engine))
}

// A timer that moves keeps its sample until it ends.
func TestProfileFollowsTimers(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true, ProfileRate: 1})
	advance := func(d time.Duration) { tw.Advance(tw.Now().Add(d)) }
	requireHeld := func(want map[string]int) {
		t.Helper()
		require.Equal(t, want, holdersOf(tw.engine))
	}

	timer := armsOne(tw, time.Second)
	require.True(t, timer.Reschedule(time.Hour))
	requireHeld(map[string]int{"armsOne": 1})
	advance(time.Minute)
	require.True(t, timer.Reschedule(time.Second)) // through the inbox
	requireHeld(map[string]int{"armsOne": 1})
	advance(time.Second)
	requireHeld(map[string]int{})

	runs := 0
	plan := schedules(tw, time.Second, func() {
		if runs++; runs == 2 {
			requireHeld(map[string]int{}) // a plan is not pending during a run
		}
	})
	for range 3 {
		advance(time.Second)
		requireHeld(map[string]int{"schedules": 1})
	}
	require.Equal(t, 3, runs)
	require.True(t, plan.Stop())
	requireHeld(map[string]int{})

	ticker := makesTicker(tw, time.Second)
	for range 3 {
		advance(time.Second)
		requireHeld(map[string]int{"makesTicker": 1})
	}
	ticker.Stop()
	requireHeld(map[string]int{})
	resetsTicker(ticker, time.Second)
	advance(time.Second)
	requireHeld(map[string]int{"resetsTicker": 1})
	ticker.Stop()

	tw.AfterFunc(0, func() { armsAnother(tw, time.Hour) }) // the callback, and not the worker that runs it
	advance(0)
	requireHeld(map[string]int{"armsAnother": 1})
	require.Equal(t, 1, tw.Flush())

	armsOne(tw, time.Hour)
	armsAnother(tw, 1<<62) // beyond the range of a word
	requireHeld(map[string]int{"armsOne": 1, "armsAnother": 1})
	require.Equal(t, 2, tw.Flush())
	requireHeld(map[string]int{})

	armsOne(tw, time.Hour)
	tw.Stop()
	requireHeld(map[string]int{})
	require.Nil(t, tw.engine.shards[0].inbox.samples.All, "Stop must release the samples")
	require.NoError(t, tw.WriteProfile(new(bytes.Buffer)))
}

// The ticks of a ticker are sampled if and only if NewTicker was, although each tick arms a timer.
func TestTicksDoNotChangeTheSample(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true, ProfileRate: 2})
	for range 100 {
		makesTicker(tw, time.Second)
	}
	before := holdersOf(tw.engine)
	require.InDelta(t, 50, before["makesTicker"], 30) // 6 standard deviations
	for range 10 {
		tw.Advance(tw.Now().Add(time.Second))
		require.Equal(t, before, holdersOf(tw.engine))
	}
}

// A touched FuncTimer keeps its sample when the wheel looks at it. The wheel is not Manual, because
// in Manual mode Touch works like Reset.
func TestProfileFollowsTouchedTimers(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{ProfileRate: 1})
	var timer FuncTimer
	timer.InitStopped(tw, func() {})
	touched := func() bool { // false: the machine was slow, and the timer has fired
		resetsTimer(&timer, 50*time.Millisecond)
		for before := tw.Stats().Postponed; tw.Stats().Postponed < before+3; time.Sleep(time.Millisecond) {
			if !timer.Touch() {
				return false
			}
		}
		return timer.Reset(time.Hour)
	}
	for end := time.Now().Add(hangTimeout); !touched(); timer.Stop() {
		require.True(t, time.Now().Before(end), "the machine is too slow")
	}
	require.Equal(t, map[string]int{"resetsTimer": 1}, holdersOf(tw.engine))
	timer.Stop()
	require.Empty(t, holdersOf(tw.engine))
}

// A FuncTimer that is armed again has the caller of the last Reset, even if that Reset moves it to
// another shard.
func TestProfileHasTheCallerThatArmedAFuncTimerLast(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{ProfileRate: 1, Shards: 2})
	sendTo(tw, 0)
	ft := new(FuncTimer)
	ft.InitStopped(tw, func() {})
	resetsTimer(ft, time.Hour)
	require.Equal(t, map[string]int{"resetsTimer": 1}, holdersOf(tw.engine))
	ft.Stop()
	resetsAgain(ft, time.Hour)
	require.Equal(t, map[string]int{"resetsAgain": 1}, holdersOf(tw.engine))
	contended(t, tw, func() { resetsTimer(ft, time.Minute) })
	require.Equal(t, map[string]int{"resetsTimer": 1}, holdersOf(tw.engine))
}

func TestProfileTellsAgeAndExpiry(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true, ProfileRate: 1})
	far := 200 * 24 * time.Hour // beyond the range of a word
	timers := map[time.Duration]Timer{time.Hour: armsOne(tw, time.Hour), far: armsAnother(tw, far)}
	check := func(age time.Duration, want map[string]time.Duration) {
		t.Helper()
		got := map[string]time.Duration{}
		tw.engine.eachSample(func(o *sampling.Origin, a, expires int64) {
			require.Equal(t, age, time.Duration(a))
			got[armer(o)] = time.Duration(expires)
		})
		require.Equal(t, want, got)
	}
	check(0, map[string]time.Duration{"armsOne": time.Hour, "armsAnother": far})
	tw.Advance(tw.Now().Add(time.Minute))
	check(time.Minute, map[string]time.Duration{"armsOne": 59 * time.Minute, "armsAnother": far - time.Minute})
	require.True(t, timers[time.Hour].Reschedule(time.Second))
	check(time.Minute, map[string]time.Duration{"armsOne": time.Second, "armsAnother": far - time.Minute})
}

// Samples are proportional to the timers that a function arms, even if functions arm in a fixed
// pattern and other timers enter the inbox in between.
func TestProfileIsUnbiased(t *testing.T) {
	t.Parallel()
	const rate = 16
	n := max(scaled(400_000), 40_000)
	for name, others := range map[string]bool{"arms only": false, "moves and runs of a plan between": true} {
		tw := startWheel(t, Options{Manual: true, ProfileRate: rate})
		plan := tw.ScheduleFunc(Every(time.Millisecond), func() {})
		moved := tw.AfterFunc(1000*time.Hour, func() {})
		for i := range n {
			if i%rate == 0 {
				armsOne(tw, time.Hour) // each 16th arming
			} else {
				armsAnother(tw, time.Hour)
			}
			if others && i%4 == 0 {
				tw.Advance(tw.Now().Add(time.Millisecond))
				moved.Reschedule(1000*time.Hour - time.Duration(i)*time.Millisecond)
			}
		}
		plan.Stop()
		moved.Stop()
		by := holdersOf(tw.engine)
		for function, armed := range map[string]int{"armsOne": n / rate, "armsAnother": n - n/rate} {
			most := 6 * math.Sqrt(float64(armed*rate)) // standard deviations of the estimate
			assert.InDelta(t, armed, by[function]*rate, most, "%s, %s", function, name)
		}
	}
}

// Samples of timers that have ended do not accumulate, and their memory is bounded.
func TestProfileForgetsEndedTimers(t *testing.T) {
	tw := startWheel(t, Options{ProfileRate: 1, Shards: 1})
	for range 100 {
		armsOne(tw, time.Hour)
	}
	loop := func(n int) {
		for range n {
			armsAnother(tw, time.Minute).Stop()
		}
	}
	loop(1000)
	before := heapNow()
	loop(scaled(200_000))
	assert.Less(t, heapNow()-before, int64(slack))
	assert.Less(t, len(tw.engine.shards[0].inbox.samples.All), 500)
	assert.Equal(t, map[string]int{"armsOne": 100}, holdersOf(tw.engine))
	runtime.KeepAlive(tw)
}

func TestProfileNeedsARate(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	armsOne(tw, time.Hour)
	var out bytes.Buffer
	err := tw.WriteProfile(&out)
	require.ErrorIs(t, err, ErrOption)
	require.ErrorContains(t, err, "Options.ProfileRate is 0")
	require.Empty(t, out.Bytes())
}

// Profiles are written while timers of all kinds are armed, stopped and moved, and while the wheel
// is stopped.
func TestRaceProfileAndAllOperations(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{ProfileRate: 2, Shards: 2})
	var work sync.WaitGroup
	var over atomic.Bool
	for g := range 4 {
		work.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			var beat FuncTimer
			beat.Init(tw, 2*time.Millisecond, func() { beat.Reset(time.Millisecond) })
			ticker := tw.NewTicker(time.Millisecond)
			plan := tw.ScheduleFunc(Every(time.Millisecond), func() {})
			defer plan.Stop()
			defer ticker.Stop()
			for !over.Load() {
				timer := armsOne(tw, time.Duration(rng.IntN(5000))*time.Microsecond)
				beat.Touch()
				switch rng.IntN(5) {
				case 0:
					timer.Stop()
				case 1:
					timer.Reschedule(0)
				case 2:
					ticker.Reset(time.Millisecond)
				case 3:
					_, cancel := tw.WithTimeout(t.Context(), time.Millisecond)
					cancel()
				}
			}
		})
	}
	work.Go(func() {
		for !over.Load() {
			assert.NoError(t, tw.WriteProfile(new(bytes.Buffer)))
		}
	})
	time.Sleep(100 * time.Millisecond)
	tw.Stop()
	time.Sleep(10 * time.Millisecond)
	over.Store(true)
	work.Wait()
	assert.Empty(t, holdersOf(tw.engine))
}
