package timingwheel

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryExecutorRunsEachCallbackOnceAndNeverEarly(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Executor: executor(t), WheelSize: 8, Levels: 2})
			const n = 2000
			var runs [n]atomic.Int32
			var early atomic.Int32
			for i := range n {
				d := rand.N(20 * time.Millisecond)
				armed := time.Now()
				tw.AfterFunc(d, func() {
					if time.Since(armed) < d {
						early.Add(1)
					}
					runs[i].Add(1)
				})
			}
			require.NoError(t, drainWheel(tw))
			for i := range runs {
				require.EqualValues(t, 1, runs[i].Load(), "timer %d", i)
			}
			assert.Zero(t, early.Load())
			verifyShards(t, tw.engine)
		})
	}
}

func TestCallbacksOfOneBucketThatWaitForEachOtherAllRun(t *testing.T) {
	t.Parallel()
	for name, executor := range unbounded {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Executor: executor, Shards: 1})
			const n = 1000
			var here sync.WaitGroup
			here.Add(n)
			done := make(chan struct{}, n)
			at := time.Now().Add(5 * time.Millisecond)
			for range n {
				tw.AtFunc(at, func() {
					here.Done()
					here.Wait()
					done <- struct{}{}
				})
			}
			for range n {
				receive(t, done, "a callback that waits for all others")
			}
		})
	}
}

// The quick callback is at the start, at the end or in the middle of a bucket of callbacks that
// block.
func TestQuickCallbackAmongTwoThousandBlockedOnesRuns(t *testing.T) {
	t.Parallel()
	for name, executor := range unbounded {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Executor: executor, Shards: 1})
			gate := make(chan struct{})
			defer close(gate)
			quick := make(chan struct{}, 3)
			at := time.Now().Add(10 * time.Millisecond)
			for i := range 2001 {
				f := func() { <-gate }
				if i%1000 == 0 {
					f = func() { quick <- struct{}{} }
				}
				tw.AtFunc(at, f)
			}
			for range 3 {
				receive(t, quick, "a quick callback")
			}
		})
	}
}

// Each of 64 callbacks of one bucket stops the 63 others. Each timer is either called or stopped,
// whichever callback runs first.
func TestCallbackStopsSiblingsOfItsOwnBucket(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Executor: executor(t), Shards: 1})
			for range 20 {
				const n = 64
				var timers [n]Timer
				var fates [n]atomic.Int32
				var armed sync.WaitGroup
				armed.Add(1)
				at := time.Now().Add(time.Millisecond)
				for i := range n {
					timers[i] = tw.AtFunc(at, func() {
						armed.Wait()
						fates[i].Add(1)
						for k := range n {
							if timers[k].Stop() {
								fates[k].Add(1)
							}
						}
					})
				}
				armed.Done()
				require.NoError(t, drainWheel(tw))
				for i := range fates {
					require.EqualValues(t, 1, fates[i].Load(), "timer %d", i)
				}
			}
			verifyShards(t, tw.engine)
		})
	}
}

// Callbacks run without a lock, so they may call every method.
func TestCallbackMayCallEverything(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Executor: executor(t), Shards: 1})
			far := tw.AfterFunc(time.Hour, func() {})
			sibling := tw.AfterFunc(time.Hour, func() {})
			ran := make(chan string, 10)
			tw.AfterFunc(time.Millisecond, func() {
				assert.True(t, sibling.Stop())
				assert.True(t, far.Reschedule(time.Minute))
				assert.True(t, far.RescheduleAt(time.Now().Add(time.Hour)))
				_, ok := far.Deadline()
				assert.True(t, ok)
				assert.Equal(t, 1, tw.Len())
				_, ok = tw.Next()
				assert.True(t, ok)
				assert.Equal(t, 1, tw.Stats().Running)
				tw.AfterFunc(0, func() { ran <- "AfterFunc" })
				tw.AtFunc(tw.Now(), func() { ran <- "AtFunc" })
				tw.ScheduleFunc(Every(time.Hour), func() { ran <- "plan" })
				assert.GreaterOrEqual(t, tw.Flush(), 2) // far, plan, and what has not run yet
				tw.AfterFunc(time.Hour, func() {})
				ran <- "outer"
			})
			got := []string{}
			for range 4 {
				got = append(got, receive(t, ran, "a timer that the callback armed"))
			}
			assert.ElementsMatch(t, []string{"AfterFunc", "AtFunc", "plan", "outer"}, got)
			await(t, "the flushed timers run", func() bool { return tw.Len() == 2 })
			stopped := make(chan struct{})
			tw.AfterFunc(0, func() { tw.Stop(); close(stopped) })
			receive(t, stopped, "Stop from a callback")
			assert.Zero(t, tw.Len())
		})
	}
}

// A timer that is postponed while its call waits in the executor's queue runs at the new time, by
// another call.
func TestTimerPostponedWhileItsCallWaitsRunsLater(t *testing.T) {
	t.Parallel()
	h := &held{}
	tw := startWheel(t, Options{Executor: h, Shards: 1})
	const n = 600 // several quanta
	ran := 0
	start := time.Now()
	timers := make([]Timer, n)
	for i := range timers {
		timers[i] = tw.AfterFunc(0, func() {
			ran++
			assert.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond)
		})
	}
	await(t, "all calls are submitted", func() bool { return h.len() >= n })
	start = time.Now()
	for _, timer := range timers {
		require.True(t, timer.Reschedule(50*time.Millisecond))
	}
	await(t, "all run", func() bool { h.release(); return ran == n })
	assert.Zero(t, tw.Len())
	verifyShards(t, tw.engine)
}

// Flush claims the timers that are pending at the call. They count as due until their callbacks
// begin.
func TestFlushClaimsPendingTimers(t *testing.T) {
	t.Parallel()
	h := &held{}
	tw := startWheel(t, Options{Executor: h, Shards: 1, WheelSize: 4, Levels: 2})
	var ran []string
	note := func(name string) func() { return func() { ran = append(ran, name) } }
	due := tw.AfterFunc(0, note("due"))
	await(t, "a call", func() bool { return h.len() == 1 })
	timers := []Timer{due, tw.AfterFunc(time.Hour, note("placed"))}
	tw.engine.shards[0].placeAll()
	timers = append(timers, tw.AfterFunc(2*time.Hour, note("staged")))
	require.Equal(t, 3, tw.Flush())
	later := tw.AfterFunc(time.Hour, note("armed after the flush"))
	for _, timer := range timers {
		assert.False(t, timer.Stop())
		assert.False(t, timer.Reschedule(time.Hour))
		_, pending := timer.Deadline()
		assert.False(t, pending)
	}
	assert.Equal(t, 1, tw.Len())
	st := tw.Stats()
	assert.Equal(t, []uint64{3, 3, 0, 1}, []uint64{uint64(st.Due), st.Flushed, st.Fired, uint64(st.Pending)})
	verifyShards(t, tw.engine)
	assert.Equal(t, 1, tw.Flush(), "a timer is flushed once")
	await(t, "the callbacks", func() bool { h.release(); return len(ran) == 4 })
	assert.ElementsMatch(t, []string{"due", "placed", "staged", "armed after the flush"}, ran)
	assert.False(t, later.Stop())
	st = tw.Stats()
	assert.Equal(t, []uint64{0, 4, 4, 0}, []uint64{uint64(st.Due), st.Flushed, st.Fired, uint64(st.Pending)})
	verifyShards(t, tw.engine)
}

// The wheel's Stop discards flushed timers whose callbacks have not begun. A flushed context keeps
// its deadline, which has come.
func TestStopDiscardsFlushedTimersThatHaveNotBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &held{}
		tw, err := New(Options{Executor: h, Shards: 2})
		require.NoError(t, err)
		for range 10 {
			tw.AfterFunc(time.Hour, boom)
		}
		ft := tw.NewFuncTimer(time.Hour, boom)
		tw.ScheduleFunc(Every(time.Hour), boom)
		ctx, cancel := tw.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.Equal(t, 13, tw.Flush())
		synctest.Wait()
		tw.Stop()
		h.release()
		require.NoError(t, ft.StopWait(t.Context()))
		synctest.Wait()
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
		st := tw.Stats()
		require.Equal(t, []uint64{13, 0, 0, 13, 0}, []uint64{st.Armed, st.Fired, st.Stopped, st.Discarded, uint64(st.Due)})
		require.NoError(t, tw.Shutdown(t.Context()))
	})
}

// A flushed plan runs once and goes on. Until the run begins, Stop ends the plan without it.
func TestFlushedPlanRunsOnceAndGoesOn(t *testing.T) {
	t.Parallel()
	h := &held{}
	bubble(t, Options{Executor: h, Shards: 1}, func(t *testing.T, tw *TimingWheel) {
		watch := newStopwatch()
		runs := func() { h.release(); synctest.Wait() }
		plan := tw.ScheduleFunc(Every(time.Minute), watch.note)
		stopped := tw.ScheduleFunc(Every(time.Minute), boom)
		moved := tw.ScheduleFunc(Every(time.Hour), watch.note)
		time.Sleep(10 * time.Second)
		require.Equal(t, 3, tw.Flush())
		synctest.Wait()
		require.Zero(t, tw.Len())
		require.True(t, stopped.Stop())
		require.False(t, stopped.Stop())
		require.True(t, moved.Reschedule(5*time.Second))
		runs()
		require.Equal(t, []int{10_000, 10_000}, watch.noted())
		require.Equal(t, 2, tw.Len())
		time.Sleep(5 * time.Second)
		synctest.Wait()
		runs()
		require.Equal(t, []int{10_000, 10_000, 15_000}, watch.noted())
		require.True(t, moved.Stop())
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		runs()
		require.Equal(t, 4, len(watch.noted()))
		require.True(t, plan.Stop())
		st := tw.Stats()
		require.Equal(t, st.Armed, st.Fired+st.Stopped)
		verifyShards(t, tw.engine)
	})
}

// A callback that Flush makes due may arm a timer on another shard. The same Flush does not fire
// that timer.
func TestFlushLeavesTimersThatItsCallbacksArm(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Shards: 8})
	const timers = 1000
	var fired atomic.Int64
	var rearm func()
	rearm = func() {
		tw.AfterFunc(time.Hour, rearm)
		fired.Add(1)
	}
	for range timers {
		tw.AfterFunc(time.Hour, rearm)
	}
	for round := range int64(20) {
		require.Equal(t, timers, tw.Flush(), "round %d", round)
		await(t, "all callbacks have run", func() bool { return fired.Load() == (round+1)*timers })
		require.Equal(t, timers, tw.Len(), "round %d", round)
	}
}

// Inline runs the callbacks of a shard one after the other, even if more timers are due, after a
// Flush, and if the alarm goes off meanwhile.
func TestInlineCallbacksOfAShardDoNotOverlap(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Executor: Inline, Shards: 1})
	var inside, over, ran atomic.Int32
	f := func() {
		if inside.Add(1) != 1 {
			over.Add(1)
		}
		spin(200 * time.Microsecond)
		ran.Add(1)
		inside.Add(-1)
	}
	at := time.Now().Add(2 * ms)
	for range 50 {
		tw.AtFunc(at, f)
	}
	total := int32(70)
	for range 10 {
		tw.AfterFunc(time.Hour, f)
		time.Sleep(ms)
		tw.Flush()
		for range 200 {
			if !tw.AfterFunc(2*ms, f).Stop() {
				total++ // this goroutine was preempted
			}
		}
		tw.AfterFunc(ms, f)
	}
	await(t, "all callbacks have run", func() bool { return ran.Load() == total })
	require.NoError(t, drainWheel(tw))
	assert.Zero(t, over.Load(), "callbacks that overlapped another one of the shard")
}

// With OnPanic, a panic ends its callback and loses nothing else, on every executor.
func TestOnPanicGetsValueAndStack(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			type report struct {
				value any
				stack string
			}
			reports := make(chan report, 100)
			tw := startWheel(t, Options{
				Executor: executor(t), Shards: 1,
				OnPanic: func(value any, stack []byte) { reports <- report{value, string(stack)} },
			})
			var ran atomic.Int32
			at := time.Now().Add(2 * time.Millisecond)
			for i := range 100 {
				if i%2 == 0 {
					tw.AtFunc(at, boom)
				} else {
					tw.AtFunc(at, func() { ran.Add(1) })
				}
			}
			for range 50 {
				r := receive(t, reports, "a report")
				assert.Equal(t, "boom", r.value)
				assert.Contains(t, r.stack, "timingwheel.boom(")
			}
			require.NoError(t, drainWheel(tw))
			assert.EqualValues(t, 50, ran.Load())
			assert.Empty(t, reports)

			tw.AfterFunc(0, func() { panic(nil) }) //nolint:govet // it is the case that is tested
			r := receive(t, reports, "panic(nil)")
			assert.IsType(t, new(runtime.PanicNilError), r.value)
			verifyShards(t, tw.engine)
			require.NoError(t, tw.Shutdown(t.Context()))
		})
	}
}

// By default a panic crashes the program and prints the callback's stack, as with time.AfterFunc.
func TestPanicCrashesTheProgramByDefault(t *testing.T) {
	roles := map[string]Executor{"default": nil, "Goroutines": Goroutines, "Inline": Inline}
	if role := os.Getenv(childEnv); role != "" {
		tw := startWheel(t, Options{Executor: roles[role]})
		tw.AfterFunc(time.Millisecond, boom)
		time.Sleep(hangTimeout)
		return
	}
	t.Parallel()
	for role := range roles {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			output, err := child("TestPanicCrashesTheProgramByDefault", role).CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			assert.Equal(t, 2, exit.ExitCode())
			assert.Contains(t, string(output), "panic: boom")
			assert.Contains(t, string(output), "timingwheel.boom(")
			assert.NotContains(t, string(output), "--- PASS")
		})
	}
}

// runtime.Goexit ends one callback. OnPanic is not called.
func TestGoexitLosesNothingButItsCallback(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		for _, caught := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " with OnPanic"}[caught], func(t *testing.T) {
				t.Parallel()
				opts := Options{Executor: executor(t), Shards: 1}
				if caught {
					opts.OnPanic = func(v any, _ []byte) { t.Errorf("reported: %v", v) }
				}
				var log aroundLog
				opts.Around = log.around
				tw := startWheel(t, opts)
				var ran atomic.Int32
				for range 3 {
					at := time.Now().Add(2 * time.Millisecond)
					for i := range 100 {
						tw.AtFunc(at, func() {
							ran.Add(1)
							if i%3 == 0 {
								runtime.Goexit()
							}
							ran.Add(1)
						})
					}
					require.NoError(t, drainWheel(tw))
				}
				assert.EqualValues(t, 3*(100+66), ran.Load())
				_, ended := log.counts()
				assert.EqualValues(t, 300, ended, "calls whose end Around has seen")
				verifyShards(t, tw.engine)
				require.NoError(t, tw.Shutdown(t.Context()))
			})
		}
	}
}

// A blocked callback holds a goroutine. Its stack is not larger than with time.AfterFunc, for which
// the runtime's smallest stack suffices. The test runs in a process of its own, in which the
// runtime does not start goroutines with larger stacks after a collection.
func TestBlockedCallbackHoldsNoMoreStackThanAnAfterFunc(t *testing.T) {
	const fixed = "GODEBUG=adaptivestackstart=0"
	if underRace {
		t.Skip("the race detector's frames are larger")
	}
	if underInvariants {
		t.Skip("workers verify the shard, which takes more stack")
	}
	if os.Getenv("GODEBUG") != strings.TrimPrefix(fixed, "GODEBUG=") {
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		child.Env = append(os.Environ(), fixed)
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	tw := startWheel(t, Options{})
	std := stackOfBlocked(func(d time.Duration, f func()) { time.AfterFunc(d, f) })
	wheel := stackOfBlocked(func(d time.Duration, f func()) { tw.AfterFunc(d, f) })
	require.Positive(t, std)
	require.LessOrEqual(t, wheel, std*5/4, "bytes; %d with package time", std)
}

// stackOfBlocked returns the bytes of stack for each of many blocked callbacks.
func stackOfBlocked(afterFunc func(d time.Duration, f func())) uint64 {
	const n = 5000
	var begun, ended sync.WaitGroup
	begun.Add(n)
	ended.Add(n)
	release := make(chan struct{})
	inUse := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.StackInuse
	}
	runtime.GC()
	base := inUse()
	for range n {
		afterFunc(ms, func() {
			begun.Done()
			<-release
			ended.Done()
		})
	}
	begun.Wait()
	held := max(inUse(), base) - base
	close(release)
	ended.Wait()
	return held / n
}

// A timer that is postponed between the hand-over and its function does not keep what is handed
// over after it.
func TestPostponedTimerKeepsNoLaterCalls(t *testing.T) {
	t.Parallel()
	bubble(t, Options{}, func(t *testing.T, _ *TimingWheel) {
		functions := make(chan func(), 1)
		tw := startWheel(t, Options{Shards: 1, Executor: ExecutorFunc(func(f func()) { functions <- f })})
		var ran atomic.Int32
		hand := func() (timer Timer, f func()) {
			timer = tw.AfterFunc(0, func() { ran.Add(1) })
			return timer, <-functions
		}
		_, first := hand()
		postponed, second := hand()
		require.True(t, postponed.Reschedule(time.Hour))
		second()
		verifyShards(t, tw.engine)
		first()
		for range 1000 {
			_, f := hand()
			f()
		}
		assert.EqualValues(t, 1001, ran.Load())
		assert.Empty(t, tw.engine.dues[0].Waiting(10))
		go func() { (<-functions)() }()
		pass(time.Hour)
		assert.EqualValues(t, 1002, ran.Load())
	})
}

// Functions that an executor calls after the wheel's Stop find nothing, and nothing keeps them.
func TestFunctionsCalledAfterStopFindNothing(t *testing.T) {
	t.Parallel()
	functions := make(chan func(), 3)
	tw := startWheel(t, Options{Shards: 1, Executor: ExecutorFunc(func(f func()) { functions <- f })})
	for range 3 {
		tw.AfterFunc(0, boom)
	}
	fs := []func(){<-functions, <-functions, <-functions}
	require.Len(t, tw.engine.dues[0].Waiting(10), 3)
	tw.Stop()
	for _, f := range fs {
		f()
		require.Empty(t, tw.engine.dues[0].Waiting(10))
	}
	require.NoError(t, tw.Shutdown(t.Context()))
}
