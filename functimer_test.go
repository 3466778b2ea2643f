package timingwheel

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// timerLike has the methods that FuncTimer and *time.Timer have in common.
type timerLike interface {
	Reset(d time.Duration) bool
	Stop() bool
}

// touchable is a *time.Timer with a method Touch, as a specification of FuncTimer.Touch.
type touchable struct {
	*time.Timer
	timeout time.Duration
}

func (t *touchable) Reset(d time.Duration) bool {
	t.timeout = d
	return t.Timer.Reset(d)
}

func (t *touchable) Touch() bool {
	return t.Stop() && !t.Timer.Reset(t.timeout)
}

// A FuncTimer and a timer of package time get the same random calls. Both must return the same
// results and call their functions at the same times. Durations are whole ticks, because the wheel
// rounds up to them.
func TestModelFuncTimerBehavesLikePackageTime(t *testing.T) {
	t.Parallel()
	for seed := range uint64(scaled(400)) {
		rng := rand.New(rand.NewPCG(seed, 1))
		opts := tiny[rng.IntN(len(tiny))]
		opts.Tick, opts.Shards = ms, 1
		bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
			ran := [2]*stopwatch{newStopwatch(), newStopwatch()}
			var both [2]timerLike
			var again atomic.Int64 // in ms: duration to which the callback resets its timer, if positive
			callback := func(k int) func() {
				return func() {
					ran[k].note()
					if d := again.Load(); d > 0 && len(ran[k].noted())%3 == 0 {
						both[k].Reset(time.Duration(d) * ms)
					}
				}
			}
			first := time.Duration(1+rng.IntN(40)) * ms
			ft, std := tw.NewFuncTimer(first, callback(0)), &touchable{time.AfterFunc(first, callback(1)), first}
			both[0], both[1] = ft, std
			for step := range 60 {
				what := fmt.Sprintf("seed %d, step %d", seed, step)
				again.Store(int64(rng.IntN(20) - 5))
				switch rng.IntN(8) {
				case 0:
					require.Equal(t, std.Stop(), ft.Stop(), what)
				case 1, 2:
					d := time.Duration(rng.IntN(80)-4) * ms
					require.Equal(t, std.Reset(d), ft.Reset(d), what)
				case 3, 4:
					require.Equal(t, std.Touch(), ft.Touch(), what)
				case 5:
					require.Equal(t, std.Touch(), ft.TouchFrom(time.Now()), what)
				default:
					pass(time.Duration(rng.IntN(50)) * ms)
				}
				pass(0)
				require.Equal(t, ran[1].noted(), ran[0].noted(), what)
				verifyShards(t, tw.engine)
			}
			std.Stop()
			ft.Stop()
			assert.Zero(t, tw.Len())
		})
	}
}

func TestTouchPostponesTheCall(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		watch := newStopwatch()
		ft := tw.NewFuncTimer(10*ms, watch.note)
		for range 5 {
			pass(9 * ms)
			assert.True(t, ft.Touch())
		}
		pass(100 * ms)
		assert.Equal(t, []int{55}, watch.noted())
		assert.False(t, ft.Touch(), "Touch after the timer has fired")
		pass(100 * ms)
		assert.Len(t, watch.noted(), 1)
		st := tw.Stats()
		assert.Equal(t, uint64(1), st.Armed)
		assert.Equal(t, uint64(1), st.Fired)
		assert.NotZero(t, st.Postponed)
		assert.Zero(t, st.Pending)
	})
}

func TestTouchNeverMakesADeadlineEarlier(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		watch := newStopwatch()
		ft := tw.NewFuncTimer(20*ms, watch.note)
		assert.True(t, ft.TouchFrom(time.Now().Add(-15*ms)))
		assert.True(t, ft.TouchFrom(time.Now().Add(-time.Hour)))
		pass(19 * ms)
		assert.Empty(t, watch.noted())
		pass(ms)
		assert.Equal(t, []int{20}, watch.noted())
	})
}

func TestTouchFromAcceptsTimesWithoutAMonotonicReading(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		watch := newStopwatch()
		ft := tw.NewFuncTimer(20*ms, watch.note)
		pass(10 * ms)
		assert.True(t, ft.TouchFrom(time.Now().Round(0)))
		pass(100 * ms)
		assert.Equal(t, []int{30}, watch.noted())
	})
}

func TestDeadlineOfAFuncTimer(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		start := time.Now()
		ft := tw.NewFuncTimer(20*ms, func() {})
		until := func() time.Duration {
			at, ok := ft.Deadline()
			require.True(t, ok)
			return at.Sub(start)
		}
		assert.Equal(t, 20*ms, until())
		pass(5 * ms)
		require.True(t, ft.Touch())
		assert.Equal(t, 25*ms, until())
		require.True(t, ft.Reset(time.Microsecond))
		assert.Equal(t, 6*ms, until(), "rounded up to a tick")
		pass(ms)
		at, ok := ft.Deadline()
		assert.Equal(t, time.Time{}, at)
		assert.False(t, ok, "the timer has fired")
		ft.Reset(time.Hour)
		ft.Stop()
		_, ok = ft.Deadline()
		assert.False(t, ok, "the timer was stopped")
		ft.Reset(time.Hour)
		tw.Stop()
		_, ok = ft.Deadline()
		assert.False(t, ok, "the wheel was stopped")
	})
	_, ok := new(FuncTimer).Deadline()
	assert.False(t, ok)
}

func TestTouchUsesTheTimeoutOfTheLastReset(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		watch := newStopwatch()
		ft := tw.NewFuncTimer(time.Hour, watch.note)
		assert.True(t, ft.Reset(30*ms))
		pass(20 * ms)
		assert.True(t, ft.Touch())
		pass(time.Second)
		assert.Equal(t, []int{50}, watch.noted())
	})
}

func TestFuncTimerBeforeItIsInitialisedOrArmed(t *testing.T) {
	t.Parallel()
	var ft FuncTimer
	assert.False(t, ft.Stop())
	assert.False(t, ft.Touch())
	assert.False(t, ft.TouchFrom(time.Now()))
	assert.PanicsWithValue(t, "timingwheel: Reset of a FuncTimer that was not initialised", func() { ft.Reset(1) })
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		assert.PanicsWithValue(t, "timingwheel: FuncTimer with a nil function", func() { tw.NewFuncTimer(1, nil) })
		assert.PanicsWithValue(t, "timingwheel: FuncTimer with a nil wheel", func() { new(FuncTimer).Init(nil, 1, func() {}) })
		assert.PanicsWithValue(t, "timingwheel: Init of a FuncTimer that was initialised before", func() {
			tw.NewFuncTimer(time.Hour, func() {}).Init(tw, 1, boom)
		})
		var ft FuncTimer
		watch := newStopwatch()
		ft.InitStopped(tw, watch.note)
		assert.False(t, ft.Touch())
		assert.False(t, ft.Stop())
		pass(time.Hour)
		assert.Empty(t, watch.noted())
		assert.False(t, ft.Reset(5*ms))
		assert.True(t, ft.Touch())
		pass(time.Hour)
		assert.Len(t, watch.noted(), 1)
	})
}

func TestFuncTimerAcceptsAnyDuration(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{math.MinInt64, -time.Hour, -1, 0, 1} {
		bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
			watch := newStopwatch()
			ft := tw.NewFuncTimer(d, watch.note)
			pass(ms)
			assert.Len(t, watch.noted(), 1, d)
			assert.False(t, ft.Reset(d))
			pass(ms)
			assert.Len(t, watch.noted(), 2, d)
		})
	}
	for _, d := range []time.Duration{200 * oneYear, math.MaxInt64} {
		bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
			watch := newStopwatch()
			ft := tw.NewFuncTimer(d, watch.note)
			pass(oneYear)
			assert.True(t, ft.Touch())
			assert.True(t, ft.Reset(d))
			assert.Empty(t, watch.noted())
			assert.True(t, ft.Reset(ms))
			pass(2 * ms)
			assert.Len(t, watch.noted(), 1)
		})
	}
}

func TestFuncTimerOnAStoppedWheelIsInert(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	ft := tw.NewFuncTimer(time.Hour, boom)
	tw.Stop()
	assert.False(t, ft.Touch())
	assert.False(t, ft.Reset(0))
	assert.False(t, ft.Reset(2*time.Hour))
	assert.False(t, ft.Stop())
	assert.False(t, tw.NewFuncTimer(0, boom).Touch())
	st := tw.Stats()
	assert.Equal(t, uint64(1), st.Armed)
	assert.Equal(t, uint64(1), st.Discarded)
}

func TestFlushCallsFuncTimersThatWereTouched(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		watch := newStopwatch()
		ft := tw.NewFuncTimer(10*ms, watch.note)
		untouched := tw.NewFuncTimer(10*ms, watch.note)
		pass(5 * ms)
		require.True(t, ft.Touch())
		assert.Equal(t, 2, tw.Flush())
		pass(0)
		assert.Equal(t, []int{5, 5}, watch.noted())
		assert.False(t, untouched.Reset(10*ms))
		assert.False(t, ft.Reset(10*ms))
		pass(5 * ms)
		require.True(t, ft.Touch())
		pass(100 * ms)
		assert.Equal(t, []int{5, 5, 15, 20}, watch.noted(), "a Flush makes one call of each timer")
	})
}

func TestFlushClaimsFuncTimers(t *testing.T) {
	t.Parallel()
	calls := new(held)
	bubble(t, Options{Executor: calls}, func(t *testing.T, tw *TimingWheel) {
		watch := newStopwatch()
		touched, reset := tw.NewFuncTimer(10*ms, watch.note), tw.NewFuncTimer(10*ms, watch.note)
		stopped := tw.NewFuncTimer(10*ms, watch.note)
		tw.NewFuncTimer(10*ms, watch.note)
		pass(ms)
		assert.Equal(t, 4, tw.Flush())
		pass(ms)
		assert.False(t, touched.Touch())
		assert.False(t, reset.Reset(20*ms), "it is armed again, in addition")
		assert.False(t, stopped.Stop())
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, stopped.StopWait(ended), context.Canceled, "the call is under way")
		calls.release()
		assert.Equal(t, []int{2, 2, 2, 2}, watch.noted())
		assert.NoError(t, stopped.StopWait(ended))
		for range 30 {
			pass(ms)
			calls.release()
		}
		assert.Equal(t, []int{2, 2, 2, 2, 22}, watch.noted())
	})
}

// In Manual mode touched timers run in the order of their ticks. Within a tick they run in the
// order of the calls that have set their deadlines.
func TestTouchedFuncTimersRunInOrder(t *testing.T) {
	t.Parallel()
	s := newRecordingWheel(t, Options{}, 0)
	a := s.NewFuncTimer(10*ms, s.note("a"))
	s.to(5 * ms)
	require.True(t, a.Touch()) // to 15 ms
	s.after(7*ms, "b")         // 12 ms
	s.after(10*ms, "c")        // 15 ms
	assert.Equal(t, "b a c", s.to(20*ms))
}

// The wheel looks at a touched timer at the end of the tick and not earlier. Otherwise Advance
// would count a timer that does not run.
func TestTouchWithZeroTimeoutIsNotCountedTwice(t *testing.T) {
	t.Parallel()
	for name, touch := range map[string]func(s *recordingWheel, ft *FuncTimer){
		"in the middle of a tick": func(_ *recordingWheel, ft *FuncTimer) { ft.Touch() },
		"ahead of the clock":      func(s *recordingWheel, ft *FuncTimer) { ft.TouchFrom(s.Now().Add(ms / 4)) },
	} {
		s := newRecordingWheel(t, Options{}, 0)
		s.to(10*ms + ms/2)
		ft := s.NewFuncTimer(0, s.note("ran"))
		touch(s, ft)
		assert.Empty(t, s.to(10*ms+ms/2), name)
		assert.Empty(t, s.to(11*ms-1), name)
		assert.Equal(t, "ran", s.to(11*ms), name)
	}
}

// A zero delay means at once, even in the middle of a tick.
func TestFuncTimerWithZeroDelayFiresAtOnceWithinATick(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Tick: time.Second}, func(t *testing.T, tw *TimingWheel) {
		time.Sleep(400 * ms)
		watch := newStopwatch()
		ft := tw.NewFuncTimer(0, watch.note)
		pass(0)
		assert.Equal(t, []int{0}, watch.noted())
		ft.Reset(time.Hour)
		assert.True(t, ft.Reset(-1))
		pass(0)
		assert.Equal(t, []int{0, 0}, watch.noted())
	})
	s := newRecordingWheel(t, Options{}, 0)
	s.to(10*ms + ms/2)
	s.after(0, "AfterFunc")
	s.NewFuncTimer(0, s.note("FuncTimer"))
	assert.Equal(t, "AfterFunc FuncTimer", s.to(10*ms+ms/2))
	assert.Empty(t, s.to(10*ms+ms/2))
}

// A Touch that moves the deadline within the tick in which the wheel looks at the timer costs one
// more look.
func TestTouchWithinATickPostponesOnce(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Tick: time.Second}, func(t *testing.T, tw *TimingWheel) {
		watch := newStopwatch()
		ft := tw.NewFuncTimer(time.Second, watch.note)
		tw.Len() // places the timer
		time.Sleep(300 * ms)
		require.True(t, ft.Touch())
		pass(time.Minute)
		assert.Equal(t, []int{2000}, watch.noted())
		assert.Equal(t, uint64(1), tw.Stats().Postponed)
	})
}

// A Touch that does not reach another tick leaves Deadline as it is.
func TestDeadlineUnchangedByATouchWithinATick(t *testing.T) {
	t.Parallel()
	bubble(t, Options{Tick: time.Second}, func(t *testing.T, tw *TimingWheel) {
		ft := tw.NewFuncTimer(1500*ms, func() {})
		before, _ := ft.Deadline()
		time.Sleep(400 * ms)
		require.True(t, ft.Touch())
		after, ok := ft.Deadline()
		assert.True(t, ok)
		assert.Equal(t, before, after)
	})
}

// A Touch that races with a Reset to a shorter timeout uses the old timeout or the new one. The
// deadline of a Reset that comes last holds.
func TestRaceTouchDoesNotUndoAShorterReset(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 1})
	ft := tw.NewFuncTimer(time.Hour, boom)
	rounds := int64(scaled(50_000))
	var begun, done atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		for k := int64(1); k <= rounds; k++ {
			for begun.Load() < k {
				runtime.Gosched()
			}
			ft.Touch()
			done.Store(k)
		}
	})
	undone := 0
	for k := int64(1); k <= rounds; k++ {
		ft.Reset(time.Hour)
		begun.Store(k)
		spin(time.Duration(k%200) * time.Nanosecond)
		ft.Reset(10 * time.Minute)
		for done.Load() < k {
			runtime.Gosched()
		}
		if at, ok := ft.Deadline(); !ok || time.Until(at) > 50*time.Minute {
			undone++
		}
	}
	all.Wait()
	assert.Zero(t, undone)
	ft.Stop()
}

// An armed timer is pending at all times, even while the wheel looks at it.
func TestRaceTouchedFuncTimerIsAlwaysPending(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Tick: minTick, Shards: 1})
	ft := tw.NewFuncTimer(time.Hour, func() {})
	wrong := 0
	for k := range scaled(2_000) {
		ft.Reset(20 * time.Microsecond)
		spin(time.Duration(k%100) * 100 * time.Nanosecond)
		if !ft.Reset(time.Hour) {
			continue // the timer has fired
		}
		for range 30 {
			if _, ok := tw.Next(); !ok || tw.Len() != 1 {
				wrong++
			}
			st := tw.Stats()
			if st.Armed != st.Fired+st.Stopped+uint64(st.Pending) {
				wrong++
			}
		}
	}
	assert.Zero(t, wrong)
	ft.Stop()
}

// Touches race with the expiry. After a Touch that returned true, the function is not called before
// the whole timeout has passed.
func TestRaceCallIsNotEarlyAfterATouch(t *testing.T) {
	t.Parallel()
	for _, opts := range tiny {
		tw := startWheel(t, opts)
		const timeout = 300 * time.Microsecond
		for range scaled(100) {
			start := time.Now()
			var calledAt, promised atomic.Int64
			called := make(chan struct{})
			ft := tw.NewFuncTimer(timeout, func() {
				calledAt.Store(int64(time.Since(start)))
				close(called)
			})
			var all sync.WaitGroup
			for k := range 3 {
				all.Go(func() {
					for n := 0; n < 50; n++ {
						before := int64(time.Since(start))
						ok := ft.Touch()
						if !ok {
							return
						}
						for p := promised.Load(); p < before+int64(timeout) && !promised.CompareAndSwap(p, before+int64(timeout)); {
							p = promised.Load()
						}
						if (n+k)%7 == 0 {
							spin(timeout * 9 / 10)
						}
					}
				})
			}
			all.Wait()
			receive(t, called, "the call")
			if early := promised.Load() - calledAt.Load(); early > 0 {
				t.Fatalf("%s: early by %v", optionName(opts), time.Duration(early))
			}
			require.False(t, ft.Touch())
		}
		verifyShards(t, tw.engine)
	}
}

// Reset, Stop, Touch, Flush and the expiry race. Each arming, which is a Reset that returned false,
// ends in one call of the function or in one Stop that returned true.
func TestRaceFuncTimerIsExact(t *testing.T) {
	t.Parallel()
	for _, opts := range tiny {
		tw := startWheel(t, opts)
		const timers = 8
		var fts [timers]FuncTimer
		var armed, called, stopped [timers]atomic.Int64
		for k := range fts {
			fts[k].InitStopped(tw, func() {
				if n := called[k].Add(1); n%5 == 0 && !fts[k].Reset(time.Duration(n%3)*opts.Tick) {
					armed[k].Add(1)
				}
			})
		}
		var all sync.WaitGroup
		for g := range 4 {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 2))
				for range scaled(5_000) {
					k := rng.IntN(timers)
					switch rng.IntN(6) {
					case 0, 1:
						if !fts[k].Reset(time.Duration(rng.IntN(4)) * opts.Tick) {
							armed[k].Add(1)
						}
					case 2, 3:
						fts[k].Touch()
					case 4:
						if fts[k].Stop() {
							stopped[k].Add(1)
						}
					default:
						runtime.Gosched()
					}
				}
			})
		}
		concurrently(func() { tw.Flush(); tw.Len(); runtime.Gosched() }, all.Wait)
		require.NoError(t, drainWheel(tw), optionName(opts))
		var a, c, s uint64
		for k := range fts {
			assert.Equal(t, armed[k].Load(), called[k].Load()+stopped[k].Load(), "%s: timer %d", optionName(opts), k)
			a, c, s = a+uint64(armed[k].Load()), c+uint64(called[k].Load()), s+uint64(stopped[k].Load())
		}
		st := tw.Stats()
		assert.Equal(t, a, st.Armed, "armed")
		assert.Equal(t, c, st.Fired, "fired")
		assert.Equal(t, s, st.Stopped, "stopped")
		assert.NotZero(t, c)
		assert.NotZero(t, s)
		verifyShards(t, tw.engine)
	}
}

// Other goroutines arm and touch timers while the wheel is stopped. Each arming has been fired,
// stopped or discarded.
func TestRaceFuncTimersAreCountedWhenTheWheelStops(t *testing.T) {
	t.Parallel()
	for range scaled(300) {
		tw := startWheel(t, Options{Tick: minTick, Shards: 2})
		var called atomic.Int64
		var fts [16]FuncTimer
		for k := range fts {
			fts[k].InitStopped(tw, func() {
				called.Add(1)
				fts[k].Reset(time.Duration(k) * time.Microsecond)
			})
			fts[k].Reset(time.Duration(k) * 10 * time.Microsecond)
		}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				for k := range fts {
					fts[k].Touch()
					fts[k].Reset(20 * time.Microsecond)
				}
			})
		}
		spin(time.Duration(rand.IntN(200)) * time.Microsecond)
		tw.Stop()
		all.Wait()
		require.NoError(t, tw.Shutdown(t.Context()))
		st := tw.Stats()
		assert.Equal(t, st.Armed, st.Fired+st.Stopped+st.Discarded)
		assert.Equal(t, uint64(called.Load()), st.Fired)
		assert.Zero(t, st.Stopped)
		for k := range fts {
			assert.False(t, fts[k].Touch())
			assert.False(t, fts[k].Stop())
		}
	}
}

func TestRaceFlushCallsEachTouchedTimerOnce(t *testing.T) {
	t.Parallel()
	for range scaled(300) {
		tw := startWheel(t, Options{Tick: minTick, Shards: 1})
		var called atomic.Int64
		const timers = 64
		var fts [timers]FuncTimer
		for k := range fts {
			fts[k].Init(tw, 100*time.Microsecond, func() { called.Add(1) })
		}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				for n := range 200 {
					if ft := &fts[n%timers]; ft.Touch() {
						ft.timeout.Store(int64(time.Hour))
						ft.Touch()
					}
				}
			})
		}
		all.Wait()
		tw.Flush()
		require.NoError(t, drainWheel(tw))
		assert.Equal(t, int64(timers), called.Load(), "each timer was pending at the Flush or had been called")
	}
}

func TestEndedFuncTimerIsReleasedByTheWheel(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{})
	holder := func() (func(), weak.Pointer[resource]) {
		r := new(resource)
		return func() { runtime.KeepAlive(r) }, weak.Make(r)
	}
	f, a := holder()
	tw.NewFuncTimer(time.Hour, f).Stop()
	f, b := holder()
	var done sync.WaitGroup
	done.Add(1)
	tw.NewFuncTimer(0, func() { f(); done.Done() })
	done.Wait()
	f = nil
	awaitCollected(t, a, "the closure of a stopped timer")
	awaitCollected(t, b, "the closure of a timer that has fired")
	runtime.KeepAlive(tw)
}

func TestFuncTimerCallsAllocateNothing(t *testing.T) {
	if underRace || underInvariants {
		t.Skip("the race detector and verify allocate")
	}
	tw := startWheel(t, Options{})
	ft := tw.NewFuncTimer(time.Hour, func() {})
	now := time.Now()
	for name, f := range map[string]func(){
		"Touch":          func() { ft.Touch() },
		"TouchFrom":      func() { ft.TouchFrom(now) },
		"Reset, later":   func() { ft.Reset(2 * time.Hour) },
		"Stop and Reset": func() { ft.Stop(); ft.Reset(time.Hour) },
	} {
		assert.Zero(t, testing.AllocsPerRun(1000, f), name)
	}
	assert.LessOrEqual(t, unsafe.Sizeof(FuncTimer{}), uintptr(40))
}

// A timer takes at most 77 bytes in all, not counting the program's closure.
func TestFuncTimerTakesAtMost77Bytes(t *testing.T) {
	if underRace || underInvariants || unsafe.Sizeof(uintptr(0)) < 8 {
		t.Skip("the sizes are those of an ordinary 64-bit build")
	}
	const n = 200_000
	tw := startWheel(t, Options{Shards: 1})
	f := func() {}
	before := heapNow()
	timers := make([]FuncTimer, n)
	for k := range timers {
		timers[k].Init(tw, time.Hour+time.Duration(k)*ms, f)
	}
	tw.Len() // places all timers
	each := float64(heapNow()-before) / n
	t.Logf("%.1f bytes a timer", each)
	assert.LessOrEqual(t, each, 77+float64(slack)/n)
	runtime.KeepAlive(timers)
}
