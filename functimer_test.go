package timingwheel

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

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
	for seed := range scaledSeeds(400) {
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

func TestFuncTimerBeforeItIsInitialisedOrArmed(t *testing.T) {
	t.Parallel()
	var ft FuncTimer
	assert.False(t, ft.Stop())
	assert.False(t, ft.Touch())
	assert.False(t, ft.TouchFrom(time.Now()))
	_, ok := ft.Deadline()
	assert.False(t, ok)
	assert.PanicsWithValue(t, "timingwheel: Reset called on a FuncTimer that was not initialised", func() { ft.Reset(1) })
	bubble(t, Options{}, func(t *testing.T, tw *TimingWheel) {
		assert.PanicsWithValue(t, "timingwheel: FuncTimer with a nil function", func() { tw.NewFuncTimer(1, nil) })
		assert.PanicsWithValue(t, "timingwheel: FuncTimer with a nil wheel", func() { new(FuncTimer).Init(nil, 1, func() {}) })
		assert.PanicsWithValue(t, "timingwheel: Init called on a FuncTimer that was initialised before", func() {
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

// Touch may move the deadline within the tick in which the wheel looks at the timer. The wheel then
// looks at it once more.
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

// A call to Touch that races with a Reset to a shorter timeout uses the old timeout or the new one.
// The deadline of a Reset that comes last holds.
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
	called := make(chan struct{}, 1)
	ft := tw.NewFuncTimer(time.Hour, func() { called <- struct{}{} })
	wrong := 0
	for k := range scaled(2_000) {
		ft.Reset(20 * time.Microsecond)
		spin(time.Duration(k%100) * 100 * time.Nanosecond)
		if !ft.Reset(time.Hour) {
			<-called // until then Len may count the timer that has fired
			continue
		}
		for range 30 {
			_, ok := tw.Next()
			n, st := tw.Len(), tw.Stats()
			if !ok || n != 1 || st.Armed != st.Fired+st.Stopped+uint64(st.Pending) {
				wrong++
			}
		}
	}
	assert.Zero(t, wrong)
	ft.Stop()
}

// Touches race with the expiry. After Touch has returned true, the function is not called before
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

// A timer takes at most 75 bytes in all, not counting the program's closure.
func TestFuncTimerTakesAtMost75Bytes(t *testing.T) {
	if underRace || underInvariants || unsafe.Sizeof(uintptr(0)) < 8 {
		t.Skip("the sizes are for an ordinary 64-bit build")
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
	assert.LessOrEqual(t, each, 75+float64(slack)/n)
	runtime.KeepAlive(timers)
}
